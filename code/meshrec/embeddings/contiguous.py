"""Where memory is scarce: the rows of all tables in one line, cut into N parts of equal bytes.

No plan has a fullest rank that holds less, but for the bytes of one row, and it splits at most N − 1 tables (R. McNaughton,
Scheduling with deadlines and loss functions, Management Science 6, 1959). Lookups are not balanced.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.placement import place_by_memory
from meshrec.embeddings.plan import PlanError, TableShape, TableShard, whole_items, whole_table


def filled(
    tables: Sequence[TableShape], kinds: Sequence[str], used: NDArray[np.int64], state_bytes: int
) -> Iterator[TableShard]:
    """Shards of tables of kind `planned`, around the whole ones of kind `table-wise`.

    Args:
        tables: all.
        kinds: of all; those of other kinds are left out.
        used: [N] bytes that ranks hold already.
        state_bytes: bytes of optimizer state a row.

    Raises:
        PlanError: fewer rows than ranks.
    """
    whole, planned = ([t for t, kind in enumerate(kinds) if kind == name] for name in ("table-wise", "planned"))
    items, used = whole_items(tables, whole, state_bytes), used.copy()
    owners = place_by_memory(items, used)
    np.add.at(used, owners, items.memory)
    for table, owner in zip(whole, owners.tolist(), strict=True):
        yield whole_table(owner, table, tables[table])
    if planned:
        yield from contiguous(tables, planned, used, state_bytes)


def contiguous(
    tables: Sequence[TableShape], which: Sequence[int], used: NDArray[np.int64], state_bytes: int
) -> list[TableShard]:
    """Shards of the tables `which`, filling up ranks that hold `used` bytes [N] already.

    Raises:
        PlanError: fewer rows than ranks.
    """
    ranks, rows = len(used), np.array([tables[table].rows for table in which])
    if rows.sum() < ranks:
        raise PlanError(f"{rows.sum()} rows of {len(which)} tables can't be split over {ranks} ranks; use more replicas")
    row_bytes = np.array([4 * tables[table].dim + state_bytes for table in which])
    edges = _edges(rows, row_bytes, used)
    ends = np.cumsum(rows)
    shards = []
    for index, table in enumerate(which):
        first, last = int(ends[index] - rows[index]), int(ends[index])
        for owner in range(int(np.searchsorted(edges, first, side="right")) - 1, ranks):
            start, stop = max(first, int(edges[owner])), min(last, int(edges[owner + 1]))
            if start >= last:
                break
            shape = tables[table]
            shards.append(
                TableShard(owner, table, start - first, stop - first, 0, shape.dim, shape.rows, shape.dim, shape.hots)
            )
    return shards


def _edges(rows: NDArray[np.int64], row_bytes: NDArray[np.int64], used: NDArray[np.int64]) -> NDArray[np.int64]:
    """[N + 1] where in the line of all rows each rank's part begins; every rank gets a row."""
    ranks, count = len(used), int(rows.sum())
    level = _level(int((rows * row_bytes).sum()), np.sort(used).tolist())
    wanted = np.cumsum(np.maximum(0, level - used))[:-1]
    at_table_ends = np.concatenate([[0], np.cumsum(rows * row_bytes)])
    edges = np.interp(wanted, at_table_ends, np.concatenate([[0], np.cumsum(rows)])).round().astype(np.int64)
    inner = np.maximum.accumulate(np.maximum(edges, np.arange(1, ranks)) - np.arange(ranks - 1)) + np.arange(ranks - 1)
    return np.concatenate([[0], np.minimum(inner, count - np.arange(ranks - 1, 0, -1)), [count]])


def _level(amount: int, used: list[int]) -> float:
    """Bytes to which an amount fills up ranks that hold `used` bytes, ascending."""
    total = amount
    for count, held in enumerate(used, start=1):
        total += held
        if count == len(used) or total / count <= used[count]:
            return total / count
    raise AssertionError("no ranks")
