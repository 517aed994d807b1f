"""More ids a table than the stored one: what a sample looks up beside it is a fixed function of the stored id.

MLPerf's multi-hot Criteo data are made in the same way: an id of a one-hot table always brings the same further ids, drawn
uniformly from its table's rows, repeats allowed. There they come from NumPy's generator with seed 0 and a table [rows, hots−1]
is kept for each feature; here they are computed by a hash, which needs no memory and gives other ids. MLPerf's generator can
also draw by Pareto's law, which its benchmark doesn't use.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshrec.data.compiled import compiled

GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""SplitMix64's increment and factors (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)."""
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)  # numba: uint64 with int64 is float64
_LOW = np.uint64(2**32 - 1)


def expand(ids: NDArray[np.int32], hots: list[int], rows: list[int]) -> NDArray[np.int32]:
    """All ids of samples: for each table the stored one, then hots − 1 further ones.

    Args:
        ids: [b, F], the stored ones.
        hots: F numbers, ids of a sample in each table.
        rows: F numbers, rows of each table.

    Returns:
        [b, Σ hots], table by table; `ids` itself where every table has one.

    Raises:
        ValueError: not as many hots or rows as tables, or a table without any.
    """
    tables = ids.shape[1]
    if len(hots) != tables or len(rows) != tables or min(hots) < 1 or min(rows) < 1:
        raise ValueError(f"{tables} tables, hots {hots}, rows {rows}: want one of each ≥ 1 for every table")
    if max(hots) == 1:
        return ids
    tables_of, stored, starts, rows_of = _columns(tuple(hots), tuple(rows))
    everything = np.empty((len(ids), len(tables_of)), np.int32)
    _fill(np.ascontiguousarray(ids), tables_of, stored, starts, rows_of, everything)
    return everything


@lru_cache(maxsize=8)
def _columns(hots: tuple[int, ...], rows: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
    """Of each column: its table; whether it holds the stored ids; its stream's start, uint64; its table's rows, uint64."""
    table = np.repeat(np.arange(len(hots)), hots)
    place = np.concatenate([np.arange(count) for count in hots])
    return table, place == 0, _starts(table.astype(np.uint64), place.astype(np.uint64)), np.array(rows, np.uint64)[table]


@compiled
def _mixed(state):  # type: ignore[no-untyped-def]
    """SplitMix64's output for a state, uint64."""
    state = (state ^ (state >> _30)) * FIRST
    state = (state ^ (state >> _27)) * SECOND
    return state ^ (state >> _31)


@compiled
def _starts(tables, places):  # type: ignore[no-untyped-def]
    """A stream for each table's j-th id: it starts with the j-th draw of the table's own stream."""
    starts = np.empty_like(tables)
    for column in range(len(tables)):
        starts[column] = _mixed(_mixed(tables[column] * GOLDEN) + places[column] * GOLDEN)
    return starts


@compiled
def _fill(ids, tables, stored, starts, rows, everything):  # type: ignore[no-untyped-def]
    """Column by column in each sample: the stored id k, or floor(k-th draw · rows / 2⁶⁴), in two halves as it needs 96 bits."""
    for sample in range(everything.shape[0]):
        for column in range(everything.shape[1]):
            own = ids[sample, tables[column]]
            draw = _mixed(starts[column] + np.uint64(own) * GOLDEN)
            low = ((draw & _LOW) * rows[column]) >> _32
            further = ((draw >> _32) * rows[column] + low) >> _32
            everything[sample, column] = own if stored[column] else np.int32(further)
