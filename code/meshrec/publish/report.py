"""The report: one HTML file that holds everything it shows."""

import base64
import io
import logging
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from meshrec.experiment import Experiment
from meshrec.experiment.schema import CriteoDataset
from meshrec.publish import wording
from meshrec.publish.brief import in_brief
from meshrec.publish.captions import caption, optimum_of
from meshrec.publish.effects import draw_effects
from meshrec.publish.figures import EFFECTS, panels_of
from meshrec.publish.files import ResultsError, read_table, whole_file
from meshrec.publish.grids import bytes_grids, cell_grids, memory_grids, phase_grids
from meshrec.publish.predictions import moment_note
from meshrec.publish.provenance import analysis_text, changed_runs, crowd_text, crowded, listing
from meshrec.publish.setting import base_case, data_of, environment_of, treatments
from meshrec.publish.style import styled
from meshrec.publish.tables import expected_runs

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
TITLES = {"effects_quality": "Effects on quality", "effects_throughput": "Effects on throughput"}
SCREEN_DPI = 250


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
    contrasts = read_table(results, "contrasts.csv", "contrasts")
    return {
        "experiment": experiment,
        "real": isinstance(experiment.dataset, CriteoDataset),
        **_head(experiment, results, runs),
        **_compared(experiment, runs, contrasts.to_dict("records")),
        "figures": [_figure(experiment, results, runs, contrasts, name) for name in EFFECTS],
        "cells": cell_grids(runs),
        "phases": phase_grids(read_table(results, "phases.parquet", "tables")),
        "traffic": bytes_grids(read_table(results, "bytes.parquet", "tables")),
        "memory": memory_grids(read_table(results, "memory.parquet", "tables")),
        "lost": runs.loc[runs["status"] != "ok", ["ranks", "seed", "cell", "status", "reason"]].to_dict("records"),
        "confidence": f"{100 * experiment.analysis.confidence:g} %",
        "equivalence_confidence": f"{200 * experiment.analysis.confidence - 100:g} %",
        "alpha": f"{1 - experiment.analysis.confidence:.4g}",
        "listing": listing(experiment),
    }


def _head(experiment: Experiment, results: Path, runs: pd.DataFrame) -> dict[str, Any]:
    """What was run, on what."""
    records = [run.record for run in expected_runs(experiment, results) if run.record]
    cells, same = treatments(experiment, runs)
    return {
        "data": data_of(experiment, runs, records),
        "data_hashes": sorted(set(runs["data_hash"].dropna())),
        "environment": environment_of([record for record in records if record.status == "ok"]),
        "counts": {status: int((runs["status"] == status).sum()) for status in ("ok", "failed", "missing")},
        "treatments": cells,
        "same_levels": same,
        "base": base_case(experiment, runs),
        "crowds": [crowd_text(*place) for place in crowded(runs).items()],
    }


def _compared(experiment: Experiment, runs: pd.DataFrame, contrasts: list[dict[Any, Any]]) -> dict[str, Any]:
    """What the comparisons say."""
    return {
        "brief": in_brief(experiment, contrasts, runs),
        "analysis": analysis_text(experiment, runs),
        "analysis_changed": changed_runs(experiment, runs)[0] > 0,
        "margins": wording.margins_text(experiment),
        "moment_note": moment_note(experiment),
        "verdicts": verdicts(experiment, contrasts, crowded(runs)),
        "contrasts": [_contrast_row(row, len(experiment.scaling) > 1) for row in contrasts],
    }


# --- verdicts ---------------------------------------------------------------------------------------------------------


def verdicts(
    experiment: Experiment, contrasts: list[dict[Any, Any]], crowds: dict[int, int]
) -> dict[str, list[dict[str, str]]]:
    """Sentences of the confirmatory family, then of the exploratory comparisons of NE and speed."""
    said: dict[str, list[dict[str, str]]] = {"Confirmatory": [], "Exploratory": []}
    for row in sorted(contrasts, key=lambda row: (row["metric"] != "ne", row["ranks"], row["scaling"])):
        if row["confirmatory"] or row["metric"] in EFFECTS.values():
            family = "Confirmatory" if row["confirmatory"] else "Exploratory"
            shared = row["metric"] == "samples_per_second" and row["ranks"] in crowds
            remark = f"(More ranks than cores: {row['ranks']} on {crowds[row['ranks']]}.)" if shared else ""
            sentence = wording.sentence(experiment, row)
            said[family].append({"verdict": row["verdict"], "sentence": sentence, "remark": remark})
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
        "verdict": wording.verdict_text(row),
        "family": "confirmatory" if row["confirmatory"] else "–" if pd.isna(row["verdict"]) else "exploratory",
        "n": str(row["n"]),
        "adjusted p": wording.p_text(row["p_adjusted"]),
        "TOST p": wording.p_text(row["p_tost"]),
        "power": wording.number(wording.lower_power(row), 2),
        "seeds for 80 %": missing_needed if pd.isna(row["n_needed"]) else f"{row['n_needed']:,.0f}",
        "p": wording.p_text(row["p"]),
        "d_z": wording.number(row["d_z"], 2, sign=True),
        "note": "" if pd.isna(row["note"]) else row["note"],
    }


# --- figures ----------------------------------------------------------------------------------------------------------


def _figure(experiment: Experiment, results: Path, runs: pd.DataFrame, contrasts: pd.DataFrame, name: str) -> dict[str, str]:
    """The figure that `meshrec figures` wrote, drawn anew for a screen as narrow as a phone's, with its caption as text."""
    path = results / "figures" / f"{name}.csv"
    if not path.is_file():
        raise ResultsError(f"{path}: not found; `meshrec figures` writes it")
    metric, image = EFFECTS[name], io.BytesIO()
    with styled():
        figure = draw_effects(experiment, metric, panels_of(experiment, runs, contrasts, metric), narrow=True)
        figure.savefig(image, format="png", dpi=SCREEN_DPI, metadata={"Software": None})
    text = caption(experiment, metric, optimum_of(runs, metric))
    return {"title": TITLES[name], "name": name, "caption": text, "png": base64.b64encode(image.getvalue()).decode("ascii")}
