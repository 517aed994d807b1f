"""The brief: better and worse the right way round, and nothing settled that isn't."""

import re
from pathlib import Path

import pandas as pd
import pytest

from meshrec.experiment import Experiment
from meshrec.publish.brief import in_brief
from meshrec.publish.contrasts import contrasts
from meshrec.publish.provenance import crowded
from meshrec.publish.tables import write_tables
from meshrec.publish.wording import NO_BREAK
from publish.planted import Planted, RunRecord, smoke, with_analysis


def brief_of(planted: Planted, results: Path, seeds: int = 12, analysed: Experiment | None = None) -> dict[str, str]:
    planted.write(smoke(seeds), results)
    experiment = analysed or smoke(seeds)
    write_tables(experiment, results)
    runs = pd.read_parquet(results / "runs.parquet")
    said = in_brief(experiment, contrasts(experiment, runs).to_dict("records"), runs)
    assert len(said) <= 4
    return {word: text.replace(NO_BREAK, " ") for word, text in said}


@pytest.mark.parametrize(("effect", "word"), [(-0.012, "better"), (0.012, "worse")])
def test_lower_ne_is_better(tmp_path: Path, effect: float, word: str) -> None:
    said = brief_of(Planted(ne_optimizer=effect), tmp_path)
    assert re.search(
        rf"the scaled optimizer was {word} than plain by 0\.01\d\d at (2 and 4 ranks|2 ranks and by 0\.01\d\d at 4 ranks)",
        said["Quality"],
    )
    assert "the 2d layout was as good as 1d (within ±0.005) at 2 and 4 ranks" in said["Quality"]
    assert "lower is better" in said["Quality"]
    assert "Can't be said" not in said
    assert "Careful" not in said


@pytest.mark.parametrize(("effect", "word"), [(0.5, "faster than 1d by 6"), (-0.5, "slower than 1d by 3")])
def test_more_samples_a_second_is_faster(tmp_path: Path, effect: float, word: str) -> None:
    said = brief_of(Planted(log_speed_layout=effect), tmp_path)
    assert f"the 2d layout was {word}" in said["Speed"]
    assert "the scaled optimizer was as fast as plain (within a factor of 1.105) at 2 and 4 ranks" in said["Speed"]


def test_certain_but_small_is_called_slight(tmp_path: Path) -> None:
    said = brief_of(Planted(ne_layout=-0.003), tmp_path)
    assert "the 2d layout was slightly better than 1d (by less than the margin, 0.005) at 2 and 4 ranks" in said["Quality"]


def test_effects_that_depend_on_each_other_are_named(tmp_path: Path) -> None:
    assert (
        "the effects of layout and optimizer depend on each other at 2 and 4 ranks"
        in brief_of(Planted(ne_interaction=0.02), tmp_path)["Quality"]
    )


def test_noise_settles_nothing(tmp_path: Path) -> None:
    said = brief_of(Planted(ne_noise=0.02), tmp_path, seeds=5)
    assert said["Quality"].endswith("no comparison is settled.")
    assert said["Can't be said"].startswith(
        "with 5 seeds: what the layout does to NE at 2 and 4 ranks; what the optimizer does"
    )
    assert "speed" not in said["Can't be said"]
    said = brief_of(Planted(ne_noise=0.03, speed_noise=0.5), tmp_path, seeds=1)
    assert said["Speed"] == "no comparison is settled."
    assert said["Can't be said"] == "with 1 seed, anything about NE or speed."


def test_too_few_cores_and_an_edited_analysis_are_cautions(tmp_path: Path) -> None:
    def on_two_cores(record: RunRecord) -> RunRecord:
        return record.model_copy(update={"environment": record.environment | {"cores": 2}})

    edited = with_analysis(smoke(3), margins={"ne": 0.5})
    said = brief_of(Planted(change=on_two_cores), tmp_path, seeds=3, analysed=edited)
    assert "4 ranks shared 2 cores" in said["Careful"]
    assert "changed after 30 of 30 runs, so nothing here is confirmatory" in said["Careful"]


def test_ranks_on_devices_share_no_cores() -> None:
    runs = pd.DataFrame({"ranks": [4, 4, 2], "cores": [2, 3, 2], "device": "cpu", "status": "ok", "execution": "ranks"})
    assert crowded(runs) == {4: 2}
    assert crowded(runs.assign(device="cuda")) == {}
    assert crowded(runs.assign(execution="virtual")) == {}
    assert crowded(runs.assign(cores=pd.array([None] * 3, dtype="Int64"))) == {}


def test_nothing_finished_says_only_that(tmp_path: Path) -> None:
    assert brief_of(Planted(change=lambda _: None), tmp_path, seeds=2) == {"Nothing yet": "no run has finished."}
