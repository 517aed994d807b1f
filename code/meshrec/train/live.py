"""Compares what is really there with what the cell asks for: nothing that a record says is taken from the settings alone."""

import math
from typing import Any

from meshrec.embeddings.adagrad import kernel_optimizer
from meshrec.embeddings.plan import make_plan
from meshrec.experiment.cells import Cell
from meshrec.experiment.schema import MomentScaledRowwiseAdagrad
from meshrec.mesh.layout import MeshLayout

_KERNELS = {
    "fbgemm": "fbgemm_gpu.SplitTableBatchedEmbeddingBagsCodegen",
    "torch": "meshrec.embeddings.kernels.reference.TorchTables",
}


class LiveMismatch(RuntimeError):
    """The live objects are not what the cell asks for. The message names each difference."""


def check_live(cell: Cell, rank: int, live: dict[str, Any]) -> None:
    """Compare the live state of one rank with its cell.

    Raises:
        LiveMismatch: with every field that differs, what was found and what was wanted.
    """
    wanted = expected_live(cell, rank)
    different = [
        f"{field}: found {live.get(field)!r}, want {value!r}"
        for field, value in wanted.items()
        if not _same(live.get(field), value)
    ]
    if different:
        raise LiveMismatch(f"cell {cell.name}, rank {rank}: live objects differ from the cell: " + "; ".join(different))


def expected_live(cell: Cell, rank: int) -> dict[str, Any]:
    """What the live objects of one rank must say, from the cell alone."""
    level, optimizer = cell.layout_level, kernel_optimizer(cell.optimizer_level)
    layout = MeshLayout(cell.ranks, level.replicas, level.rank_order)
    dense = cell.experiment.training.dense_optimizer
    plan = make_plan(cell.experiment.dataset.rows_of_tables, cell.shards, level.sharding)
    return {
        "kernel": _KERNELS[cell.experiment.training.kernel],
        "optimizer": {"sgd": "EXACT_SGD", "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD"}[optimizer.kind],
        "lr": optimizer.lr,
        # SGD's kernel has an ε of its own that it never uses
        **({"eps": optimizer.eps, "initial_moment": optimizer.initial_moment} if optimizer.has_moments else {}),
        "sharding_group": next(group for group in layout.sharding_groups() if rank in group),
        "replica_group": next(group for group in layout.replica_groups() if rank in group),
        "rows_held": sum(shard.rows for shard in plan.of(layout.coordinates(rank)[1])),
        "weight_dtype": "float32",
        "replicas": level.replicas,
        "shards": cell.shards,
        "sync": level.sync if level.replicas > 1 else None,
        "sync_every": level.sync_every if level.replicas > 1 else None,
        "dense_optimizer": {"sgd": "SGD", "adagrad": "Adagrad"}[dense.kind],
        "dense_lr": dense.lr,
    }


def live_moment_scale(cell: Cell, live: dict[str, Any]) -> float | None:
    """c as the live learning rate implies it; None for an optimizer without c."""
    if not isinstance(cell.optimizer_level, MomentScaledRowwiseAdagrad):
        return None
    return float((live["lr"] / cell.optimizer_level.lr) ** 2)


def _same(found: Any, wanted: Any) -> bool:
    """Equal; numbers up to the float32 in which kernels keep them."""
    if isinstance(wanted, float) and isinstance(found, int | float):
        return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-30)
    return bool(found == wanted)
