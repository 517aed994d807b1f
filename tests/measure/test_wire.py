"""Bytes by formula against bytes worked out by hand, with sizes that all differ so that none can stand for another."""

from dataclasses import replace

import pytest

from meshrec.measure.wire import (
    StepShape,
    dense_bytes,
    exchange_bytes,
    replicated_average_bytes,
    replicated_bytes,
    ring_all_reduce,
    sharded_storage_bytes,
    sync_bytes,
)

TABLE_WISE = StepShape(
    ranks=12,
    replicas=3,
    shards=4,
    rank_batch=32,
    all_ids=26,
    own_ids=7,
    all_width=26 * 8,
    own_width=7 * 8,
    model_width=26 * 8,
    dense_parameters=100,
    rows=70,
    weights=560,
    states=70,
)
"""26 tables of 8 columns, of which this rank has 7 with 10 rows each, and a second moment a row."""
ROW_WISE = replace(TABLE_WISE, all_ids=26 * 4, own_ids=26, all_width=26 * 4 * 8, own_width=26 * 8)
MIXED = replace(TABLE_WISE, all_ids=41, own_ids=11, all_width=300, own_width=90, model_width=250)
"""Tables of 1, 2 and 3 hots and of different widths, some of them with split rows."""
REPLICATED = replace(TABLE_WISE, replicated_rows=15, replicated_weights=130, replicated_states=20)


def test_exchange_of_whole_tables():
    """19 of 26 tables are elsewhere; an id has 4 bytes, a vector 8·4 = 32; 3 other ranks want this rank's 7 tables."""
    assert exchange_bytes(TABLE_WISE) == {
        "input_exchange": 19 * 32 * 4,  # 2,432
        "output_exchange": 3 * 32 * 7 * 32,  # 21,504
        "gradient_exchange": 19 * 32 * 32,  # 19,456
        "column_squares": 0,
    }


def test_exchange_of_split_rows():
    """Ids and gradients go to all 4 owners of each of 26 tables, one of which is this rank: 78 shards are elsewhere."""
    assert exchange_bytes(ROW_WISE) == {
        "input_exchange": 78 * 32 * 4,  # 9,984
        "output_exchange": 3 * 32 * 26 * 32,  # 79,872
        "gradient_exchange": 78 * 32 * 32,  # 79,872
        "column_squares": 0,
    }


def test_ids_and_numbers_travel_by_how_many_there_are_and_not_by_tables():
    """30 of a sample's 41 ids are asked for elsewhere, and 210 of its 300 numbers come from there; 90 of them are here."""
    assert exchange_bytes(MIXED) == {
        "input_exchange": 30 * 32 * 4,  # 3,840
        "output_exchange": 3 * 32 * 90 * 4,  # 34,560
        "gradient_exchange": 210 * 32 * 4,  # 26,880
        "column_squares": 0,
    }


def test_partial_squares_are_summed_over_the_group():
    """45 numbers: 180 bytes, of which each of the group's 4 ranks sends 2·3/4."""
    assert exchange_bytes(replace(MIXED, column_squares=45))["column_squares"] == 180 * 6 / 4


def test_a_group_of_one_exchanges_nothing():
    alone = replace(TABLE_WISE, ranks=3, shards=1, own_ids=26, own_width=208, column_squares=45)
    assert exchange_bytes(alone) == {}


def test_dense_all_reduce_is_over_all_ranks_and_carries_the_loss():
    """100 gradients and the loss: 404 bytes; 2·11/12 of them."""
    assert dense_bytes(TABLE_WISE) == {"dense_all_reduce": pytest.approx(404 * 22 / 12, rel=1e-15)}
    assert dense_bytes(replace(TABLE_WISE, ranks=1, replicas=1, shards=1)) == {}


def test_synchronised_weights():
    """3 twins with room for 10 rows in each list, one all-gather; 900 bytes of 225 numbers, of which each sends 2·2/3."""
    assert sync_bytes(TABLE_WISE, "weights", listed=10, numbers=225) == {
        "sync_rows": 2 * 10 * 4,  # 80
        "sync_average": 900 * 4 / 3,  # 1,200
    }


def test_whole_shards_are_averaged_without_a_list():
    """70 rows of 8 weights and a moment: 2,520 bytes."""
    assert sync_bytes(TABLE_WISE, "weights", listed=0, numbers=560 + 70) == {"sync_rows": 0, "sync_average": 2520 * 4 / 3}


def test_synchronised_gradients():
    """Every twin sends its list and the gradients of its rows, each with room for as many as the longest has."""
    assert sync_bytes(TABLE_WISE, "gradients", listed=10, numbers=80) == {"sync_rows": 2 * 10 * 4, "sync_gradients": 2 * 80 * 4}


@pytest.mark.parametrize("sync", ["weights", "gradients"])
def test_one_replica_has_nobody_to_tell(sync: str):
    assert set(sync_bytes(replace(TABLE_WISE, replicas=1), sync, listed=10, numbers=80).values()) == {0}  # type: ignore[arg-type]


def test_gradients_of_replicated_tables_are_summed_over_the_group():
    """130 gradients and a mark for each of 15 rows: 580 bytes; 2·3/4 of them over the group's 4 ranks."""
    assert replicated_bytes(REPLICATED, exact=False) == {"replicated_gradients": 580 * 6 / 4}


def test_twins_that_exchange_gradients_sum_them_over_all_ranks():
    assert replicated_bytes(REPLICATED, exact=True) == {"replicated_gradients": pytest.approx(580 * 22 / 12, rel=1e-15)}


def test_a_group_of_one_keeps_its_gradients_of_replicated_tables():
    alone = replace(REPLICATED, ranks=3, shards=1)
    assert replicated_bytes(alone, exact=False) == {"replicated_gradients": 0}
    assert replicated_bytes(alone, exact=True) == {"replicated_gradients": pytest.approx(580 * 4 / 3, rel=1e-15)}


@pytest.mark.parametrize(("with_states", "total"), [(True, 600), (False, 520)])
def test_replicated_tables_are_averaged_over_all_ranks(with_states: bool, total: int):
    """130 weights, and 20 numbers of state unless moments stay local; no lists, no marks."""
    found = replicated_average_bytes(REPLICATED, with_states)
    assert found == {"replicated_average": pytest.approx(total * 22 / 12, rel=1e-15)}


def test_shards_that_are_stored_in_parts_are_gathered_twice_and_averaged_once():
    """3 twins keep a third of 560 weights and of 70 moments, rounded up: 187 and 24. Each goes to 2 others."""
    assert sharded_storage_bytes(TABLE_WISE, [187, 24]) == {
        "storage_gather": 2 * 2 * 211 * 4,  # before the lookup and before the update: 3,376
        "storage_average": 2 * 211 * 4,  # of three parts of the padded sum two go away: 1,688
    }


@pytest.mark.parametrize(("ranks", "sent"), [(1, 0), (2, 600), (3, 800), (4, 900)])
def test_ring_all_reduce_of_600_bytes(ranks: int, sent: int):
    assert ring_all_reduce(600, ranks) == sent
