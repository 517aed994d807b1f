"""Interrupted preparations go on from the last checkpoint, with the bytes of one that was never interrupted."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshrec.data import criteo, source
from meshrec.data.prepare import prepare

from .criteo_text import changed, dataset, good_lines

KILLED = """
import json, os, signal, sys
from pathlib import Path
from meshrec.data import counting, criteo, source, vocabulary, writer
from meshrec.data.prepare import prepare
from meshrec.experiment.schema import CriteoDataset
source.CHUNK_BYTES, criteo.CHECKPOINT_CHUNKS = 3000, 2
vocabulary.COUNTED_ROWS, vocabulary.LOOKED_UP_ROWS, vocabulary.CHECKPOINT_ROWS, counting.MOST_ENTRIES = 20, 7, 20, 500
left = int(sys.argv[3])
def dying(self, state, real=writer.StoreWriter.checkpoint):
    global left
    real(self, state)
    left -= 1
    if left == 0:
        for array in self._arrays.values():  # half a chunk more
            if array.rows:
                array.append(array.read(0, 1))
                array.sync()
        with (self.partial / "rejected.tsv").open("a") as rejected:
            rejected.write("day_1\\t99\\thalf a li")
        os.kill(os.getpid(), signal.SIGKILL)
writer.StoreWriter.checkpoint = dying
prepare(CriteoDataset.model_validate_json(sys.argv[1]), Path(sys.argv[2]), 2)
"""


def killed_at(data, out, checkpoint: int) -> None:
    command = [sys.executable, "-c", KILLED, data.model_dump_json(), str(out), str(checkpoint)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.fixture
def days(tmp_path):
    """Two files with some bad lines."""
    lines = good_lines(120)
    for bad in range(0, 120, 9):
        lines[bad] = changed(lines[bad], 0, "x")
    for day in range(2):
        (tmp_path / f"day_{day}").write_text("".join(f"{line}\n" for line in lines[60 * day : 60 * (day + 1)]))
    return [str(tmp_path / f"day_{day}") for day in range(2)]


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def progress(tmp_path):
    return json.loads((tmp_path / ".store.partial" / "progress.json").read_text())


VARIANTS = {"hashed": {}, "vocabulary": {"categories": {"kind": "vocabulary", "min_count": 1}}}


@pytest.mark.parametrize(("kind", "checkpoint"), [("hashed", 1), ("hashed", 4), ("vocabulary", 2), ("vocabulary", 9)])
def test_killed_preparation_goes_on_and_changes_no_byte(tmp_path, days, caplog, kind, checkpoint):
    caplog.set_level("INFO")
    data = dataset(days, table_rows=1 << 20, **VARIANTS[kind])
    wanted = contents(prepare(data, tmp_path / "whole").path)
    killed_at(data, tmp_path / "store", checkpoint)
    assert not (tmp_path / "store").exists()
    assert progress(tmp_path)["rows"]["label"] > 0
    store = prepare(data, tmp_path / "store")
    assert contents(store.path) == wanted
    assert "going on after" in caplog.text
    assert not (tmp_path / ".store.partial").exists()


def test_killed_again_and_again(tmp_path, days):
    data = dataset(days, table_rows=1 << 20, **VARIANTS["vocabulary"])
    wanted = contents(prepare(data, tmp_path / "whole").path)
    killed_at(data, tmp_path / "store", 2)
    first = progress(tmp_path)["state"]
    killed_at(data, tmp_path / "store", 3)
    second = progress(tmp_path)["state"]
    assert (len(second["sources"]), second["lines"]) > (len(first["sources"]), first["lines"])
    assert contents(prepare(data, tmp_path / "store").path) == wanted


@pytest.mark.parametrize("change", ["text", "settings", "table"])
def test_other_rows_are_never_gone_on_from(tmp_path, days, caplog, change):
    caplog.set_level("INFO")
    data = dataset(days, table_rows=1 << 20)
    killed_at(data, tmp_path / "store", 3)
    if change == "text":
        with open(days[1], "a") as day:  # noqa: PTH123
            day.write(good_lines(1, seed=7)[0])
    if change == "settings":
        data = dataset(days, table_rows=1 << 20, text={"pad_missing_tail": True})
    if change == "table":
        data = dataset(days, table_rows=1 << 19)
    found = contents(prepare(data, tmp_path / "store").path)
    assert "going on" not in caplog.text
    assert found == contents(prepare(data, tmp_path / "whole").path)


def test_other_split_goes_on_from_the_same_rows(tmp_path, days, caplog):
    caplog.set_level("INFO")
    killed_at(dataset(days, table_rows=1 << 20), tmp_path / "store", 3)
    data = dataset(days, table_rows=1 << 20, eval_days=1)
    found = contents(prepare(data, tmp_path / "store").path)
    assert "going on" in caplog.text
    assert found == contents(prepare(data, tmp_path / "whole").path)


@pytest.mark.parametrize("changes", [{"categories": {"kind": "vocabulary", "min_count": 2}}, {"eval_days": 1}], ids=str)
def test_other_vocabularies_are_counted_again_from_the_same_rows(tmp_path, days, caplog, changes):
    caplog.set_level("INFO")
    Path(days[1]).write_text(Path(days[0]).read_text() + Path(days[1]).read_text())
    killed_at(dataset(days, table_rows=1 << 20, **VARIANTS["vocabulary"]), tmp_path / "store", 16)
    assert progress(tmp_path)["rows"]["sparse"] > 0
    data = dataset(days, table_rows=1 << 20, **{**VARIANTS["vocabulary"], **changes})
    found = contents(prepare(data, tmp_path / "store").path)
    assert "going on" in caplog.text
    assert found == contents(prepare(data, tmp_path / "whole").path)


@pytest.mark.parametrize("damage", ["progress", "column", "missing"])
def test_damaged_checkpoint_is_begun_anew(tmp_path, days, damage):
    data = dataset(days, table_rows=1 << 20)
    killed_at(data, tmp_path / "store", 3)
    partial = tmp_path / ".store.partial"
    if damage == "progress":
        (partial / "progress.json").write_text("{")
    if damage == "column":
        (partial / "dense.npy").write_bytes((partial / "dense.npy").read_bytes()[:300])
    if damage == "missing":
        (partial / "sparse.npy").unlink()
    assert contents(prepare(data, tmp_path / "store").path) == contents(prepare(data, tmp_path / "whole").path)


def test_interrupt_keeps_the_checkpoint_and_unusable_text_does_not(tmp_path, days, monkeypatch):
    monkeypatch.setattr(source, "CHUNK_BYTES", 3000)
    monkeypatch.setattr(criteo, "CHECKPOINT_CHUNKS", 2)
    data = dataset(days, table_rows=1 << 20)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(criteo, "training_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, tmp_path / "store")
    assert progress(tmp_path)["rows"]["label"] > 0

    def unusable(*_):
        raise criteo.CriteoError("no rows to speak of")

    monkeypatch.setattr(criteo, "training_rows", unusable)
    with pytest.raises(criteo.CriteoError):
        prepare(data, tmp_path / "store")
    assert not (tmp_path / ".store.partial").exists()
