"""Placement against the optimum of small random instances, found by trying all of them."""

import itertools

import numpy as np
import pytest

from meshrec.embeddings.placement import Items, improve, lower_bound, place


def items_of(cost, memory=None, table=None) -> Items:
    count = len(cost)
    return Items(np.array(cost), np.array(memory or [1] * count), np.array(table or range(count)))


def largest(items: Items, owners, ranks: int) -> float:
    return float(np.bincount(owners, items.cost, ranks).max())


def optimum(items: Items, ranks: int, limit: int | None = None) -> float:
    """Least largest load of all placements that the limit and the tables allow; ∞ if there is none."""
    best = np.inf
    for owners in itertools.product(range(ranks), repeat=len(items)):
        if limit is not None and np.bincount(owners, items.memory, ranks).max() > limit:
            continue
        if len(set(zip(owners, items.table.tolist(), strict=True))) < len(items):
            continue
        best = min(best, largest(items, owners, ranks))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_load_is_within_grahams_bound_of_the_optimum(seed):
    generator = np.random.default_rng(seed)
    ranks = int(generator.integers(2, 4))
    items = items_of(generator.integers(1, 30, size=int(generator.integers(ranks, 9))).tolist())
    zero = np.zeros(ranks, np.int64)
    greedy = place(items, zero, zero, None)
    better = improve(items, greedy, zero, zero, None)
    best = optimum(items, ranks)
    assert best <= largest(items, better, ranks) <= largest(items, greedy, ranks) <= (4 / 3 - 1 / (3 * ranks)) * best
    assert lower_bound(items, zero) <= best


def test_the_bound_is_reached_and_local_search_leaves_it():
    """Graham's worst case for two ranks: 3 3 | 2 2 2 is optimal, largest first gives 3 2 2 | 3 2."""
    items, zero = items_of([3, 3, 2, 2, 2]), np.zeros(2, np.int64)
    greedy = place(items, zero, zero, None)
    assert largest(items, greedy, 2) == 7
    assert lower_bound(items, zero) == 6
    worse = np.array([0, 1, 0, 0, 0])  # 9 | 3: a swap or move brings it down
    assert largest(items, improve(items, worse, zero, zero, None), 2) <= 7


@pytest.mark.parametrize("seed", range(40))
def test_memory_and_tables_are_kept(seed):
    generator = np.random.default_rng(seed)
    items = items_of(
        generator.integers(1, 30, size=7).tolist(), generator.integers(1, 9, size=7).tolist(), [0, 0, 1, 2, 2, 3, 4]
    )
    zero, limit = np.zeros(3, np.int64), int(items.memory.sum() // 3 + 3)
    chosen = place(items, zero, zero, limit)
    best = optimum(items, 3, limit)
    if chosen is None:
        return  # a greedy choice may miss a placement; that one is never wrong is below
    for owners in (chosen, improve(items, chosen, zero, zero, limit)):
        assert np.bincount(owners, items.memory, 3).max() <= limit
        assert len(set(zip(owners.tolist(), items.table.tolist(), strict=True))) == len(items)
        assert largest(items, owners, 3) >= best >= lower_bound(items, zero)


def test_what_ranks_have_beforehand_counts():
    items, load, used = items_of([5, 1], [2, 2]), np.array([0, 3]), np.array([0, 8])
    assert place(items, load, used, None).tolist() == [0, 1]
    assert place(items, load, used, 9).tolist() == [0, 0]
    assert place(items, load, used, 3) is None
    assert lower_bound(items, load) == 5


def test_a_swap_needs_room_on_both_sides():
    items, zero = items_of([9, 8, 3, 1], [1, 1, 9, 1]), np.zeros(2, np.int64)
    start = np.array([0, 0, 1, 1])  # 17 | 4; memory 2 | 10
    assert largest(items, improve(items, start, zero, zero, None), 2) == 11
    kept = improve(items, start, zero, zero, 10)
    assert np.bincount(kept, items.memory, 2).max() <= 10
