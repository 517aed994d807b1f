"""What a piece of a table costs a rank in one step, by the lookups and distinct rows that measured frequencies let expect.

The constants were measured on one core of a two-core x86 virtual machine: fbgemm's float32 kernels with row-wise AdaGrad, 26
tables of 10³, 10⁵ and 10⁶ rows, 8, 16 and 64 columns, 2048 samples, uniform and skewed ids, fitted by non-negative least
squares and rounded; gloo's all-to-all and all-reduce between two processes. They set what a row is worth against a byte. On
another machine other plans may be faster, but what is computed doesn't depend on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.plan import TableShape, TableShard

HIT_SECONDS = 20e-9
"""Of a lookup whatever its width, with its share in summing gradients."""
HIT_COLUMN_SECONDS = 2.5e-9
"""Of each number that a lookup reads and whose gradient is summed."""
ROW_SECONDS = 80e-9
"""Of a distinct row that a step changes, whatever its width."""
ROW_COLUMN_SECONDS = 2e-9
"""Of each number of a changed row."""
ID_SECONDS = 15e-9
"""Of an id that arrives where only some rows of its table are, to find out whether its row is there."""
WIRE_BYTE_SECONDS = 1e-9
"""Of a byte that a rank sends or receives."""
PASS_BYTE_SECONDS = 0.4e-9
"""Of a byte of a table's dense gradient, which is zeroed, filled, scanned and gathered."""
ALL_REDUCE_SECONDS = 0.5e-3
"""Of one more collective, whatever its size."""


@dataclass(frozen=True)
class Setting:
    """What costs depend on beside the tables."""

    ranks: int
    """N of the group."""
    batch: int
    """Samples of the group in a step."""
    state_bytes: int
    """Bytes of optimizer state a row."""
    averaged: float = 0.0
    """Part of a step's changed rows that replicas average: 0 without replicas or with exchanged gradients, else 1 / K."""

    @property
    def sent(self) -> float:
        """Part of a sample's values that isn't its own rank's."""
        return (self.ranks - 1) / self.ranks


def touched(counts: NDArray[np.int64], lookups: int, draws: int) -> NDArray[np.float64]:
    """Chance of each row to be among `draws` lookups: 1 − (1 − p)^draws with p = count / lookups.

    Args:
        counts: [rows]
        lookups: sum of the whole table's counts.
        draws: lookups of a step.

    Returns:
        [rows]; their sum is the number of distinct rows to expect.
    """
    if lookups == 0:
        return np.zeros(len(counts))
    known = np.arange(min(int(counts.max()), 1 << 16) + 1)  # few counts are large: one chance for each of the small ones
    chance: NDArray[np.float64] = _chance(known, lookups, draws)[np.minimum(counts, known[-1])]
    large = np.flatnonzero(counts > known[-1])
    chance[large] = _chance(counts[large], lookups, draws)
    return chance


def _chance(counts: NDArray[np.int64], lookups: int, draws: int) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):  # the only row of its table: log 0
        chance: NDArray[np.float64] = -np.expm1(draws * np.log1p(-counts / lookups))
    return chance


@dataclass(frozen=True)
class Cumulative:
    """Of a table's first r rows, r = 0 … rows, what a step is expected to ask of them."""

    hits: NDArray[np.float64]
    """[rows + 1] lookups a step."""
    changed: NDArray[np.float64]
    """[rows + 1] distinct rows a step."""


def cumulative(counts: NDArray[np.int64], shape: TableShape, batch: int) -> Cumulative:
    """Sum up measured counts [rows], scaled to a step of `batch` samples."""
    lookups, draws = int(counts.sum()), batch * shape.hots
    hits, changed = np.zeros(len(counts) + 1), np.zeros(len(counts) + 1)
    np.cumsum(counts, out=hits[1:])
    hits *= draws / max(lookups, 1)
    np.cumsum(touched(counts, lookups, draws), out=changed[1:])
    return Cumulative(hits, changed)


def row_seconds(hits: NDArray[np.float64], changed: NDArray[np.float64], width: int, at: Setting) -> NDArray[np.float64]:
    """Seconds a step for reading and changing rows of some pieces, by what is expected of them."""
    averages = at.averaged * 2 * (4 * width + at.state_bytes) * WIRE_BYTE_SECONDS
    row = ROW_SECONDS + width * ROW_COLUMN_SECONDS + averages
    seconds: NDArray[np.float64] = hits * (HIT_SECONDS + width * HIT_COLUMN_SECONDS) + changed * row
    return seconds


def arrival_seconds(shape: TableShape, width: int, rows_split: bool, at: Setting) -> float:
    """Seconds a step for a piece's traffic at its owner: ids in, pooled values out, gradients in."""
    wire = at.sent * (4 * shape.hots + 8 * width) * WIRE_BYTE_SECONDS
    return at.batch * (wire + (shape.hots * ID_SECONDS if rows_split else 0.0))


def sample_seconds(shape: TableShape, width: int, at: Setting) -> float:
    """Seconds a step for a piece's traffic at every rank: what its own samples send and get."""
    return at.batch / at.ranks * at.sent * (4 * shape.hots + 8 * width) * WIRE_BYTE_SECONDS


def replicated_seconds(shape: TableShape, hits: float, changed: float, at: Setting) -> float:
    """Seconds a step at every rank for a table that all hold whole: own lookups, all changes, one dense all-reduce."""
    dense = 4 * shape.rows * (shape.dim + 1)
    wire = 2 * at.sent * dense + at.averaged * 2 * shape.rows * (4 * shape.dim + at.state_bytes)
    own = row_seconds(np.array([hits / at.ranks]), np.array([changed]), shape.dim, _unaveraged(at))
    return float(own[0]) + wire * WIRE_BYTE_SECONDS + dense * PASS_BYTE_SECONDS


def shard_seconds(shards: Sequence[TableShard], of_table: Cumulative, at: Setting) -> NDArray[np.float64]:
    """[len(shards)] seconds a step of one table's pieces, each at its owner."""
    seconds = []
    for shard in shards:
        hits, changed = (part[[shard.stop]] - part[[shard.start]] for part in (of_table.hits, of_table.changed))
        shape = TableShape(shard.table_rows, shard.table_dim, shard.hots)
        rows = float(row_seconds(hits, changed, shard.width, at)[0])
        seconds.append(rows + arrival_seconds(shape, shard.width, shard.rows < shard.table_rows, at))
    return np.array(seconds)


def held_bytes(rows: int, width: int, state_bytes: int) -> int:
    """Bytes of some rows and their optimizer state."""
    return rows * (4 * width + state_bytes)


def _unaveraged(at: Setting) -> Setting:
    return Setting(at.ranks, at.batch, at.state_bytes)
