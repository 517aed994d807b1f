"""Run records with planted effects, built through the schema."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshrec.experiment import Cell, Experiment, blocks, load_experiment
from meshrec.experiment.record import Hashes, Memory, Metrics, Phase, RunRecord, Traffic, write_json, write_record

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "smoke.yaml"

ENVIRONMENT = {
    "python": "3.11.2",
    "packages": {"meshrec": "0.1.0", "torch": "2.13.0+cpu", "fbgemm-gpu-cpu": "1.8.0", "numpy": "2.4.6"},
    "commit": "0123456789ab",
    "system": "Linux x86_64",
    "cpu": "Example CPU @ 2.00GHz",
    "cores": 4,
    "memory_bytes": 16 * 2**30,
    "device": "cpu",
    "backend": "gloo",
    "threads_per_rank": 1,
}


def smoke(seeds: int = 3) -> Experiment:
    """The committed smoke experiment with so many seeds."""
    return load_experiment(EXPERIMENT).model_copy(update={"seeds": list(range(seeds))})


def with_analysis(experiment: Experiment, **changes: Any) -> Experiment:
    """The experiment with another analysis section."""
    return experiment.model_copy(update={"analysis": experiment.analysis.model_copy(update=changes)})


@dataclass
class Planted:
    """True effects. Of the 2D layout and of the scaled optimizer, on NE and on log samples/s, and the noise around them."""

    ne_layout: float = 0.0
    ne_optimizer: float = 0.0
    ne_interaction: float = 0.0
    log_speed_layout: float = 0.0
    ne_noise: float = 0.001
    speed_noise: float = 0.02
    change: Callable[[RunRecord], RunRecord | None] = field(default=lambda record: record)
    """Last word on every record; None leaves it out."""

    def write(self, experiment: Experiment, results: Path) -> None:
        """Write all records, and block.json beside them as the trainer does."""
        for block in blocks(experiment):
            folder = results / "blocks" / block.name
            for cell in block.cells:
                record = self.change(self.record(cell))
                if record is not None:
                    write_record(folder / f"{cell.name}.json", record)
            write_json(folder / "block.json", {"order": [cell.name for cell in block.cells]})

    def record(self, cell: Cell) -> RunRecord:
        """A finished run of one cell."""
        rng = np.random.default_rng([cell.seed, cell.ranks, *cell.name.encode()])
        layout, scaled = cell.layout == "2d", cell.optimizer == "scaled"
        seed_effect = float(np.random.default_rng(cell.seed).normal(0, 0.01))
        ne = 0.85 + seed_effect + self.ne_layout * layout + self.ne_optimizer * scaled
        ne += self.ne_interaction * (layout and scaled) + rng.normal(0, self.ne_noise)
        speed = 20_000 * cell.ranks**0.8 * np.exp(self.log_speed_layout * layout + rng.normal(0, self.speed_noise))
        return RunRecord(
            experiment=cell.experiment.name,
            ranks=cell.ranks,
            seed=cell.seed,
            cell=cell.name,
            status="ok",
            factors=cell.factors,
            settings=cell.settings,
            settings_hash=cell.settings_hash,
            analysis_hash=cell.analysis_hash,
            hashes=Hashes(init=f"init{cell.seed}", order=f"order{cell.seed}", plan=f"plan{cell.shards}", data="d" * 64),
            metrics=_metrics(cell, float(ne), float(speed)),
            phases={name: _phase(share * cell.global_batch / speed) for name, share in (("lookup", 0.6), ("update", 0.3))},
            traffic=_traffic(cell),
            memory=_memory(cell),
            stages={"set_up": 1.0, "train": 2.0 + cell.ranks, "evaluate": 0.5},
            environment=ENVIRONMENT,
            data={
                "kind": "synthetic",
                "name": "synthetic",
                "hash": "d" * 64,
                "train": 102400,
                "evaluation": 32768,
                "rejected": {},
                "optimum": {"logloss": 0.45, "ne": 0.80, "auc": 0.81},
            },
            started_at="2026-01-02T03:04:05+00:00",
            wall_seconds=12.5,
        )


def failed(record: RunRecord, reason: str = "rank 1: RuntimeError: loss is not finite at step 7") -> RunRecord:
    """The same run, had it failed."""
    nothing = {"hashes": None, "metrics": None, "phases": {}, "traffic": {}, "memory": {}}
    return record.model_copy(update={"status": "failed", "reason": reason, **nothing})


def _metrics(cell: Cell, ne: float, speed: float) -> Metrics:
    steps = 102400 // cell.global_batch
    return Metrics(
        samples=102400,
        eval_samples=32768,
        logloss=ne * 0.5623,
        ne=ne,
        auc=1.2 - 0.5 * ne,
        train_loss=ne * 0.55,
        steps=steps,
        timed_steps=steps - 5,
        step_seconds=cell.global_batch / speed,
        samples_per_second=speed,
    )


def _phase(seconds: float) -> Phase:
    return Phase(mean=seconds, max=1.2 * seconds, p50=0.95 * seconds, p95=1.5 * seconds)


def _traffic(cell: Cell) -> dict[str, Traffic]:
    sent = 4.0 * 16 * 26 * cell.global_batch / cell.ranks * (1 - 1 / cell.shards)
    found = {"output_exchange": Traffic(dimension="shard", calls=1, counted=sent, analytic=sent)}
    if cell.layout_level.replicas > 1:
        found["sync_average"] = Traffic(dimension="replicate", calls=1, counted=1.5e6, analytic=1.5e6)
    return found


def _memory(cell: Cell) -> dict[str, Memory]:
    tables = 26 * 20000 * 16 * 4 / cell.shards
    return {
        "tables": Memory(measured_mean=tables, measured_max=tables, analytic_mean=tables, analytic_max=tables),
        "process_peak": Memory(measured_mean=9e8, measured_max=9.5e8),
    }
