"""Plans hold every number exactly once, and say so if asked to do otherwise."""

import pickle

import numpy as np
import pytest

from meshrec.embeddings.plan import (
    Plan,
    PlanError,
    TableShape,
    TableShard,
    column_wise,
    row_wise,
    split_rows,
    table_wise,
)

TABLES = [
    TableShape(7, 8),
    TableShape(1000, 16),
    TableShape(9, 24),
    TableShape(64, 8, 3),
    TableShape(500, 8),
    TableShape(500, 8),
]


def held(plan: Plan) -> list[np.ndarray]:
    """How many ranks of the group hold each number of each table."""
    counts = [np.zeros((shape.rows, shape.dim), int) for shape in plan.tables]
    for shard in plan.shards:
        counts[shard.table][shard.start : shard.stop, shard.left : shard.right] += 1
    for table in plan.replicated:
        counts[table] += plan.owners
    return counts


@pytest.mark.parametrize("owners", [1, 2, 3, 5])
@pytest.mark.parametrize("sharding", [table_wise, row_wise])
def test_every_number_is_held_exactly_once(owners, sharding):
    plan = sharding(TABLES, owners)
    assert all((count == 1).all() for count in held(plan))
    assert all(plan.of(owner) for owner in range(owners))
    assert sum(plan.rows_held(owner) for owner in range(owners)) == sum(shape.rows for shape in TABLES)


def test_columns_are_split_evenly():
    plan = column_wise(TABLES, 2)
    assert all((count == 1).all() for count in held(plan))
    assert {(s.table, s.width) for s in plan.shards} == {(0, 4), (1, 8), (2, 12), (3, 4), (4, 4), (5, 4)}


def test_whole_tables_are_spread_by_ids_then_by_rows():
    plan = table_wise(TABLES, 2)
    # largest first: 3 ids; then by rows 1000 | 500 | 500, and 7 or 9 to the rank with fewer rows
    assert [sorted(shard.table for shard in plan.of(owner)) for owner in (0, 1)] == [[2, 3], [0, 1, 4, 5]]
    equal = table_wise([TableShape(rows, 8) for rows in (7, 1000, 3, 64, 500, 500)], 2)
    assert [sorted(s.rows for s in equal.of(owner)) for owner in (0, 1)] == [[3, 64, 1000], [7, 500, 500]]


def test_rows_are_split_evenly_or_as_cut():
    shape = TableShape(11, 8)
    assert [shard.rows for shard in split_rows(0, shape, range(4))] == [2, 3, 3, 3]
    assert [(s.owner, s.start, s.stop) for s in split_rows(0, shape, [2, 0], [1])] == [(2, 0, 1), (0, 1, 11)]


def test_the_hash_tells_plans_apart_and_stays():
    plans = [sharding(TABLES, owners) for owners in (1, 2) for sharding in (table_wise, row_wise)]
    assert plans[0].hash == plans[1].hash  # on one rank both are the same plan
    assert len({plan.hash for plan in plans}) == 3
    assert table_wise(TABLES[:2], 2).hash == "d6aeb5d3bd3591ec"  # records of other machines and days are compared by it
    replicated = Plan(tuple(TABLES[:1]), 2, (), (0,))
    assert replicated.hash != Plan(tuple(TABLES[:1]), 1, (TableShard(0, 0, 0, 7, 0, 8, 7, 8),)).hash
    assert pickle.loads(pickle.dumps(plans[2])) == plans[2]


def test_replicated_tables_are_whole_on_every_rank():
    two = TABLES[:2]
    plan = Plan(tuple(two), 2, tuple(split_rows(1, two[1], range(2))), (0,))
    assert [(s.owner, s.table, s.rows) for owner in (0, 1) for s in plan.whole(owner)] == [(0, 0, 7), (1, 0, 7)]
    assert [plan.rows_held(owner) for owner in (0, 1)] == [507, 507]
    assert (held(plan)[0] == 2).all()


@pytest.mark.parametrize(
    ("sharding", "owners", "message"),
    [
        (table_wise, 7, "6 tables can't be sharded table-wise over 7 ranks"),
        (row_wise, 8, "table 0 has 7 rows, fewer than the 8 ranks"),
        (column_wise, 4, "table 0 has 8 columns: they can't be split over 4 ranks"),
        (column_wise, 3, "table 0 has 8 columns: they can't be split over 3 ranks"),
    ],
)
def test_an_impossible_split_is_refused_by_name(sharding, owners, message):
    with pytest.raises(PlanError, match=message):
        sharding(TABLES, owners)


def shards(*parts: tuple[int, int, int, int, int]) -> tuple[TableShard, ...]:
    return tuple(TableShard(owner, 0, start, stop, left, right, 6, 8) for owner, start, stop, left, right in parts)


@pytest.mark.parametrize(
    "parts",
    [
        [(0, 0, 5, 0, 8)],  # a row is missing
        [(0, 0, 7, 0, 8)],  # one too many
        [(0, 0, 4, 0, 8), (1, 3, 6, 0, 8)],  # a row twice
        [(0, 0, 6, 0, 4)],  # half of the columns
        [(0, 0, 4, 0, 8), (1, 4, 4, 0, 8), (1, 4, 6, 0, 8)],  # an empty shard
        [(0, 0, 3, 0, 8), (1, 1, 4, 0, 8)],  # the right volume, but rows 1 and 2 twice and 4 and 5 nowhere
        [(0, 0, 6, 0, 4), (1, 0, 3, 2, 6), (1, 3, 6, 4, 8)],  # the right volume, but columns overlap
    ],
)
def test_a_plan_that_does_not_cover_a_table_exactly_once_is_refused(parts):
    with pytest.raises(PlanError, match=r"table 0: shards .* don't cover 6 rows × 8 columns exactly once"):
        Plan((TableShape(6, 8),), 1 + max(part[0] for part in parts), shards(*parts))


def test_a_grid_of_rows_and_columns_is_a_plan():
    plan = Plan((TableShape(6, 8),), 2, shards((0, 0, 2, 0, 4), (1, 0, 2, 4, 8), (0, 2, 6, 0, 4), (1, 2, 6, 4, 8)))
    assert (held(plan)[0] == 1).all()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (((TableShape(6, 8),), 2, shards((0, 0, 6, 0, 8))), r"gives nothing to ranks \[1\]"),
        (((TableShape(6, 8),), 1, shards((1, 0, 6, 0, 8))), r"unknown ranks \[1\]"),
        (((TableShape(6, 8),), 1, shards((0, 0, 6, 0, 8)), (0,)), "table 0: both replicated and sharded"),
        (((TableShape(6, 8),), 1, shards((0, 0, 6, 0, 4), (0, 0, 6, 4, 8))), "same rows in two shards of columns"),
        (((TableShape(6, 8, hots=2),), 1, shards((0, 0, 6, 0, 8))), "table 0"),
        (((TableShape(6, 8),), 1, (*shards((0, 0, 6, 0, 8)), TableShard(0, 1, 0, 6, 0, 8, 6, 8))), "table 1: sharded, but"),
    ],
)
def test_a_plan_that_ranks_can_not_follow_is_refused(plan, message):
    with pytest.raises(PlanError, match=message):
        Plan(*plan)
