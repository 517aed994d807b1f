"""Figures, and beside each the table of exactly the numbers in it."""

import logging
from pathlib import Path

import pandas as pd

from meshrec.experiment import Experiment
from meshrec.publish.captions import optimum_of
from meshrec.publish.effects import Panel, draw_effects
from meshrec.publish.files import read_table, write_csv
from meshrec.publish.style import save, styled

log = logging.getLogger(__name__)

EFFECTS = {"effects_quality": "ne", "effects_throughput": "samples_per_second"}
"""Effect figures and the metric of each."""


def write_figures(experiment: Experiment, results: Path, out: Path) -> None:
    """Draw all figures from `runs.parquet` and `contrasts.csv` in `results` into the folder `out`.

    `effects_quality` and `effects_throughput`, each as .pdf, .png and .csv.

    Raises:
        ResultsError: a table isn't there.
    """
    runs = read_table(results, "runs.parquet", "tables")
    contrasts = read_table(results, "contrasts.csv", "contrasts")
    for name, metric in EFFECTS.items():
        panels = panels_of(experiment, runs, contrasts, metric)
        with styled():
            save(draw_effects(experiment, metric, panels), out, name)
        write_csv(pd.concat([panel.table() for panel in panels], ignore_index=True), out / f"{name}.csv")
        log.info("%s", out / f"{name}.pdf")


def panels_of(experiment: Experiment, runs: pd.DataFrame, contrasts: pd.DataFrame, metric: str) -> list[Panel]:
    """Rows of the effect figure of a metric, from the tables of runs and contrasts."""
    return [
        _panel(experiment, runs, contrasts, metric, ranks, scaling)
        for scaling in experiment.scaling
        for ranks in experiment.ranks
    ]


def _panel(experiment: Experiment, runs: pd.DataFrame, contrasts: pd.DataFrame, metric: str, ranks: int, scaling: str) -> Panel:
    factorial = experiment.analysis.factorial
    here = runs[(runs["ranks"] == ranks) & (runs["scaling"] == scaling)]
    shown = here[here["layout"].isin(factorial.layouts) & here["optimizer"].isin(factorial.optimizers)]
    finished = shown[(shown["status"] == "ok") & shown[metric].notna()]
    effects = contrasts[(contrasts["metric"] == metric) & (contrasts["ranks"] == ranks) & (contrasts["scaling"] == scaling)]
    return Panel(ranks, scaling, metric, finished[["layout", "optimizer", "seed", metric]], effects, optimum_of(runs, metric))
