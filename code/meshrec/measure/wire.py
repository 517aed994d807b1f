"""Bytes that a rank sends in one training step, by formula: what the ledger's counts are compared with.

Bandwidth-optimal collectives are assumed, as they are for the counts: an all-reduce of S bytes over n ranks sends 2(n−1)/n·S
from each, an all-gather of s bytes a rank (n−1)·s, an all-to-all everything but a rank's own part.
"""

from dataclasses import dataclass
from typing import Literal

FLOAT_BYTES = 4
ID_BYTES = 4


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
    all_ids: int
    """Ids a sample that travel: of each table as many as it has shards times hots."""
    own_ids: int
    """Those of this rank's shards."""
    all_width: int
    """Numbers a sample that all shards of a group pool: with row-wise shards more than the model reads."""
    own_width: int
    """Numbers a sample that this rank's shards pool."""
    model_width: int
    """Numbers a sample that the model reads: all tables' columns."""
    dense_parameters: int
    """P."""
    rows: int
    """Sharded rows on this rank."""
    weights: int
    """Their numbers."""
    states: int
    """Numbers of optimizer state of these rows."""
    replicated_rows: int = 0
    """Rows of tables that every rank holds whole."""
    replicated_weights: int = 0
    replicated_states: int = 0
    column_squares: int = 0
    """Room for the partial squares of tables whose columns are split."""


def exchange_bytes(shape: StepShape) -> dict[str, float]:
    """Bytes sent inside the sharding group: ids to their owners, pooled embeddings back, gradients to the owners."""
    if shape.shards == 1:
        return {}
    return {
        "input_exchange": float((shape.all_ids - shape.own_ids) * shape.rank_batch * ID_BYTES),
        "output_exchange": float((shape.shards - 1) * shape.rank_batch * shape.own_width * FLOAT_BYTES),
        "gradient_exchange": float((shape.all_width - shape.own_width) * shape.rank_batch * FLOAT_BYTES),
        "column_squares": ring_all_reduce(shape.column_squares * FLOAT_BYTES, shape.shards),
    }


def dense_bytes(shape: StepShape) -> dict[str, float]:
    """Bytes of the dense all-reduce over all ranks; one number more than there are parameters: the loss rides along."""
    if shape.ranks == 1:
        return {}
    return {"dense_all_reduce": ring_all_reduce((shape.dense_parameters + 1) * FLOAT_BYTES, shape.ranks)}


def replicated_bytes(shape: StepShape, exact: bool) -> dict[str, float]:
    """Bytes of the all-reduce of replicated tables' gradients, and a mark for each row that was hit.

    Args:
        shape: sizes of the step.
        exact: over all ranks (`sync: gradients`), else over the sharding group.
    """
    numbers = shape.replicated_weights + shape.replicated_rows
    return {"replicated_gradients": ring_all_reduce(numbers * FLOAT_BYTES, shape.ranks if exact else shape.shards)}


def replicated_average_bytes(shape: StepShape, with_states: bool) -> dict[str, float]:
    """Bytes of one average of replicated tables, over all ranks."""
    numbers = shape.replicated_weights + (shape.replicated_states if with_states else 0)
    return {"replicated_average": ring_all_reduce(numbers * FLOAT_BYTES, shape.ranks)}


def sync_bytes(shape: StepShape, sync: Literal["weights", "gradients"], listed: int, numbers: int) -> dict[str, float]:
    """Bytes of one synchronisation of the replicas.

    Args:
        shape: sizes of the step.
        sync: rows with their state are averaged, or gradients gathered.
        listed: room for row numbers in a twin's list.
        numbers: float32 numbers averaged, or room for gradients in a twin's list.
    """
    rows = {"sync_rows": float((shape.replicas - 1) * listed * ID_BYTES)}
    if sync == "gradients":
        return rows | {"sync_gradients": float((shape.replicas - 1) * numbers * FLOAT_BYTES)}
    return rows | {"sync_average": ring_all_reduce(numbers * FLOAT_BYTES, shape.replicas)}


def sharded_storage_bytes(shape: StepShape, parts: list[int]) -> dict[str, float]:
    """Bytes a step of replicas that keep 1/M of a shard each: gathered before lookup and update, averaged by reduce-scatter.

    Args:
        shape: sizes of the step.
        parts: numbers that a twin keeps of each live tensor.
    """
    sent = float((shape.replicas - 1) * sum(parts) * FLOAT_BYTES)
    return {"storage_gather": 2 * sent, "storage_average": sent}


def ring_all_reduce(total_bytes: float, ranks: int) -> float:
    """Bytes that each rank sends in a bandwidth-optimal all-reduce."""
    return 2 * (ranks - 1) / ranks * total_bytes
