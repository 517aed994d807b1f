"""One run: a cell trained in one pass, evaluated, and summed up in a record."""

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch.distributed as dist

from meshrec.data.store import Store
from meshrec.embeddings.plan import Plan
from meshrec.experiment.cells import Cell
from meshrec.experiment.record import Hashes, RunRecord
from meshrec.measure.allocator import return_freed_memory
from meshrec.measure.memory import analytic_memory, peak_rss_bytes, reset_peak_rss
from meshrec.mesh.device import peak_allocated_bytes, reset_peak
from meshrec.mesh.groups import MeshPool
from meshrec.train import summary
from meshrec.train.accounting import analytic_traffic, component_bytes
from meshrec.train.evaluate import evaluate
from meshrec.train.initial import dense_digest, tables_digest
from meshrec.train.live import check_live, live_moment_scale
from meshrec.train.loop import train
from meshrec.train.setup import local_twins
from meshrec.train.trainer import Trainer

log = logging.getLogger(__name__)


def run_cell(
    cell: Cell, store: Store, meshes: MeshPool, plan: Plan, checkpoints: Path, environment: dict[str, Any]
) -> RunRecord | None:
    """Train and evaluate one cell; collective over all ranks of the launch.

    Args:
        cell: what is run.
        store: its data.
        meshes: of the launch.
        plan: who holds what, the same on all ranks.
        checkpoints: folder of this cell's checkpoints.
        environment: versions and hardware, for the record.

    Returns:
        The record on rank 0, None on the others.

    Raises:
        RunDiverged: on every rank alike.
        LiveMismatch: the wrapped objects are not what the cell asks for.
    """
    started, clock_start = datetime.now(UTC), time.perf_counter()
    trainer = Trainer(cell, meshes, plan)
    rank = trainer.mesh.rank
    rows, dims = cell.experiment.dataset.rows_of_tables, cell.experiment.model.dims_of_tables
    with trainer.embeddings.whole_shards():
        live = trainer.live()
        digests = tables_digest(trainer.embeddings), dense_digest(trainer.dense.flat, rows, dims)
    check_live(cell, plan, rank, live)
    return_freed_memory()  # so that the peak is this run's own, and its set-up no part of it
    reset_peak_rss()
    reset_peak(trainer.mesh.device)
    set_up = time.perf_counter()

    done = train(trainer, store, checkpoints)
    check_live(cell, plan, rank, trainer.live() | {"initial_moment": live["initial_moment"]})
    memory = _memory(trainer)  # before evaluation, whose batches are larger
    trained = time.perf_counter()

    quality = evaluate(trainer, store.evaluation, cell.experiment.training.eval_batch)
    evaluated = time.perf_counter()
    own = summary.RankSummary(
        replica=trainer.mesh.replica,
        tables_digest=digests[0],
        dense_digest=digests[1],
        order_digest=done.order_digest,
        live=live,
        losses=done.losses,
        step_seconds=done.clock.step_seconds,
        phase_seconds=done.clock.seconds,
        traffic=trainer.ledger.entries,
        analytic_traffic=analytic_traffic(trainer, done.losses.size),
        memory=memory,
        analytic_memory=analytic_memory(trainer.shape(), _dense_state(cell), trainer.stored_over, local_twins(cell)),
    )
    ranks = _gather(own)
    if ranks is None:
        return None
    warmup = cell.experiment.training.warmup_steps
    return RunRecord(
        **identity(cell, store),
        status="ok",
        hashes=Hashes(
            init=summary.init_hash(ranks),
            order=summary.order_hash(ranks),
            plan=plan.hash,
            data=store.manifest.data_hash,
        ),
        live={**live, "moment_scale": live_moment_scale(cell, live), "ranks": len(ranks)},
        metrics=summary.metrics(ranks, quality, len(store.evaluation), cell.global_batch, warmup),
        phases=summary.phases(ranks, warmup),
        traffic=summary.traffic(ranks),
        memory=summary.memory(ranks),
        environment=environment | {"device": trainer.mesh.device.type, "backend": dist.get_backend(), "threads_per_rank": 1},
        stages={"set_up": set_up - clock_start, "train": trained - set_up, "evaluate": evaluated - trained},
        started_at=started.isoformat(timespec="seconds"),
        wall_seconds=time.perf_counter() - clock_start,
    )


def failed_record(cell: Cell, store: Store, environment: dict[str, Any], reason: str) -> RunRecord:
    """The record of a run that ended without a result."""
    return RunRecord(
        **identity(cell, store),
        status="failed",
        reason=reason,
        environment=environment,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_seconds=0.0,
    )


def identity(cell: Cell, store: Store) -> dict[str, Any]:
    """Fields of a record that are known before the run."""
    manifest = store.manifest
    return {
        "experiment": cell.experiment.name,
        "ranks": cell.ranks,
        "seed": cell.seed,
        "cell": cell.name,
        "factors": cell.factors,
        "settings": cell.settings,
        "settings_hash": cell.settings_hash,
        "analysis_hash": cell.analysis_hash,
        "data": {
            "kind": manifest.kind,
            "name": manifest.name,
            "hash": manifest.data_hash,
            "train": manifest.train,
            "evaluation": manifest.evaluation,
            "rejected": manifest.rejected,
            "optimum": manifest.optimum.model_dump() if manifest.optimum else None,
        },
    }


def _memory(trainer: Trainer) -> dict[str, int]:
    peaks = {"peak_rss": peak_rss_bytes(), "peak_allocated": peak_allocated_bytes(trainer.mesh.device)}
    return component_bytes(trainer) | {name: peak for name, peak in peaks.items() if peak is not None}


def _dense_state(cell: Cell) -> int:
    """Numbers that the dense optimizer keeps for a parameter."""
    return 1 if cell.experiment.training.dense_optimizer.kind == "adagrad" else 0


def _gather(own: summary.RankSummary) -> list[summary.RankSummary] | None:
    """All ranks' summaries on rank 0."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.gather_object(own, gathered if dist.get_rank() == 0 else None, dst=0)
    return gathered if dist.get_rank() == 0 else None
