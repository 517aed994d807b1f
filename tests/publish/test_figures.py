"""Figures: whole, the same bytes each time, and exactly the numbers in the table beside them."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from meshrec.experiment import Experiment
from meshrec.publish.effects import Panel
from meshrec.publish.figures import write_figures
from meshrec.publish.files import ResultsError
from publish.planted import smoke

NAMES = ("effects_quality", "effects_throughput")


def test_all_files_and_nothing_else(published: tuple[Experiment, Path]) -> None:
    found = sorted(path.name for path in (published[1] / "figures").iterdir())
    assert found == sorted(f"{name}.{suffix}" for name in NAMES for suffix in ("pdf", "png", "csv"))


def test_same_bytes_again(published: tuple[Experiment, Path], tmp_path: Path) -> None:
    experiment, results = published
    write_figures(experiment, results, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (results / "figures" / path.name).read_bytes(), path.name


def test_pdf_has_no_date_and_editable_text(published: tuple[Experiment, Path]) -> None:
    pdf = (published[1] / "figures" / "effects_quality.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert b"/FontFile2" in pdf  # TrueType embedded


def test_table_holds_what_is_drawn(published: tuple[Experiment, Path]) -> None:
    _, results = published
    runs, contrasts = pd.read_parquet(results / "runs.parquet"), pd.read_csv(results / "contrasts.csv")
    table = pd.read_csv(results / "figures" / "effects_quality.csv")
    assert sorted(table.loc[table["kind"] == "run", "value"]) == sorted(runs["ne"].dropna())
    drawn = table[table["kind"] == "contrast"].set_index(["ranks", "comparison"])
    assert len(drawn) == 6
    source = contrasts[(contrasts["metric"] == "ne") & (contrasts["comparison"] != "published")]
    columns = ["ci_low", "ci_high", "verdict", "n"]
    source = source.set_index(["ranks", "comparison"]).loc[drawn.index]
    assert list(drawn["value"]) == list(source["estimate"])
    assert drawn[columns].to_numpy().tolist() == source[columns].to_numpy().tolist()


def test_rates_are_averaged_harmonically() -> None:
    runs = pd.DataFrame({"layout": "1d", "optimizer": "plain", "seed": [0, 1], "samples_per_second": [100.0, 300.0]})
    assert Panel(1, "strong", "samples_per_second", runs, pd.DataFrame()).mean("1d", "plain") == pytest.approx(150)


def test_is_no_blank_picture(published: tuple[Experiment, Path]) -> None:
    for name in NAMES:
        pixels = imread(published[1] / "figures" / f"{name}.png")[..., :3]
        ink = (pixels < 0.9).any(axis=2)
        assert 0.005 < ink.mean() < 0.3
        assert not ink[:, -2:].any(), "something is cut off at the right edge"


def test_missing_table_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"runs\.parquet: not found; `meshrec tables` writes it"):
        write_figures(smoke(), tmp_path, tmp_path / "figures")
