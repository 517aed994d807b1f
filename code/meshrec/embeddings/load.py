"""How often training samples ask for each row of each table: what a planned sharding balances."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from meshrec.data.compiled import compiled
from meshrec.data.hots import expand
from meshrec.data.store import Split
from meshrec.embeddings.plan import PlanError

CHUNK = 1 << 15
"""Samples that are expanded at a time: 32768 × 214 ids, MLPerf's, are 28 MB."""


def access_frequencies(samples: Split, table_rows: Sequence[int], hots: Sequence[int]) -> list[NDArray[np.int64]]:
    """Count lookups by row, reading the samples' ids once from first to last.

    Args:
        samples: [n], of which the ids [n, F] are read.
        table_rows: F numbers of rows.
        hots: F numbers of ids that a sample has in a table.

    Returns:
        F arrays int64 [rows of the table], views of one: table t's sum is n · hots[t].

    Raises:
        PlanError: an id is no row of its table.
    """
    first = np.array([0, *accumulate(table_rows)], np.int64)
    table = np.repeat(np.arange(len(table_rows)), hots)
    counts = np.zeros(first[-1], np.int64)
    for start in range(0, len(samples), CHUNK):
        ids = expand(samples.sparse[start : start + CHUNK], list(hots), list(table_rows))
        wrong = _count(ids, first[table], first[table + 1], counts)
        if wrong >= 0:
            sample, column = divmod(int(wrong), len(table))
            raise PlanError(
                f"training sample {start + sample} asks for row {ids[sample, column]} of table {table[column]}, which has "
                f"{table_rows[table[column]]} rows: the store belongs to other tables"
            )
    return np.split(counts, first[1:-1])


@compiled
def _count(ids, first, end, counts):  # type: ignore[no-untyped-def]
    """Add to the flat counts; returns sample · columns + column of the first id outside its table, else −1."""
    for sample in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            row = first[column] + ids[sample, column]
            if ids[sample, column] < 0 or row >= end[column]:
                return sample * ids.shape[1] + column
            counts[row] += 1
    return -1
