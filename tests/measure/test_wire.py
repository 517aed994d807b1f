"""Bytes by formula against bytes worked out by hand, with sizes that all differ so that none can stand for another."""

from dataclasses import replace

import pytest

from meshrec.measure.wire import StepShape, dense_bytes, exchange_bytes, ring_all_reduce, sync_bytes

TABLE_WISE = StepShape(
    ranks=12,
    replicas=3,
    shards=4,
    rank_batch=32,
    features=26,
    all_shards=26,
    own_shards=7,
    dim=8,
    dense_parameters=100,
    moments=True,
)
ROW_WISE = replace(TABLE_WISE, all_shards=26 * 4, own_shards=26)


def test_exchange_of_whole_tables():
    """19 of 26 tables are elsewhere; an id has 4 bytes, a vector 8·4 = 32; 3 other ranks want this rank's 7 tables."""
    assert exchange_bytes(TABLE_WISE) == {
        "input_exchange": 19 * 32 * 4,  # 2,432
        "output_exchange": 3 * 32 * 7 * 32,  # 21,504
        "gradient_exchange": 19 * 32 * 32,  # 19,456
    }


def test_exchange_of_split_rows():
    """Ids and gradients go to all 4 owners of each of 26 tables, one of which is this rank: 78 shards are elsewhere."""
    assert exchange_bytes(ROW_WISE) == {
        "input_exchange": 78 * 32 * 4,  # 9,984
        "output_exchange": 3 * 32 * 26 * 32,  # 79,872
        "gradient_exchange": 78 * 32 * 32,  # 79,872
    }


def test_a_group_of_one_exchanges_nothing():
    assert exchange_bytes(replace(TABLE_WISE, ranks=3, shards=1, own_shards=26)) == {}


def test_dense_all_reduce_is_over_all_ranks_and_carries_the_loss():
    """100 gradients and the loss: 404 bytes; 2·11/12 of them."""
    assert dense_bytes(TABLE_WISE) == {"dense_all_reduce": pytest.approx(404 * 22 / 12, rel=1e-15)}
    assert dense_bytes(replace(TABLE_WISE, ranks=1, replicas=1, shards=1)) == {}


def test_synchronised_weights():
    """3 twins; the longest list has 10 rows, the union 25; a row has 8 weights and a moment: 36 bytes."""
    assert sync_bytes(TABLE_WISE, "weights", longest=10, union=25) == pytest.approx(
        {
            "sync_counts": 8 * 4 / 3,  # one count of 8 bytes
            "sync_rows": 2 * 10 * 4,  # 80
            "sync_average": 25 * 36 * 4 / 3,  # 1,200
        },
        rel=1e-15,
    )


def test_synchronised_weights_without_moments():
    found = sync_bytes(replace(TABLE_WISE, moments=False), "weights", longest=10, union=25)
    assert found["sync_average"] == pytest.approx(25 * 32 * 4 / 3, rel=1e-15)


@pytest.mark.parametrize("moments", [True, False])
def test_synchronised_gradients(moments: bool):
    """Every twin sends the gradients of its list, padded to the longest; moments don't travel."""
    found = sync_bytes(replace(TABLE_WISE, moments=moments), "gradients", longest=10, union=25)
    assert found == pytest.approx({"sync_counts": 8 * 4 / 3, "sync_rows": 80, "sync_gradients": 2 * 10 * 32}, rel=1e-15)


@pytest.mark.parametrize(("ranks", "sent"), [(1, 0), (2, 600), (3, 800), (4, 900)])
def test_ring_all_reduce_of_600_bytes(ranks: int, sent: int):
    assert ring_all_reduce(600, ranks) == sent
