"""The report in four sentences, by rule from the contrasts: quality, speed, what stays open, what to be careful about."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from meshrec.experiment import Experiment
from meshrec.publish.provenance import changed_runs, crowd_text, crowded
from meshrec.publish.wording import NO_BREAK, Row, listed, margin_text, number, rank_counts

OPEN = ("too few seeds", "inconclusive", "no margin")
EFFECTS = ("layout", "optimizer")
NE = "by normalised entropy (NE: logloss relative to always predicting the average click rate, lower is better)"


def in_brief(experiment: Experiment, contrasts: list[dict[Any, Any]], runs: pd.DataFrame) -> list[tuple[str, str]]:
    """At most four sentences, each with the word that it is about."""
    if not (runs["status"] == "ok").any():
        return [("Nothing yet", "no run has finished.")]
    of = {metric: [row for row in contrasts if row["metric"] == metric] for metric in ("ne", "samples_per_second")}
    quality, speed = (_settled(experiment, rows) for rows in of.values())
    said = [("Quality", f"{NE}, {quality or 'no comparison is settled'}.")]
    said += [("Speed", f"{speed or 'no comparison is settled'}.")]
    still_open = _open(experiment, of)
    said += [("Can't be said", f"{still_open}.")] if still_open else []
    care = _care(experiment, runs)
    return said + ([("Careful", f"{care}.")] if care else [])


# --- what is settled --------------------------------------------------------------------------------------------------


def _settled(experiment: Experiment, rows: list[dict[Any, Any]]) -> str:
    clauses = [_effect(experiment, effect, [row for row in rows if row["comparison"] == effect]) for effect in EFFECTS]
    depends = [row for row in rows if row["comparison"] == "interaction" and row["verdict"] == "different"]
    if depends:
        clauses.append(f"the effects of layout and optimizer depend on each other {_places(experiment, depends)}")
    return "; ".join(clause for clause in clauses if clause)


def _effect(experiment: Experiment, effect: str, rows: list[dict[Any, Any]]) -> str:
    """`the 2d layout was better than 1d by 0.012 at 2 ranks and by 0.011 at 4 ranks`; all places of one wording together."""
    places: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["verdict"] not in OPEN:
            places.setdefault(_judgement(experiment, effect, row), []).append(row)
    said: dict[str, list[str]] = {}
    for (word, amount), where in places.items():
        said.setdefault(word, []).append(f"{amount}{_places(experiment, where)}")
    clauses = [f"{word} {listed(amounts)}" for word, amounts in said.items()]
    return f"the {_levels(experiment, effect)[1]} {effect} was {', '.join(clauses)}" if clauses else ""


def _judgement(experiment: Experiment, effect: str, row: Row) -> tuple[str, str]:
    """Better, worse or as good, and by how much."""
    reference = _levels(experiment, effect)[0]
    speed, up = row["metric"] == "samples_per_second", row["estimate"] > 0
    word = ("faster" if up else "slower") if speed else ("worse" if up else "better")
    if row["verdict"] != "equivalent":
        percent = f"{number(100 * abs(math.expm1(row['estimate'])), 0)}{NO_BREAK}%"
        return f"{word} than {reference}", f"by {percent if speed else number(abs(row['estimate']), 4)} "
    margin = f"a factor of {math.exp(row['margin']):.3f}" if speed else margin_text(row)
    if row["p_adjusted"] < 1 - experiment.analysis.confidence:
        return f"slightly {word} than {reference} (by less than the margin, {margin.lstrip('±')})", ""
    return f"as {'fast' if speed else 'good'} as {reference} (within {margin})", ""


def _levels(experiment: Experiment, effect: str) -> list[str]:
    factorial = experiment.analysis.factorial
    return factorial.layouts if effect == "layout" else factorial.optimizers


def _places(experiment: Experiment, rows: Iterable[Row]) -> str:
    if len(experiment.scaling) == 1:
        return f"at {rank_counts(row['ranks'] for row in rows)}"
    by_scaling: dict[str, list[int]] = {}
    for row in rows:
        by_scaling.setdefault(row["scaling"], []).append(row["ranks"])
    return listed(f"at {rank_counts(ranks)}, {scaling} scaling" for scaling, ranks in by_scaling.items())


# --- what is not ------------------------------------------------------------------------------------------------------


def _open(experiment: Experiment, of: dict[str, list[dict[Any, Any]]]) -> str:
    """Main effects and interaction that the seeds didn't settle."""
    said = []
    for name, rows in zip(("NE", "speed"), of.values(), strict=True):
        left = [row for row in rows if row["verdict"] in OPEN and row["comparison"] in (*EFFECTS, "interaction")]
        for effect in dict.fromkeys(row["comparison"] for row in left):
            where = [row for row in left if row["comparison"] == effect]
            said.append(f"{_question(experiment, effect)} {name} {_places(experiment, where)}")
    seeds = f"with {len(experiment.seeds)} seed{'s' * (len(experiment.seeds) != 1)}"
    if all(row["verdict"] in OPEN for rows in of.values() for row in rows):
        return f"{seeds}, anything about NE or speed"
    return f"{seeds}: {'; '.join(said)}" if said else ""


def _question(experiment: Experiment, effect: str) -> str:
    return "whether layout and optimizer depend on each other in" if effect == "interaction" else f"what the {effect} does to"


def _care(experiment: Experiment, runs: pd.DataFrame) -> str:
    said = [crowd_text(*place) for place in crowded(runs).items()]
    changed, finished = changed_runs(experiment, runs)
    if changed:
        said.append(f"the analysis was changed after {changed} of {finished} runs, so nothing here is confirmatory")
    return "; ".join(said)
