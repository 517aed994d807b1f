"""The report: complete, self-contained, and it says what the tables say."""

import base64
import html
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from meshrec.experiment import Experiment, load_experiment
from meshrec.publish.captions import caption
from meshrec.publish.contrasts import write_contrasts
from meshrec.publish.figures import write_figures
from meshrec.publish.files import ResultsError
from meshrec.publish.report import SCREEN_DPI, write_report
from meshrec.publish.style import NARROW_INCHES
from meshrec.publish.tables import write_tables
from meshrec.publish.wording import NO_BREAK, bytes_text, estimate_text, milliseconds, number, p_text, sentence
from publish.planted import Planted, RunRecord, smoke, with_analysis


@pytest.fixture(scope="module")
def source(published: tuple[Experiment, Path]) -> str:
    return (published[1] / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(source: str) -> str:
    """What a reader sees, white space collapsed."""
    visible = re.sub(r"<style>.*?</style>|<[^>]+>", "", source, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(visible))


def test_asks_nothing_of_the_network(source: str) -> None:
    references = re.findall(r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']([^"']*)""", source)
    assert references
    assert all(reference.startswith("data:image/png;base64,") for reference in references)
    assert not re.search(r"https?://|//[a-z]|url\(|@import|<script|<link", re.sub(r"base64,[^\"]*", "", source))


def test_every_figure_is_embedded(source: str, published: tuple[Experiment, Path]) -> None:
    """Both, drawn for a phone, nothing cut off, and the caption as text below."""
    embedded = {base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]*)"', source)}
    assert len(embedded) == 2
    for image in embedded:
        ink = (imread(io.BytesIO(image), format="png")[..., :3] < 0.9).any(axis=2)
        assert 0.005 < ink.mean() < 0.3
        assert ink.shape[1] == round(NARROW_INCHES * SCREEN_DPI)
        assert not ink[:, -2:].any(), "something is cut off at the right edge"
    for metric in ("ne", "samples_per_second"):
        assert caption(published[0], metric) in html.unescape(source)


def test_every_verdict_is_a_sentence(text: str, published: tuple[Experiment, Path]) -> None:
    experiment, results = published
    rows = pd.read_csv(results / "contrasts.csv").to_dict("records")
    said = [row for row in rows if row["metric"] in ("ne", "samples_per_second")]
    assert {"equivalent", "different"} <= {row["verdict"] for row in said}
    for row in said:
        assert sentence(experiment, row).replace(NO_BREAK, " ") in text.replace(NO_BREAK, " ")


def test_opens_with_what_was_run_on_what(text: str) -> None:
    opening = text[: text.index("Verdicts")]
    for expected in (
        "SYNTHETIC DATA",
        "58 of 60 runs finished, 1 failed, 1 missing",
        "dddddddddddd…",
        "Example CPU @ 2.00GHz, 4 cores",
    ):
        assert expected in opening
    assert re.search(r"1d\.plain at 1 rank, strong scaling: [12]\d,\d{3} samples/s \(harmonic mean of 6 seeds\)", opening)
    assert "NE 0.8000, logloss 0.4500, AUC 0.8100" in opening
    assert "d" * 64 in text[text.index("Reproduce") :]
    assert "REAL DATA" not in text


def test_brief_comes_before_everything_else(text: str) -> None:
    brief = text[text.index("In brief") : text.index("What was run")]
    assert text.index("In brief") < text.index("On what") < text.index("Verdicts")
    assert "the scaled optimizer was better than plain by 0.01" in brief
    assert "The 2d layout was faster than 1d by 3" in brief


def test_claims_of_the_analysis_only_what_is_known(text: str) -> None:
    assert "unchanged since the first run: all 58 finished runs recorded the same" in text
    assert "before the runs" not in text


def test_edited_analysis_is_told_first(tmp_path: Path) -> None:
    experiment = smoke()
    Planted().write(experiment, tmp_path)
    report = publish(with_analysis(experiment, margins={"ne": 0.02, "samples_per_second": 0.1}), tmp_path)
    verdicts = report[report.index("<h2>Verdicts</h2>") :]
    told = "was changed after 30 of 30 finished runs were made; no comparison is called confirmatory"
    assert told in verdicts
    assert verdicts.index(told) < verdicts.index("<li class=")
    assert "Confirmatory family, listed" not in report
    assert "unchanged since" not in report


def test_listing_is_the_experiment(source: str, published: tuple[Experiment, Path], tmp_path: Path) -> None:
    listing = re.search(r"<details>.*?<pre>(.*?)</pre>", source, flags=re.DOTALL)
    assert listing
    (tmp_path / "smoke.yaml").write_text(html.unescape(listing[1]), encoding="utf-8")
    assert load_experiment(tmp_path / "smoke.yaml") == published[0]


def test_optimum_is_the_last_row_of_every_results_table(source: str) -> None:
    results = source[source.index("Results by cell") : source.index("All contrasts")]
    tables = re.findall(r"<tbody>(.*?)</tbody>", results, flags=re.DOTALL)
    assert len(tables) == 3
    for table in tables:
        last = re.sub(r"<[^>]+>", " ", table.strip().splitlines()[-1]).split()
        assert last[:6] == ["planted", "optimum", "–", "0.8000", "0.4500", "0.8100"]


def test_more_ranks_than_cores_is_told_beside_speeds(tmp_path: Path) -> None:
    def on_two_cores(record: RunRecord) -> RunRecord:
        return record.model_copy(update={"environment": record.environment | {"cores": 2, "commit": "0123456789ab+"}})

    experiment = smoke()
    Planted(change=on_two_cores).write(experiment, tmp_path)
    report = publish(experiment, tmp_path)
    assert len(re.findall("4 ranks shared 2 cores: speeds there measure", report)) == 3  # brief, base case, verdicts
    assert re.search(r"1d\.plain at 4.ranks, [^<]*more ranks than cores", report)
    assert not re.search(r"1d\.plain at 2.ranks, [^<]*more ranks than cores", report)
    for sentence_, remark in re.findall(r"<li class=\"[^\"]*\">(.*?)(<span.*?)?</li>", report):
        assert bool(remark) == ("samples/s" in sentence_ and f"at 4{NO_BREAK}ranks" in sentence_)
    assert "changes that were not committed" in report


def test_one_seed_shows_no_spread(tmp_path: Path) -> None:
    experiment = smoke(seeds=1)
    Planted().write(experiment, tmp_path)
    report = publish(experiment, tmp_path)
    results = report[report.index("Results by cell") : report.index("All contrasts")]
    assert "sd" not in re.sub(r"<[^>]+>", " ", results).split()
    assert not re.search(r"\d – \d", results)
    assert "1 seeds" not in report
    assert "(one seed)" in report


def publish(experiment: Experiment, results: Path) -> str:
    """Everything from tables on, and the report's source."""
    write_tables(experiment, results)
    write_contrasts(experiment, results)
    write_figures(experiment, results, results / "figures")
    return write_report(experiment, results).read_text(encoding="utf-8")


def test_names_what_is_lost(text: str) -> None:
    lost = text[text.index("Failed and missing runs") :]
    assert "loss is not finite at step 7" in lost
    assert "no record" in lost
    assert "2 of 60 runs have no result" in lost


def test_bytes_that_differ_from_their_formula_stand_out(
    source: str, published: tuple[Experiment, Path], tmp_path: Path
) -> None:
    assert 'class="differs"' not in source
    experiment, results = published
    traffic = pd.read_parquet(results / "bytes.parquet")
    traffic.loc[0, "counted"] = traffic.loc[0, "analytic"] + 1e3
    for path in results.glob("*.parquet"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    traffic.to_parquet(tmp_path / "bytes.parquet")
    (tmp_path / "contrasts.csv").write_bytes((results / "contrasts.csv").read_bytes())
    (tmp_path / "figures").symlink_to(results / "figures")
    (tmp_path / "blocks").symlink_to(results / "blocks")
    assert write_report(experiment, tmp_path).read_text(encoding="utf-8").count('class="differs"') == 1


def test_nothing_run_yet_is_still_a_report(tmp_path: Path) -> None:
    experiment = smoke()
    Planted(change=lambda _: None).write(experiment, tmp_path)
    report = publish(experiment, tmp_path)
    assert "0 of 30 runs finished, 30 missing" in report
    assert "no run has finished" in report
    assert "too few seeds" in report


def test_missing_figure_says_what_to_run(tmp_path: Path) -> None:
    experiment = smoke()
    Planted().write(experiment, tmp_path)
    write_tables(experiment, tmp_path)
    write_contrasts(experiment, tmp_path)
    with pytest.raises(ResultsError, match=r"effects_quality\.csv: not found; `meshrec figures` writes it"):
        write_report(experiment, tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_text_of_an_experiment_is_escaped(published: tuple[Experiment, Path], tmp_path: Path) -> None:
    experiment, results = published
    copy = tmp_path / "copy"
    copy.symlink_to(results)
    before = (results / "report.html").read_bytes()
    try:
        hostile = experiment.model_copy(update={"title": "<script>alert(1)</script>"})
        assert "<script>" not in write_report(hostile, copy).read_text(encoding="utf-8")
    finally:
        (results / "report.html").write_bytes(before)


def test_numbers_in_words() -> None:
    assert number(-1234.5, 1) == "−1,234.5"
    assert number(-0.0001, 2, sign=True) == "0.00"
    assert number(float("nan"), 2) == "–"
    assert (bytes_text(999.7), bytes_text(1536), bytes_text(2.5e6), bytes_text(17.2e9)) == (
        "1.00 kB",
        "1.54 kB",
        "2.50 MB",
        "17.2 GB",
    )
    assert (bytes_text(0), bytes_text(12)) == ("0", "12.0 B")
    assert (milliseconds(0.0123456), milliseconds(0.5), milliseconds(2.0)) == ("12.3", "500", "2,000")
    assert p_text(0.0004).replace(NO_BREAK, " ") == "< 0.001"
    quality = {"metric": "ne", "estimate": 0.00123, "ci_low": -0.0003, "ci_high": 0.0027}
    assert estimate_text(quality) == "+0.0012 [−0.0003, +0.0027]"
    assert (
        estimate_text({"metric": "ne", "estimate": 1e-6, "ci_low": -2e-6, "ci_high": 4e-6})
        == "+0.0000010 [−0.0000020, +0.0000040]"
    )
    speed = {"metric": "samples_per_second", "estimate": 0.0953102, "ci_low": 0.0, "ci_high": 0.1823216}
    assert estimate_text(speed).replace(NO_BREAK, " ") == "+10.0 % [0.0 %, +20.0 %]"
