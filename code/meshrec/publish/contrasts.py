"""Runs → contrasts: each comparison named in the experiment file, on every metric, at every rank count and scaling."""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from meshrec.experiment import Experiment
from meshrec.experiment.schema import Metric
from meshrec.publish.files import read_table, write_csv
from meshrec.publish.provenance import changed_runs
from meshrec.stats import (
    Weights,
    adjust,
    contrast_by_seed,
    factorial_weights,
    pair_weights,
    paired_t,
    paired_t_power,
    smallest_n,
    tost_p,
    tost_power,
    verdict,
)

log = logging.getLogger(__name__)

METRICS: tuple[Metric, ...] = get_args(Metric)
LOG_METRICS = ("samples_per_second",)
"""Compared as natural logarithms of ratios, margin included: 1D → 2D and 2D → 1D are then the same distance."""
REDUNDANT = ("logloss",)
"""On one data set logloss is NE times a constant: the same test again. It is estimated, but neither in the exploratory family,
which it would enlarge, nor given a verdict, unless the experiment file lists it as confirmatory."""

COLUMNS = [
    *("comparison", "metric", "ranks", "scaling", "n", "estimate", "ci_low", "ci_high", "p", "p_adjusted", "p_holm", "d_z"),
    *("margin", "p_tost", "verdict", "power", "confirmatory", "sd", "power_tost", "n_needed", "note"),
]


def write_contrasts(experiment: Experiment, results: Path) -> None:
    """Write `results/contrasts.csv` from `results/runs.parquet`.

    One row per comparison × metric × ranks × scaling. `estimate`, `ci_low`, `ci_high`, `sd` and `margin` are in the metric's
    unit, for samples_per_second natural logarithms of ratios. `p_adjusted` is Holm's in the confirmatory family (then also
    `p_holm`), else Benjamini–Hochberg's over all exploratory rows. `power` is that of the paired t to detect a true
    difference of the margin at the spread observed, `power_tost` that of the equivalence test at no true difference,
    `n_needed` the seeds at which both reach 80 %. `note` names the seeds that dropped out and why. Logloss has neither
    `p_adjusted` nor `verdict`, see `REDUNDANT`. `confirmatory` is False everywhere if the analysis section isn't the one that
    the finished runs were made under.

    Raises:
        ResultsError: `runs.parquet` isn't there.
    """
    table = contrasts(experiment, read_table(results, "runs.parquet", "tables"))
    write_csv(table, results / "contrasts.csv")
    log.info("%s: %d comparisons", results / "contrasts.csv", len(table))


def contrasts(experiment: Experiment, runs: pd.DataFrame) -> pd.DataFrame:
    """The table that `write_contrasts` writes, from the `runs` table."""
    analysis = experiment.analysis
    alpha = 1 - analysis.confidence
    changed, _ = changed_runs(experiment, runs)
    announced = {(entry.comparison, entry.metric) for entry in analysis.confirmatory if not changed}
    rows = [row | {"confirmatory": (row["comparison"], row["metric"]) in announced} for row in _rows(experiment, runs)]
    table = pd.DataFrame(rows, columns=[column for column in COLUMNS if column not in ("p_adjusted", "p_holm", "verdict")])
    confirmatory = table["confirmatory"].to_numpy(dtype=bool)
    tested = confirmatory | ~table["metric"].isin(REDUNDANT).to_numpy(dtype=bool)
    table["p_adjusted"] = np.nan
    table.loc[tested, "p_adjusted"] = adjust(table.loc[tested, "p"].to_numpy(dtype=float), confirmatory[tested])
    table["p_holm"] = table["p_adjusted"].where(confirmatory)
    judged = zip(table.to_dict("records"), tested, strict=True)
    table["verdict"] = [_verdict(row, alpha) if is_tested else None for row, is_tested in judged]
    return table[COLUMNS]


def comparisons_at(experiment: Experiment, treatments: set[str]) -> dict[str, Weights]:
    """Comparisons whose treatments (`layout.optimizer`) are all run, by name."""
    analysis = experiment.analysis
    known = factorial_weights(analysis.factorial.layouts, analysis.factorial.optimizers)
    known |= {name: pair_weights(*pair) for name, pair in analysis.pairs.items()}
    return {name: weights for name, weights in known.items() if treatments.issuperset(weights)}


def values_by_seed(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row per seed, one column per treatment, float64; NaN where there is no finished run.

    Speed counts only where ranks were real processes.
    """
    usable = runs["status"] == "ok"
    if metric in LOG_METRICS:
        usable &= runs["execution"] == "ranks"
    values = runs[metric].astype("float64").where(usable)
    if metric in LOG_METRICS:
        values = values.apply(np.log)
    named = runs.assign(treatment=runs["layout"] + "." + runs["optimizer"], value=values)
    return named.pivot(index="seed", columns="treatment", values="value")


def _rows(experiment: Experiment, runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for scaling in experiment.scaling:
        for ranks in experiment.ranks:
            here = runs[(runs["ranks"] == ranks) & (runs["scaling"] == scaling)]
            known = comparisons_at(experiment, set(here["layout"] + "." + here["optimizer"]))
            for metric in METRICS:
                values = values_by_seed(here, metric)
                for name, weights in known.items():
                    place = {"comparison": name, "metric": metric, "ranks": ranks, "scaling": scaling}
                    yield place | _estimate(experiment, metric, values, weights)


def _estimate(experiment: Experiment, metric: Metric, values: pd.DataFrame, weights: Weights) -> dict[str, Any]:
    analysis = experiment.analysis
    differences = np.asarray(contrast_by_seed(values, weights), dtype=np.float64)
    found = paired_t(differences, analysis.confidence)
    row: dict[str, Any] = asdict(found) | {"note": _note(values, weights)}
    margin, alpha = analysis.margins.get(metric), 1 - analysis.confidence
    if margin is not None:
        row |= {"margin": margin, "p_tost": tost_p(differences, margin)}
        row |= _powers(margin, found.sd, found.n, alpha)
    return row


def _powers(margin: float, sd: float, n: int, alpha: float) -> dict[str, Any]:
    row = {"power": paired_t_power(margin, sd, n, alpha), "power_tost": tost_power(margin, sd, n, alpha)}
    if n < 2:
        return row
    needed = smallest_n(lambda seeds: min(paired_t_power(margin, sd, seeds, alpha), tost_power(margin, sd, seeds, alpha)))
    return row | {"n_needed": needed}


def _note(values: pd.DataFrame, weights: Weights) -> str | None:
    """Seeds that dropped out, with the cells that have no value there."""
    used = values[list(weights)]
    lost = used[used.isna().any(axis="columns")]
    seeds = [f"seed {seed} (no {', '.join(row.index[row.isna()])})" for seed, row in lost.iterrows()]
    return f"left out: {'; '.join(seeds)}" if seeds else None


def _verdict(row: dict[Any, Any], alpha: float) -> str:
    if pd.isna(row["margin"]):
        return verdict(row["n"], row["p_adjusted"], None, None, alpha)
    return verdict(row["n"], row["p_adjusted"], row["p_tost"], min(row["power"], row["power_tost"]), alpha)
