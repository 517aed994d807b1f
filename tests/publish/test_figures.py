"""Figures: whole, the same bytes each time, and exactly the numbers in the table beside them."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from meshrec.experiment import Experiment
from meshrec.publish.captions import caption
from meshrec.publish.effects import Panel, draw_effects
from meshrec.publish.figures import panels_of, write_figures
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
    assert len(drawn) == 8, "layout, optimizer, interaction and the pair, at two rank counts"
    assert set(table.loc[table["kind"] == "optimum", "value"]) == {0.80}
    source = contrasts[contrasts["metric"] == "ne"]
    columns = ["ci_low", "ci_high", "verdict", "n"]
    source = source.set_index(["ranks", "comparison"]).loc[drawn.index]
    assert list(drawn["value"]) == list(source["estimate"])
    assert drawn[columns].to_numpy().tolist() == source[columns].to_numpy().tolist()


def test_pairs_are_rows_of_the_contrast_panels(published: tuple[Experiment, Path]) -> None:
    figure = figure_of(*published, "ne")
    names = [label.get_text() for label in figure.axes[3].get_yticklabels()]
    assert sorted(name.partition("\n")[0] for name in names) == ["interaction", "layout", "optimizer", "published"]
    estimates = pd.read_csv(published[1] / "contrasts.csv").query("metric == 'ne' and ranks == 2")["estimate"]
    diamonds = [line.get_xdata()[0] for line in figure.axes[3].get_lines() if line.get_marker() == "D"]
    assert sorted(diamonds) == sorted(estimates)


@pytest.mark.parametrize(("best", "is_drawn"), [(0.84, True), (0.70, False)])
def test_optimum_is_a_line_where_the_axis_can_hold_it(published: tuple[Experiment, Path], best: float, is_drawn: bool) -> None:
    """Elsewhere the legend names it: an axis down to it would press the runs together."""
    figure = figure_of(*published, "ne", optimum_ne=best)
    low, _ = figure.axes[0].get_ylim()
    dotted = [line.get_ydata()[0] for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
    assert (dotted, low < best) == (([best], True) if is_drawn else ([], False))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert f"optimum {best:.4f}{'' if is_drawn else ' (off axis)'}" in legend


def test_one_seed_claims_no_interval() -> None:
    text = caption(smoke(seeds=1), "ne")
    assert "the one run of each cell" in text
    assert not {"bars", "seeds;", "1 seeds"} & set(text.split())
    assert "bars are 95 % paired-t intervals" in caption(smoke(seeds=2), "ne")


def figure_of(experiment: Experiment, results: Path, metric: str, **runs_columns: float) -> Figure:
    runs = pd.read_parquet(results / "runs.parquet").assign(**runs_columns)
    return draw_effects(experiment, metric, panels_of(experiment, runs, pd.read_csv(results / "contrasts.csv"), metric))


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
