"""Puts pieces of tables on the ranks of a group so that the most loaded rank has as little as can be, within its memory.

Largest first onto the least loaded rank, then moves and swaps away from the most loaded one. Without a memory limit and with at
most one piece a table, the first part alone is within 4/3 − 1/(3N) of the optimum (R. L. Graham, Bounds on multiprocessing
timing anomalies, SIAM J. Appl. Math. 17, 1969), and the second part never loses anything. Otherwise that doesn't hold: a plan
tells how far it is from a load that no placement can be under (`lower_bound`).

Costs have any unit, integers are exact. The same input gives the same result: ties go to the lower index.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[Any]
"""int64 or float64."""

MOST_EXCHANGES = 2000
"""Moves and swaps at most: enough for every small group, and an end for thousands of ranks."""


@dataclass(frozen=True)
class Items:
    """S pieces that go on a rank each; no rank takes two pieces of one table."""

    cost: Costs
    """[S]"""
    memory: NDArray[np.int64]
    """[S] bytes."""
    table: NDArray[np.int64]
    """[S]"""

    def __len__(self) -> int:
        return len(self.cost)


def place(items: Items, load: Costs, used: NDArray[np.int64], limit: int | None) -> NDArray[np.int64] | None:
    """Largest cost first, each on the least loaded rank that has room for it.

    Args:
        items: what is placed.
        load: [N] cost that ranks have beforehand.
        used: [N] bytes that ranks hold beforehand.
        limit: bytes that a rank may hold.

    Returns:
        [S] rank of each piece; None if a piece found no room.
    """
    heap = [(cost, owner) for owner, cost in enumerate(load.tolist())]
    heapq.heapify(heap)
    held = used.tolist()
    costs, memory, tables = items.cost.tolist(), items.memory.tolist(), items.table.tolist()
    taken: set[tuple[int, int]] = set()
    chosen = np.empty(len(items), np.int64)
    for item in sorted(range(len(items)), key=lambda i: (-costs[i], i)):
        skipped = []
        while heap and not _fits(held[heap[0][1]] + memory[item], limit, (tables[item], heap[0][1]), taken):
            skipped.append(heapq.heappop(heap))
        if not heap:
            return None
        total, owner = heap[0]
        heapq.heapreplace(heap, (total + costs[item], owner))
        for entry in skipped:
            heapq.heappush(heap, entry)
        held[owner] += memory[item]
        taken.add((tables[item], owner))
        chosen[item] = owner
    return chosen


def _fits(held: int, limit: int | None, of_table: tuple[int, int], taken: set[tuple[int, int]]) -> bool:
    return (limit is None or held <= limit) and of_table not in taken


def improve(
    items: Items, owners: NDArray[np.int64], load: Costs, used: NDArray[np.int64], limit: int | None
) -> NDArray[np.int64]:
    """Move a piece off the most loaded rank, or swap it for a smaller one, as long as that lowers the larger of the two loads.

    Args:
        items: what was placed.
        owners: [S] rank of each piece.
        load: [N] cost that ranks have apart from the pieces.
        used: [N] bytes that ranks hold apart from the pieces.
        limit: bytes that a rank may hold.

    Returns:
        [S] rank of each piece: the largest load is no larger than before.
    """
    owners, loads, held = owners.copy(), load.copy(), used.copy()
    np.add.at(loads, owners, items.cost)
    np.add.at(held, owners, items.memory)
    for _ in range(MOST_EXCHANGES):
        found = _best_exchange(items, owners, loads, held, limit)
        if found is None:
            break
        item, other, target = found
        source = int(owners[item])
        cost, memory = items.cost[item], items.memory[item]
        if other is not None:
            cost, memory = cost - items.cost[other], memory - items.memory[other]
            owners[other] = source
        owners[item] = target
        loads[[source, target]] += np.array([-cost, cost])
        held[[source, target]] += np.array([-memory, memory])
    return owners


def _best_exchange(
    items: Items, owners: NDArray[np.int64], loads: Costs, held: NDArray[np.int64], limit: int | None
) -> tuple[int, int | None, int] | None:
    """The move (item, None, to) or swap (item, item back, to) after which the larger of the two loads is least."""
    source = int(loads.argmax())
    best, best_load = None, loads[source] - 1e-9 * abs(loads[source])  # less is rounding
    for item in np.flatnonzero(owners == source).tolist():
        # a move is a swap for nothing: N of them are appended to the S swaps
        others = np.concatenate([owners, np.arange(len(loads))])
        cost = items.cost[item] - np.concatenate([items.cost, np.zeros(len(loads), items.cost.dtype)])
        memory = items.memory[item] - np.concatenate([items.memory, np.zeros(len(loads), np.int64)])
        after = np.maximum(loads[source] - cost, loads[others] + cost)
        allowed = (others != source) & (after < best_load) & _distinct(items, owners, item, others)
        if limit is not None:
            allowed &= (held[others] + memory <= limit) & (held[source] - memory <= limit)
        if not allowed.any():
            continue
        candidates = np.flatnonzero(allowed)
        chosen = int(candidates[after[candidates].argmin()])
        best_load = after[chosen]
        best = (item, chosen if chosen < len(owners) else None, int(others[chosen]))
    return best


def _distinct(items: Items, owners: NDArray[np.int64], item: int, others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[S + N] whether no rank would hold two pieces of one table, with rank `others` taking the item for each of the pieces."""
    of_table = np.isin(others, owners[items.table == items.table[item]])
    of_table[: len(owners)] &= items.table != items.table[item]  # the table's piece there would come back in exchange
    here = items.table[owners == owners[item]]
    comes_back = np.isin(items.table, here) & (items.table != items.table[item])
    comes_back = np.concatenate([comes_back, np.zeros(len(others) - len(owners), bool)])
    distinct: NDArray[np.bool_] = ~(of_table | comes_back)
    return distinct


def place_by_memory(items: Items, used: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks [S] of which the fullest holds little, whatever pieces cost. For at most one piece a table."""
    by_memory = Items(items.memory, items.memory, items.table)
    chosen = place(by_memory, used, used, None)
    assert chosen is not None
    return improve(by_memory, chosen, used, used, None)


def lower_bound(items: Items, load: Costs) -> float:
    """A largest load that no placement is under: the mean; the largest piece; the two smallest of the N + 1 largest pieces."""
    ranks, largest = len(load), np.sort(items.cost)[::-1]
    pair = float(largest[ranks - 1] + largest[ranks]) if len(items) > ranks else 0.0
    least = float(load.min())
    biggest = float(largest[0]) if len(items) else 0.0
    return max(float(items.cost.sum() + load.sum()) / ranks, float(load.max()), least + max(biggest, pair))
