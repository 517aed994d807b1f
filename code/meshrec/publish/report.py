"""The report: one HTML file that holds everything it shows."""

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from meshrec.experiment import Experiment
from meshrec.experiment.schema import CriteoDataset
from meshrec.publish import wording
from meshrec.publish.figures import EFFECTS
from meshrec.publish.files import ResultsError, read_table, whole_file
from meshrec.publish.grids import bytes_grids, cell_grids, harmonic_mean, memory_grids, phase_grids
from meshrec.publish.tables import expected_runs

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
TITLES = {"effects_quality": "Effects on quality", "effects_throughput": "Effects on throughput"}
LEVELS = {
    "replicas": "replicas M",
    "rank_order": "rank order",
    "sharding": "sharding",
    "sync": "twins average",
    "sync_every": "every K steps",
    "optimizer_kind": "optimizer",
    "lr": "lr",
    "moment_scale": "moment scale c",
    "eps": "ε",
}
"""Factors that tell the cells apart, as the report heads them."""


def write_report(experiment: Experiment, results: Path) -> Path:
    """Write `results/report.html` from the tables, contrasts, figures and records in `results`; returns its path.

    Raises:
        ResultsError: a table or figure isn't there; the message names the step that writes it.
    """
    html = _template().render(_context(experiment, results))
    path = results / "report.html"
    with whole_file(path) as partial:
        partial.write_text(html, encoding="utf-8")
    log.info("%s: %d kB", path, len(html) // 1000)
    return path


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _context(experiment: Experiment, results: Path) -> dict[str, Any]:
    runs = read_table(results, "runs.parquet", "tables")
    contrasts = read_table(results, "contrasts.csv", "contrasts").to_dict("records")
    return {
        "experiment": experiment,
        "real": isinstance(experiment.dataset, CriteoDataset),
        "data": dict(_data(experiment, runs, results)),
        "environment": environment_of(experiment, results),
        "counts": {status: int((runs["status"] == status).sum()) for status in ("ok", "failed", "missing")},
        "treatments": treatments(runs),
        "base": base_case(experiment, runs),
        "verdicts": verdicts(experiment, contrasts),
        "contrasts": [_contrast_row(row, len(experiment.scaling) > 1) for row in contrasts],
        "figures": [{"title": TITLES[name], "name": name, "png": _embedded(results, name)} for name in EFFECTS],
        "cells": cell_grids(runs),
        "phases": phase_grids(read_table(results, "phases.parquet", "tables")),
        "traffic": bytes_grids(read_table(results, "bytes.parquet", "tables")),
        "memory": memory_grids(read_table(results, "memory.parquet", "tables")),
        "lost": runs.loc[runs["status"] != "ok", ["ranks", "seed", "cell", "status", "reason"]].to_dict("records"),
        "metric_names": wording.METRIC_NAMES,
        "confidence": f"{100 * experiment.analysis.confidence:g} %",
        "equivalence_confidence": f"{200 * experiment.analysis.confidence - 100:g} %",
        "alpha": f"{1 - experiment.analysis.confidence:.4g}",
    }


# --- what was run -----------------------------------------------------------------------------------------------------


def _data(experiment: Experiment, runs: pd.DataFrame, results: Path) -> Iterator[tuple[str, str]]:
    """Identity of the data set, from the records."""
    found = next((run.record.data for run in expected_runs(experiment, results) if run.record and run.record.data), {})
    yield "name", str(found.get("name", experiment.dataset.kind))
    yield "hash", " · ".join(sorted(set(runs["data_hash"].dropna()))) or "unknown: no run has finished"
    for key, label in (("train", "training rows"), ("evaluation", "evaluation rows")):
        if isinstance(found.get(key), int):
            yield label, f"{found[key]:,}"
    used = sorted(set(runs["samples"].dropna()))
    if used:
        yield "training samples used by every run", " · ".join(f"{samples:,}" for samples in used)
    if runs["optimum_ne"].notna().any():
        best = runs[runs["optimum_ne"].notna()].iloc[0]
        yield (
            "quality of the planted click probabilities",
            f"NE {best['optimum_ne']:.4f}, logloss {best['optimum_logloss']:.4f}, AUC {best['optimum_auc']:.4f}",
        )
    for reason, lines in (found.get("rejected") or {}).items():
        yield f"rejected lines: {reason}", f"{lines:,}"


def environment_of(experiment: Experiment, results: Path) -> dict[str, str]:
    """What the finished runs ran on: flat key → value; several values where the runs' machines or code differ."""
    values: dict[str, dict[str, None]] = {}
    for run in expected_runs(experiment, results):
        if run.record and run.status == "ok":
            for key, value in _flat(run.record.environment):
                values.setdefault(key, {})[value] = None
    return {key: " · ".join(found) for key, found in values.items()}


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, entry in value.items():
        if isinstance(entry, dict):
            yield from _flat(entry, f"{prefix}{key} ")
        else:
            text = wording.bytes_text(entry) if key.endswith("_bytes") and entry is not None else str(entry)
            yield (prefix + key).removeprefix("packages ").removesuffix("_bytes").replace("_", " "), text


def treatments(runs: pd.DataFrame) -> list[dict[str, str]]:
    """Settings of every layout.optimizer, as run."""
    distinct = runs.drop_duplicates(["layout", "optimizer"])
    return [
        {"cell": f"{row['layout']}.{row['optimizer']}"} | {label: _level(row[name]) for name, label in LEVELS.items()}
        for row in distinct.to_dict("records")
    ]


def _level(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def base_case(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """Absolute speed of the reference cell at every rank count: what all ratios are ratios of."""
    factorial = experiment.analysis.factorial
    layout, optimizer = factorial.layouts[0], factorial.optimizers[0]
    timed = runs[(runs["status"] == "ok") & (runs["execution"] == "ranks")]
    base = timed[(timed["layout"] == layout) & (timed["optimizer"] == optimizer)]
    return [
        f"{layout}.{optimizer} at {ranks} rank{'s' * (ranks != 1)}, {scaling} scaling: "
        f"{wording.number(harmonic_mean(part['samples_per_second'].to_numpy(dtype=float)), 0)} samples/s "
        f"(harmonic mean of {len(part)} seed{'s' * (len(part) != 1)})"
        for (scaling, ranks), part in base.groupby(["scaling", "ranks"], sort=False)
    ]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def verdicts(experiment: Experiment, contrasts: list[dict[Any, Any]]) -> dict[str, list[dict[str, str]]]:
    """Sentences of the confirmatory family, then of the exploratory comparisons of NE and speed."""
    said: dict[str, list[dict[str, str]]] = {"Confirmatory": [], "Exploratory": []}
    for row in sorted(contrasts, key=lambda row: (row["metric"] != "ne", row["ranks"], row["scaling"])):
        if row["confirmatory"] or row["metric"] in EFFECTS.values():
            family = "Confirmatory" if row["confirmatory"] else "Exploratory"
            said[family].append({"verdict": row["verdict"], "sentence": wording.sentence(experiment, row)})
    return said


def _contrast_row(row: dict[Any, Any], several: bool) -> dict[str, str]:
    """A contrast as the report's table shows it; `several`: whether there is more than one scaling to tell apart."""
    missing_needed = "> 10,000" if row["n"] > 1 and not pd.isna(row["margin"]) else "–"
    return {
        "comparison": row["comparison"],
        "metric": wording.METRIC_NAMES[row["metric"]],
        "ranks": str(row["ranks"]),
        **({"scaling": row["scaling"]} if several else {}),
        "change [interval]": wording.estimate_text(row),
        "verdict": row["verdict"],
        "n": str(row["n"]),
        "d_z": wording.number(row["d_z"], 2, sign=True),
        "p": wording.p_text(row["p"]),
        "adjusted p": wording.p_text(row["p_adjusted"]),
        "margin": wording.margin_text(row),
        "TOST p": wording.p_text(row["p_tost"]),
        "power": wording.number(row["power"], 2),
        "power of TOST": wording.number(row["power_tost"], 2),
        "seeds for 80 %": missing_needed if pd.isna(row["n_needed"]) else f"{row['n_needed']:,.0f}",
        "family": "confirmatory" if row["confirmatory"] else "exploratory",
        "note": "" if pd.isna(row["note"]) else row["note"],
    }


def _embedded(results: Path, name: str) -> str:
    """A figure's PNG as base64."""
    path = results / "figures" / f"{name}.png"
    if not path.is_file():
        raise ResultsError(f"{path}: not found; `meshrec figures` writes it")
    return base64.b64encode(path.read_bytes()).decode("ascii")
