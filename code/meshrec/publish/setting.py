"""What the report says of the setting: data, machine, cells and base case."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from meshrec.experiment import Experiment
from meshrec.experiment.record import RunRecord
from meshrec.publish import wording
from meshrec.publish.grids import harmonic_mean
from meshrec.publish.predictions import kernel
from meshrec.publish.provenance import crowded

LEVELS = {
    "lr": "lr",
    "moment_scale": "moment scale c",
    "effective_lr": "√c·lr",
    "replicas": "replicas M",
    "sync": "twins average",
    "sync_every": "every K steps",
    "sync_moments": "twins' moments",
    "sync_rows": "averaged rows",
    "sync_overlap": "average overlaps the next step",
    "replica_storage": "twins' storage",
    "optimizer_kind": "optimizer",
    "rank_order": "rank order",
    "sharding": "sharding",
    "eps": "ε",
    "eps_placement": "ε stands",
    "beta": "β",
}
"""Factors that tell the cells apart, as the report heads them, the important ones first."""
UNREMARKABLE = (
    *("rank_order", "sharding", "sync_moments", "sync_rows", "sync_overlap", "replica_storage", "beta"),
    *("eps", "eps_placement"),
)
"""Left to a line under the table where all cells that have the factor have the same level."""
SYNC = {
    "weights": "weights, after the update",
    "gradients": "gradients, before the update (exact control)",
}


def data_of(experiment: Experiment, runs: pd.DataFrame, records: list[RunRecord]) -> dict[str, str]:
    """Identity of the data set, from the records; the hashes whole."""
    return dict(_data(experiment, runs, next((record.data for record in records if record.data), {})))


def _data(experiment: Experiment, runs: pd.DataFrame, found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    used = sorted(set(runs["samples"].dropna()))
    name = str(found.get("name", experiment.dataset.kind))
    for key, label in (("train", "training rows"), ("evaluation", "evaluation rows")):
        if isinstance(found.get(key), int):
            name += f", {found[key]:,} {label}"
    if used:
        name += f"; every run trains on {' · '.join(f'{samples:,}' for samples in used)}"
    yield "data set", name
    if runs["optimum_ne"].notna().any():
        best = runs[runs["optimum_ne"].notna()].iloc[0]
        text = f"NE {best['optimum_ne']:.4f}, logloss {best['optimum_logloss']:.4f}, AUC {best['optimum_auc']:.4f}"
        yield "planted optimum", f"{text}: the quality of the true click probabilities, which no model can beat"
    for reason, lines in (found.get("rejected") or {}).items():
        yield f"rejected lines: {reason}", f"{lines:,}"


def environment_of(records: list[RunRecord]) -> dict[str, str]:
    """What the finished runs ran on: flat key → value; several values where the runs' machines or code differ."""
    values: dict[str, dict[str, None]] = {}
    for record in records:
        for key, value in _flat(record.environment):
            values.setdefault(key, {})[value] = None
    return {key: " · ".join(found) for key, found in values.items()}


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, entry in value.items():
        if isinstance(entry, dict):
            yield from _flat(entry, f"{prefix}{key} ")
        else:
            text = wording.bytes_text(entry) if key.endswith("_bytes") and entry is not None else str(entry)
            yield (prefix + key).removeprefix("packages ").removesuffix("_bytes").replace("_", " "), text


def treatments(experiment: Experiment, runs: pd.DataFrame) -> tuple[list[dict[str, str]], str]:
    """Settings of every layout.optimizer, as run, and a line about those that are the same everywhere."""
    distinct = runs.drop_duplicates(["layout", "optimizer"])
    effective = {label: kernel(level)[1] for label, level in experiment.optimizers.items()}
    distinct = distinct.assign(effective_lr=[effective[label] for label in distinct["optimizer"]])
    dull = [name for name in UNREMARKABLE if distinct[name].nunique() <= 1]
    rows = [
        {"cell": f"{row['layout']}.{row['optimizer']}"}
        | {label: _level(name, row[name]) for name, label in LEVELS.items() if name not in dull}
        for row in distinct.to_dict("records")
    ]
    same = [f"{LEVELS[name]} {_level(name, distinct[name].dropna().iloc[0])}" for name in dull if distinct[name].notna().any()]
    return rows, f"The same in all cells that have it: {'; '.join(same)}." if same else ""


def _level(name: str, value: Any) -> str:
    if pd.isna(value):
        return "–"
    if name == "sync":
        return SYNC[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("_", " ")


def base_case(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """Absolute speed of the reference cell at every rank count: what all ratios are ratios of."""
    factorial, shared = experiment.analysis.factorial, crowded(runs)
    layout, optimizer = factorial.layouts[0], factorial.optimizers[0]
    timed = runs[(runs["status"] == "ok") & (runs["execution"] == "ranks")]
    base = timed[(timed["layout"] == layout) & (timed["optimizer"] == optimizer)]
    return [
        f"{layout}.{optimizer} at {wording.rank_counts(part['ranks'])}, {scaling} scaling: "
        f"{wording.number(harmonic_mean(part['samples_per_second'].to_numpy(dtype=float)), 0)} samples/s"
        f"{_over(len(part))}{_crowd(int(part['ranks'].iloc[0]), shared)}"
        for (scaling, _), part in base.groupby(["scaling", "ranks"], sort=False)
    ]


def _over(seeds: int) -> str:
    return f" (harmonic mean of {seeds} seeds)" if seeds > 1 else " (one seed)"


def _crowd(ranks: int, shared: dict[int, int]) -> str:
    return f"; more ranks than cores ({shared[ranks]})" if ranks in shared else ""
