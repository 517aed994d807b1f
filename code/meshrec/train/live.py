"""Compares what is really there with what the cell asks for: nothing that a record says is taken from the settings alone."""

import math
from typing import Any

from meshrec.embeddings.optimizers import row_optimizer
from meshrec.embeddings.plan import Plan
from meshrec.experiment.cells import Cell
from meshrec.experiment.schema import MomentScaledRowwiseAdagrad
from meshrec.train.setup import is_virtual, local_twins, mesh_layout

_KERNELS = {
    "fbgemm": "fbgemm_gpu.SplitTableBatchedEmbeddingBagsCodegen",
    "numba": "meshrec.embeddings.kernels.compiled.NumbaTables",
    "torch": "meshrec.embeddings.kernels.reference.TorchTables",
}


class LiveMismatch(RuntimeError):
    """The live objects are not what the cell asks for. The message names each difference."""


def check_live(cell: Cell, plan: Plan, rank: int, live: dict[str, Any]) -> None:
    """Compare the live state of one rank with its cell.

    Raises:
        LiveMismatch: with every field that differs, what was found and what was wanted.
    """
    wanted = expected_live(cell, plan, rank)
    different = [
        f"{field}: found {live.get(field)!r}, want {value!r}"
        for field, value in wanted.items()
        if not _same(live.get(field), value)
    ]
    if different:
        raise LiveMismatch(f"cell {cell.name}, rank {rank}: live objects differ from the cell: " + "; ".join(different))


def expected_live(cell: Cell, plan: Plan, rank: int) -> dict[str, Any]:
    """What the live objects of one rank must say, from the cell and the plan of its tables alone."""
    level, optimizer = cell.layout_level, row_optimizer(cell.optimizer_level)
    layout = mesh_layout(cell)
    dense = cell.experiment.training.dense_optimizer
    return {
        "kernel": _KERNELS[cell.experiment.training.kernel],
        "optimizer": f"EXACT_{optimizer.kind.upper()}",
        "lr": optimizer.lr,
        # SGD's kernel has an ε of its own that it never uses
        **({"eps": optimizer.eps, "initial_moment": optimizer.initial_moment} if optimizer.has_moments else {}),
        "sharding_group": next(group for group in layout.sharding_groups() if rank in group),
        "replica_group": next(group for group in layout.replica_groups() if rank in group),
        "rows_held": plan.rows_held(layout.coordinates(rank)[1]),
        "weight_dtype": "float32",
        "replicas": level.replicas,
        "local_twins": local_twins(cell),
        "shards": 1 if is_virtual(cell) else cell.shards,
        **{key: getattr(level, key) if level.replicas > 1 else None for key in ("sync", "sync_every", "sync_moments")},
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
