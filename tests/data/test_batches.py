"""Who is served what: every sample once, the same samples whatever the ranks, and a digest that sees every exchange."""

import numpy as np
import pytest

from meshrec.data.batches import EvaluationBatches, RankBatches, sample_order
from meshrec.data.store import Split
from meshrec.measure.digest import add

PINNED_ORDER = [0, 2, 5, 1, 6, 4, 7, 3]


def split_of(rows: int) -> Split:
    """Rows whose every value tells their number."""
    number = np.arange(rows)
    dense = (number[:, None] + np.arange(13) / 16).astype(np.float32)
    return Split(number.astype(np.float32), dense, (number[:, None] * 26 + np.arange(26)).astype(np.int32))


def total(split: Split, order: np.ndarray, batch: int, ranks: int) -> int:
    parts = [RankBatches(split, order, batch, rank, ranks) for rank in range(ranks)]
    for part in parts:
        for _ in part:
            pass
    return add(*(part.order_digest for part in parts))


def test_order_is_a_seeded_permutation():
    order = sample_order(1000, 3)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    np.testing.assert_array_equal(order, sample_order(1000, 3))
    assert (order != sample_order(1000, 4)).mean() > 0.9
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1


def test_order_is_the_same_on_every_machine():
    np.testing.assert_array_equal(sample_order(8, 0), PINNED_ORDER)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_serve_each_global_batch_in_order(ranks):
    split, order = split_of(100), sample_order(100, 0)[:96]
    parts = [list(RankBatches(split, order, 24, rank, ranks)) for rank in range(ranks)]
    assert [len(part) for part in parts] == [4] * ranks
    for step in range(4):
        served = np.concatenate([part[step].labels for part in parts])
        np.testing.assert_array_equal(served, order[step * 24 : (step + 1) * 24])
    for batch in parts[-1]:
        rows = batch.labels.astype(int)
        np.testing.assert_array_equal(batch.dense, split.dense[rows])
        np.testing.assert_array_equal(batch.sparse, split.sparse[rows])
        assert (batch.dense.dtype, batch.sparse.dtype, batch.labels.dtype) == (np.float32, np.int32, np.float32)


def test_digest_depends_on_neither_ranks_nor_batch():
    split, order = split_of(200), sample_order(200, 5)[:192]
    digests = {total(split, order, batch, ranks) for ranks in (1, 2, 4, 8) for batch in (8, 24, 96)}
    assert len(digests) == 1


def test_digest_sees_exchanges_losses_and_repeats():
    split, order = split_of(100), sample_order(100, 0)[:96]
    seen = {total(split, order, 24, 2)}
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = order.copy()
        a, b = rng.choice(96, 2, replace=False)
        other[[a, b]] = other[[b, a]]
        seen.add(total(split, other, 24, 2))
    repeated = order.copy()
    repeated[0] = repeated[1]
    seen |= {total(split, repeated, 24, 2), total(split, order[:72], 24, 2), total(split, np.sort(order), 24, 2)}
    assert len(seen) > 195  # a pair may be drawn twice


def test_digest_is_known_only_after_a_whole_pass():
    batches = RankBatches(split_of(10), np.arange(10), 5, 0, 1)
    for iterator in (iter(batches), iter(batches)):
        next(iterator)
        with pytest.raises(RuntimeError, match="whole pass"):
            _ = batches.order_digest
    first = [batch.labels for batch in batches]
    digest = batches.order_digest
    assert len(first) == len(list(batches)) == 2
    assert batches.order_digest == digest
    assert 0 <= digest < 2**64


@pytest.mark.parametrize(
    ("samples", "batch", "rank", "ranks", "message"),
    [
        (10, 4, 0, 1, "10 samples in the order: want a positive multiple of the global batch 4"),
        (0, 4, 0, 1, "0 samples"),
        (12, 4, 0, 3, "global batch 4: want a positive multiple of 3 ranks"),
        (12, 0, 0, 1, "global batch 0"),
        (12, 4, 2, 2, "rank 2 of 2"),
        (12, 4, -1, 2, "rank -1 of 2"),
        (24, 4, 0, 2, "want 0 … 19"),
    ],
)
def test_impossible_batches_are_refused(samples, batch, rank, ranks, message):
    with pytest.raises(ValueError, match=message):
        RankBatches(split_of(20), np.arange(samples), batch, rank, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "batch"), [(1, 8), (23, 8), (24, 8), (25, 2), (25, 1000)])
def test_every_row_is_evaluated_once_and_comes_back_in_order(ranks, rows, batch):
    split = split_of(rows)
    parts = [EvaluationBatches(split, batch, rank, ranks) for rank in range(ranks)]
    served = [list(part) for part in parts]
    assert len({len(part) for part in served}) == 1, "ranks that take more steps than others would hang"
    assert {len(batch.labels) for part in served for batch in part} == {max(1, batch // ranks)}
    scores = [np.concatenate([batch.labels for batch in part]) * 2 for part in served]
    np.testing.assert_array_equal(parts[0].in_row_order(scores), split.labels * 2)
    assert len(served[0]) == len(parts[0])


def test_a_ranks_missing_results_are_refused():
    part = EvaluationBatches(split_of(10), 4, 0, 2)
    with pytest.raises(ValueError, match="want 2 arrays"):
        part.in_row_order([np.zeros(6)])
    with pytest.raises(ValueError, match="want 2 arrays"):
        part.in_row_order([np.zeros(6), np.zeros(5)])


def test_empty_evaluation_is_refused():
    with pytest.raises(ValueError, match="0 evaluation rows"):
        EvaluationBatches(split_of(0), 4, 0, 1)
