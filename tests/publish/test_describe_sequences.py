import numpy as np
import pytest
from matplotlib.image import imread

from meshrec.cli import main
from meshrec.data.store import StoreError
from meshrec.publish.describe_sequences import describe_sequences, draw_sequences

EVENTS = """user,item,time
a,x,1
a,y,1
a,x,1
a,z,5
b,x,5
b,x,7
b,y,8
c,y,8
c,x,9
c,w,9
"""


@pytest.fixture
def store(tmp_path):
    (tmp_path / "events.csv").write_text(EVENTS)
    columns = ["--format", "csv", "--user", "user", "--item", "item", "--time", "time"]
    assert main(["prepare-sequences", str(tmp_path / "events.csv"), *columns, "--out", str(tmp_path / "s")]) == 0
    return tmp_path / "s"


def test_counts_by_hand(store):
    found = describe_sequences(store)
    assert found.popularity.tolist() == [5, 3, 1, 1]
    assert found.lengths.tolist() == [4, 3, 3]
    assert found.ties == 3 / 10  # a's second and third, c's third; b begins at a's last time, which is no tie
    assert found.half == 1


def test_the_command_knows_the_kind_of_a_store(store, tmp_path, capsys):
    capsys.readouterr()
    assert main(["describe", str(store), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "3 users, 4 items, 10 events (83.33 % of all pairs); 30.0 % at the time of the user's event before" in printed
    assert "events a user: 3 to 4, median 3" in printed
    assert "most popular item: 50.0 % of the events; half of them go to the first 1" in printed
    assert imread(tmp_path / "out" / "sequences.png").shape[1] == 1680


def test_curves_are_the_counts(store):
    left, right = draw_sequences(describe_sequences(store)).axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), [5, 3, 1, 1])
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [4, 3, 3])


def test_a_folder_without_a_store(tmp_path):
    with pytest.raises(StoreError, match="holds no sequences"):
        describe_sequences(tmp_path)
