import itertools

import pytest

from meshrec.embeddings.plan import Plan, PlanError, TableShard, make_plan

ROWS = [7, 1000, 3, 64, 500, 500]


@pytest.mark.parametrize(("owners", "sharding"), list(itertools.product([1, 2, 3], ["table-wise", "row-wise"])))
def test_every_row_is_held_exactly_once(owners, sharding):
    plan = make_plan(ROWS, owners, sharding)
    held = [(shard.table, row) for shard in plan.shards for row in range(shard.start, shard.stop)]
    assert sorted(held) == [(table, row) for table, rows in enumerate(ROWS) for row in range(rows)]
    assert sum(plan.counts()) == len(plan.shards)


def test_whole_tables_are_spread_evenly_by_number_then_by_rows():
    plan = make_plan(ROWS, 2, "table-wise")
    assert plan.counts() == [3, 3]
    assert sorted(sum(shard.rows for shard in plan.of(owner)) for owner in (0, 1)) == [1007, 1067]


def test_rows_are_split_evenly():
    plan = make_plan([10, 11], 4, "row-wise")
    assert [shard.rows for shard in plan.shards if shard.table == 1] == [2, 3, 3, 3]


def test_the_hash_tells_plans_apart():
    plans = [make_plan(ROWS, owners, sharding) for owners in (1, 2) for sharding in ("table-wise", "row-wise")]
    assert plans[0].hash == plans[1].hash  # on one rank both are the same plan
    assert len({plan.hash for plan in plans}) == 3


@pytest.mark.parametrize(
    ("rows", "owners", "sharding", "message"),
    [
        ([5, 5], 3, "table-wise", "2 tables can't be sharded table-wise over 3 ranks"),
        ([5, 2], 3, "row-wise", "table 1 has 2 rows, fewer than the 3 ranks"),
    ],
)
def test_a_rank_without_rows_is_refused(rows, owners, sharding, message):
    with pytest.raises(PlanError, match=message):
        make_plan(rows, owners, sharding)


@pytest.mark.parametrize("stop", [4, 6])
def test_an_incomplete_plan_is_refused(stop):
    with pytest.raises(PlanError, match="table 0"):
        Plan((5,), 1, (TableShard(0, 0, 0, stop),))
