"""Orders of sets that are too large to be permuted at once: permutations all the same, seeded, mixed, and computed in parts."""

import tracemalloc

import numpy as np
import pytest

from meshrec.data import order as orders
from meshrec.data.batches import RankBatches
from meshrec.data.order import BlockShuffle, sample_order
from meshrec.data.store import Split

PINNED_ORDER = [54, 1, 52, 55, 38, 0, 4, 34]


@pytest.fixture
def small(monkeypatch):
    """Blocks of 8 rows, 4 of them in a window, and whole permutations up to 50 samples."""
    monkeypatch.setattr(orders, "BLOCK_ROWS", 8)
    monkeypatch.setattr(orders, "WINDOW_BLOCKS", 4)
    monkeypatch.setattr(orders, "MOST_AT_ONCE", 50)


@pytest.mark.parametrize("samples", [51, 63, 64, 65, 95, 96, 97, 1000])
def test_every_row_once(small, samples):
    order = sample_order(samples, 3)
    assert isinstance(order, BlockShuffle)
    assert len(order) == samples
    np.testing.assert_array_equal(np.sort(np.asarray(order)), np.arange(samples))
    assert np.asarray(order).dtype == np.int64


def test_up_to_the_limit_the_order_is_that_of_before(small):
    found = sample_order(50, 3)
    assert isinstance(found, np.ndarray)
    wanted = np.random.Generator(np.random.PCG64(np.random.SeedSequence((0x5A3D, 3)))).permutation(50)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 7), (30, 34), (5, 100), (96, 97), (0, 300), (250, 999)])
def test_parts_are_those_of_the_whole(small, start, stop):
    order = sample_order(300, 1)
    np.testing.assert_array_equal(np.asarray(order[start:stop]), np.asarray(order)[start:stop])
    np.testing.assert_array_equal(np.asarray(order[10:290][start:stop]), np.asarray(order)[10:290][start:stop])
    with pytest.raises(ValueError, match="consecutive"):
        _ = order[::2]


def test_seeded_and_mixed():
    samples = 3 * (1 << 22) + 12_345
    order = BlockShuffle(samples, 5)
    head = np.asarray(order[: 1 << 20])
    np.testing.assert_array_equal(head, np.asarray(BlockShuffle(samples, 5)[: 1 << 20]))
    assert (head != np.asarray(BlockShuffle(samples, 6)[: 1 << 20])).mean() > 0.99
    assert (head != np.asarray(BlockShuffle(samples + 1, 5)[: 1 << 20])).mean() > 0.99
    assert abs(np.corrcoef(head, np.arange(len(head)))[0, 1]) < 0.01
    # the first 2048 rows come from all over the set: each tenth of it has its share
    tenths = np.bincount(head[:2048] * 10 // samples, minlength=10)
    assert tenths.min() > 100
    assert np.median(np.abs(np.diff(head))) > samples / 10


def test_order_of_a_terabyte_set_takes_little_memory():
    tracemalloc.start()
    order = sample_order(4_373_472_329, 0)
    batches = [np.asarray(order[start : start + 2048]) for start in (0, 2_000_000_000, 4_373_470_000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6
    assert all(rows.min() >= 0 and rows.max() < 4_373_472_329 for rows in batches)


def split_of(rows: int) -> Split:
    number = np.arange(rows)
    return Split(number.astype(np.float32), np.zeros((rows, 13), np.float32), np.zeros((rows, 26), np.int32))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_serve_the_same_global_batches(small, ranks):
    order = sample_order(200, 0)
    parts = [list(RankBatches(split_of(200), order[:192], 24, rank, ranks)) for rank in range(ranks)]
    for step in range(8):
        served = np.concatenate([part[step].labels for part in parts])
        np.testing.assert_array_equal(served, np.asarray(order)[step * 24 : (step + 1) * 24])


def test_rows_that_are_not_there_are_refused(small):
    with pytest.raises(ValueError, match="want 0 … 98"):
        RankBatches(split_of(99), sample_order(100, 0)[:96], 24, 0, 2)


def test_order_is_the_same_on_every_machine(small):
    np.testing.assert_array_equal(np.asarray(sample_order(64, 0))[:8], PINNED_ORDER)
