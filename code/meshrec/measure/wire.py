"""Bytes that a rank sends in one training step, by formula: what the ledger's counts are compared with.

Bandwidth-optimal collectives are assumed, as they are for the counts: an all-reduce of S bytes over n ranks sends 2(n−1)/n·S
from each, an all-gather of s bytes a rank (n−1)·s, an all-to-all everything but a rank's own part.
"""

from dataclasses import dataclass
from typing import Literal

FLOAT_BYTES = 4
ID_BYTES = 4
COUNT_BYTES = 8


@dataclass(frozen=True)
class StepShape:
    """The sizes of one rank's step."""

    ranks: int
    """T."""
    replicas: int
    """M."""
    shards: int
    """N."""
    rank_batch: int
    """b: samples a rank."""
    features: int
    """F: embedding tables."""
    all_shards: int
    """Table shards in a group: 26 with whole tables, 26·N with rows split over all N ranks."""
    own_shards: int
    """Table shards on this rank."""
    dim: int
    """D."""
    dense_parameters: int
    """P."""
    moments: bool
    """Whether the optimizer keeps a second moment a row."""


def exchange_bytes(shape: StepShape) -> dict[str, float]:
    """Bytes sent inside the sharding group: ids to their owners, pooled embeddings back, gradients to the owners."""
    if shape.shards == 1:
        return {}
    foreign = shape.all_shards - shape.own_shards
    vector = shape.dim * FLOAT_BYTES
    return {
        "input_exchange": float(foreign * shape.rank_batch * ID_BYTES),
        "output_exchange": float((shape.shards - 1) * shape.rank_batch * shape.own_shards * vector),
        "gradient_exchange": float(foreign * shape.rank_batch * vector),
    }


def dense_bytes(shape: StepShape) -> dict[str, float]:
    """Bytes of the dense all-reduce over all ranks; one number more than there are parameters: the loss rides along."""
    if shape.ranks == 1:
        return {}
    return {"dense_all_reduce": ring_all_reduce((shape.dense_parameters + 1) * FLOAT_BYTES, shape.ranks)}


def sync_bytes(shape: StepShape, sync: Literal["weights", "gradients"], longest: int, union: int) -> dict[str, float]:
    """Bytes of one synchronisation of the replicas, touched rows only.

    Args:
        shape: sizes of the step.
        sync: rows with their moments are averaged, or gradients gathered.
        longest: largest number of rows that one of the M twins touched since the last average.
        union: rows that any of them touched.
    """
    foreign_rows = (shape.replicas - 1) * longest
    agreed = {
        "sync_counts": ring_all_reduce(COUNT_BYTES, shape.replicas),
        "sync_rows": float(foreign_rows * ID_BYTES),
    }
    if sync == "gradients":
        return agreed | {"sync_gradients": float(foreign_rows * shape.dim * FLOAT_BYTES)}
    row = (shape.dim + (1 if shape.moments else 0)) * FLOAT_BYTES
    return agreed | {"sync_average": ring_all_reduce(union * row, shape.replicas)}


def ring_all_reduce(total_bytes: float, ranks: int) -> float:
    """Bytes that each rank sends in a bandwidth-optimal all-reduce."""
    return 2 * (ranks - 1) / ranks * total_bytes
