"""Run records → tidy tables: one row per run, and per run × phase, collective or memory component."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from meshrec.experiment import Cell, Experiment, blocks
from meshrec.experiment.record import RunRecord, read_record
from meshrec.publish.files import ResultsError, write_table

log = logging.getLogger(__name__)

PLACE = {"experiment": "str", "ranks": "Int64", "seed": "Int64", "cell": "str"}
FACTORS = {
    "layout": "str",
    "replicas": "Int64",
    "rank_order": "str",
    "sharding": "str",
    "sync": "str",
    "sync_every": "Int64",
    "sync_moments": "str",
    "sync_rows": "str",
    "sync_overlap": "boolean",
    "replica_storage": "str",
    "optimizer": "str",
    "optimizer_kind": "str",
    "moment_scale": "Float64",
    "eps": "Float64",
    "eps_placement": "str",
    "lr": "Float64",
    "beta": "Float64",
    "scaling": "str",
    "global_batch": "Int64",
    "dataset": "str",
    "execution": "str",
}
METRICS = {
    "samples": "Int64",
    "eval_samples": "Int64",
    "logloss": "Float64",
    "ne": "Float64",
    "auc": "Float64",
    "train_loss": "Float64",
    "steps": "Int64",
    "timed_steps": "Int64",
    "samples_per_second": "Float64",
    "step_seconds": "Float64",
}
OPTIMUM = {"optimum_logloss": "Float64", "optimum_ne": "Float64", "optimum_auc": "Float64"}
HASHES = ("init", "order", "plan", "data")
RUN_COLUMNS = {
    **PLACE,
    **FACTORS,
    "status": "str",
    "reason": "str",
    **METRICS,
    **OPTIMUM,
    **{f"{name}_hash": "str" for name in HASHES},
    "settings_hash": "str",
    "analysis_hash": "str",
    "device": "str",
    "cores": "Int64",
    **dict.fromkeys(("set_up_seconds", "train_seconds", "evaluate_seconds", "wall_seconds"), "Float64"),
    "started_at": "str",
}
PART_COLUMNS = {**PLACE, "layout": "str", "optimizer": "str", "scaling": "str", "global_batch": "Int64"}
"""What identifies the run in the tables of its parts."""
PHASE_COLUMNS = {"phase": "str"} | dict.fromkeys(("mean", "max", "p50", "p95"), "Float64")
BYTES_COLUMNS = {"collective": "str", "dimension": "str"} | dict.fromkeys(("calls", "counted", "analytic"), "Float64")
MEMORY_COLUMNS = {"component": "str"} | dict.fromkeys(
    ("measured_mean", "measured_max", "analytic_mean", "analytic_max"), "Float64"
)


class PairingError(ValueError):
    """Runs that are compared seed by seed didn't start from the same weights or didn't see the same samples."""


@dataclass(frozen=True)
class Run:
    """A run that the experiment expects, and its record where there is one."""

    cell: Cell
    path: Path
    record: RunRecord | None

    @property
    def block(self) -> str:
        """`ranks-seed`."""
        return f"{self.cell.ranks}-{self.cell.seed}"

    @property
    def status(self) -> str:
        """`ok`, `failed` or `missing`."""
        return self.record.status if self.record else "missing"


def write_tables(experiment: Experiment, results: Path) -> None:
    """Write `runs`, `phases`, `bytes` and `memory`, each as .parquet and .csv, into `results` (`results/<experiment>`).

    A run without a record is a row with status `missing`.

    Raises:
        RecordError: a damaged record.
        ResultsError: a record of another run or of other settings, or a finished one without results.
        PairingError: hashes that must be equal for runs to be compared are not.
    """
    runs = expected_runs(experiment, results)
    check_pairing(runs)
    write_table(_typed([_run_row(run) for run in runs], RUN_COLUMNS), results, "runs")
    for name, columns, parts in (
        ("phases", PHASE_COLUMNS, lambda record: _rows("phase", record.phases)),
        ("bytes", BYTES_COLUMNS, lambda record: _rows("collective", record.traffic)),
        ("memory", MEMORY_COLUMNS, lambda record: _rows("component", record.memory)),
    ):
        write_table(_typed(_part_rows(runs, parts), PART_COLUMNS | columns), results, name)
    counts = {status: sum(run.status == status for run in runs) for status in ("ok", "failed", "missing")}
    log.info("%s: %s", results, ", ".join(f"{count} {status}" for status, count in counts.items()))


def expected_runs(experiment: Experiment, results: Path) -> list[Run]:
    """Every run of the experiment in the order of its blocks and of its file, checked against its record."""
    runs = []
    for block in blocks(experiment):
        for cell in sorted(block.cells, key=_file_order):
            path = results / "blocks" / block.name / f"{cell.name}.json"
            runs.append(Run(cell, path, _read(path, cell) if path.exists() else None))
    return runs


def _file_order(cell: Cell) -> tuple[int, ...]:
    """Place of a cell's levels in the experiment file; the block itself is shuffled."""
    experiment = cell.experiment
    levels = ((experiment.scaling, cell.scaling), (experiment.layouts, cell.layout), (experiment.optimizers, cell.optimizer))
    return tuple(list(known).index(level) for known, level in levels)


def _read(path: Path, cell: Cell) -> RunRecord:
    record = read_record(path)
    for field, wanted in (
        ("experiment", cell.experiment.name),
        ("ranks", cell.ranks),
        ("seed", cell.seed),
        ("cell", cell.name),
        ("settings_hash", cell.settings_hash),
    ):
        found = getattr(record, field)
        if found != wanted:
            raise ResultsError(
                f"{path}: {field}: found {found!r}, want {wanted!r}: it is the record of another run, or the experiment file "
                "has changed since; delete it and run its block again"
            )
    if record.status == "ok" and (record.metrics is None or record.hashes is None):
        raise ResultsError(f"{path}: status is ok but metrics or hashes are missing; delete it and run its block again")
    return record


# --- pairing ----------------------------------------------------------------------------------------------------------


def check_pairing(runs: list[Run]) -> None:
    """All finished runs of a seed, at any rank count, must share their initial weights, sample order and data.

    Raises:
        PairingError: the first hash that differs, with the blocks and cells on each side.
    """
    for seed in dict.fromkeys(run.cell.seed for run in runs):
        finished = [run for run in runs if run.cell.seed == seed and run.status == "ok"]
        for block in dict.fromkeys(run.block for run in finished):
            _same_hashes(f"block {block}", [run for run in finished if run.block == block])
        _same_hashes(f"seed {seed}", finished)
    _same_hashes("experiment", [run for run in runs if run.status == "ok"], names=("data",))


def _same_hashes(scope: str, runs: list[Run], names: tuple[str, ...] = ("init", "order", "data")) -> None:
    for name in names:
        holders: dict[str, list[str]] = {}
        for run in runs:
            if run.record and run.record.hashes:
                holders.setdefault(getattr(run.record.hashes, name), []).append(f"{run.block}/{run.cell.name}")
        if len(holders) > 1:
            sides = "; ".join(f"{value}: {', '.join(where)}" for value, where in holders.items())
            raise PairingError(
                f"{scope}: {name} hashes differ, so its runs can't be compared ({sides}); "
                "delete the records that are not of this code and data and run their blocks again"
            )


# --- rows -------------------------------------------------------------------------------------------------------------


def _run_row(run: Run) -> dict[str, Any]:
    record = run.record
    row = _place(run) | {"status": run.status, "settings_hash": run.cell.settings_hash}
    if record is None:
        return row | run.cell.factors
    row |= {name: record.factors.get(name) for name in FACTORS}
    row |= {name: getattr(record, name) for name in ("reason", "analysis_hash", "wall_seconds", "started_at")}
    row |= {name: record.environment.get(name) for name in ("device", "cores")}
    row |= {f"{stage}_seconds": seconds for stage, seconds in record.stages.items()}
    row |= {f"optimum_{name}": value for name, value in (record.data.get("optimum") or {}).items()}
    if record.hashes:
        row |= {f"{name}_hash": getattr(record.hashes, name) for name in HASHES}
    if record.metrics:
        row |= {name: getattr(record.metrics, name) for name in METRICS}
    return row


def _place(run: Run) -> dict[str, Any]:
    cell = run.cell
    return {"experiment": cell.experiment.name, "ranks": cell.ranks, "seed": cell.seed, "cell": cell.name}


def _part_rows(runs: list[Run], parts: Callable[[RunRecord], Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of one part of all records; what a failed run measured before it failed is not mixed with the others."""
    return [
        _place(run) | {name: run.record.factors.get(name) for name in PART_COLUMNS if name not in PLACE} | part
        for run in runs
        if run.record and run.status == "ok"
        for part in parts(run.record)
    ]


def _rows(key: str, parts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, part in parts.items():
        yield {key: name, **part.model_dump()}


def _typed(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    """Exactly these columns with these dtypes, also where a column or the whole table is empty."""
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)
