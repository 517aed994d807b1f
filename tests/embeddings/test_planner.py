"""Layouts become plans: as they say, or balanced by measured frequencies; within memory, or refused with what would work."""

import re

import numpy as np
import pytest

from meshrec.embeddings.contiguous import contiguous
from meshrec.embeddings.costs import Setting, cumulative, replicated_seconds, shard_seconds, touched
from meshrec.embeddings.plan import Plan, PlanError, TableShape, TableShard, row_wise, table_wise
from meshrec.embeddings.plan_loads import plan_balance, plan_loads
from meshrec.embeddings.planner import describe_plan, differences, make_plan
from meshrec.experiment.factors import Layout

TABLES = [TableShape(rows, dim, hots) for rows, dim, hots in [(7, 8, 1), (1000, 16, 1), (9, 24, 1), (64, 8, 3), (500, 8, 1)]]
STATE = 4


def zipf(rows: int, lookups: int, exponent: float = 1.05, seed: int = 0) -> np.ndarray:
    """Counts of head-heavy lookups, the head anywhere in the table."""
    generator = np.random.default_rng(seed)
    chances = 1 / np.arange(1, rows + 1) ** exponent
    return generator.permutation(generator.multinomial(lookups, chances / chances.sum())).astype(np.int64)


def counts_of(tables: list[TableShape], samples: int = 10_000) -> list[np.ndarray]:
    return [zipf(shape.rows, samples * shape.hots, seed=table) for table, shape in enumerate(tables)]


def planned(tables: list[TableShape], owners: int, limit: int | None = None, **options) -> Plan:
    layout = Layout(sharding="planned", memory_limit=limit)
    return make_plan(tables, owners, layout, STATE, counts_of(tables), **options)


def memory(plan: Plan) -> np.ndarray:
    return plan_loads(plan, None, STATE).memory


def kinds(plan: Plan) -> list[str]:
    of = {table: [s for s in plan.shards if s.table == table] for table in range(len(plan.tables))}
    names = ["whole" if len(s) == 1 else "columns" if s and s[0].width < s[0].table_dim else "rows" for s in of.values()]
    return ["replicated" if table in plan.replicated else name for table, name in enumerate(names)]


# --- as a layout says -------------------------------------------------------------------------------------------------


def test_a_layout_without_overrides_is_the_plain_sharding():
    assert make_plan(TABLES, 3, Layout(), STATE, None) == table_wise(TABLES, 3)
    assert make_plan(TABLES, 3, Layout(sharding="row-wise"), STATE, None) == row_wise(TABLES, 3)


def test_mixed_shardings_are_balanced_around_what_is_split():
    layout = Layout(tables={0: "replicated", 1: "row-wise", 3: "column-wise"})
    plan = make_plan(TABLES, 2, layout, STATE, None)
    assert kinds(plan) == ["replicated", "rows", "whole", "columns", "whole"]
    assert {plan.of(0)[0].owner, plan.of(1)[0].owner} == {0, 1}
    owners = {s.table: s.owner for s in plan.shards if s.table in (2, 4)}
    assert owners[2] != owners[4]
    assert plan == make_plan(TABLES, 2, layout, STATE, None)


def test_fewer_whole_tables_than_ranks_are_right_beside_a_split_one():
    plan = make_plan(TABLES[:2], 3, Layout(tables={1: "row-wise"}), STATE, None)
    assert [len(plan.of(owner)) for owner in range(3)] == [2, 1, 1]
    assert [s.rows for s in plan.shards if s.table == 1] == [333, 333, 334]
    assert plan.of(0)[0].table == 0  # the small table is where fewest rows are


def test_rows_of_split_tables_count_for_the_whole_ones_beside_them():
    tables = [*[TableShape(7, 8)] * 3, *(TableShape(rows, 8) for rows in (10, 9, 1))]
    plan = make_plan(tables, 2, Layout(tables=dict.fromkeys(range(3), "row-wise")), STATE, None)
    assert [plan.rows_held(owner) for owner in (0, 1)] == [9 + 10 + 1, 12 + 9]


def test_all_tables_may_be_replicated():
    plan = make_plan(TABLES[:2], 4, Layout(tables={0: "replicated", 1: "replicated"}), STATE, None)
    assert (plan.shards, plan.replicated) == ((), (0, 1))


@pytest.mark.parametrize(
    ("owners", "layout", "message"),
    [
        (6, {}, "5 tables can't be sharded table-wise over 6 ranks"),
        (5, {"tables": {0: "replicated"}}, "4 tables can't be sharded table-wise over 5 ranks"),
        (8, {"sharding": "row-wise"}, "table 0 has 7 rows, fewer than the 8 ranks"),
        (8, {"tables": {1: "row-wise", 2: "row-wise", 0: "row-wise"}}, "table 0 has 7 rows"),
        (3, {"tables": {1: "column-wise"}}, "table 1 has 16 columns: they can't be split over 3 ranks"),
        (2, {"tables": {5: "row-wise"}}, r"tables \[5\] are to be sharded otherwise, but there are 5"),
        (2, {"sharding": "planned"}, "planned sharding needs the training samples' access frequencies"),
    ],
)
def test_what_can_not_be_is_refused_by_name(owners, layout, message):
    with pytest.raises(PlanError, match=message):
        make_plan(TABLES, owners, Layout(**layout), STATE, None)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (lambda right: right[:4], "access frequencies of 4 tables, want those of 5"),
        (lambda right: [*right[:4], right[4][:-1]], r"table 4: access frequencies are int64 \[499\], want int64 \[500\]"),
        (lambda right: [right[0] - 10**6, *right[1:]], "table 0: .* none negative"),
        (lambda right: [right[0].astype(float), *right[1:]], "table 0: access frequencies are float64"),
    ],
)
def test_frequencies_of_other_tables_are_refused(counts, message):
    with pytest.raises(PlanError, match=message):
        make_plan(TABLES, 2, Layout(sharding="planned"), STATE, counts(counts_of(TABLES)))


# --- memory -----------------------------------------------------------------------------------------------------------

LAYOUTS = [
    Layout(),
    Layout(sharding="row-wise"),
    Layout(tables={1: "row-wise"}),
    Layout(tables={0: "replicated"}),
    Layout(sharding="planned"),
    Layout(sharding="planned", tables={1: "table-wise", 2: "row-wise"}),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("owners", [2, 3])
def test_the_limit_that_a_refusal_names_works_and_no_less(layout: Layout, owners: int):
    def at(limit: int | None) -> Plan:
        return make_plan(TABLES, owners, layout.model_copy(update={"memory_limit": limit}), STATE, counts_of(TABLES))

    with pytest.raises(PlanError, match="memory_limit is 1 bytes a rank") as refused:
        at(1)
    smallest = int(re.search(r"smallest limit known to work with this sharding is (\d+)", str(refused.value))[1])
    assert memory(at(smallest)).max() <= smallest
    assert at(10**9) == at(None)
    with pytest.raises(PlanError, match=r"is \d+: raise it"):
        at(smallest - 200)  # two of the largest rows, to which rows are cut


def test_a_table_that_is_too_large_alone_is_named():
    with pytest.raises(PlanError, match="table 1's part alone is too large: it takes 68000"):
        make_plan(TABLES, 2, Layout(memory_limit=60_000), STATE, None)


def test_a_limit_moves_tables_before_it_is_refused():
    tables = [TableShape(rows, 8) for rows in (100, 90, 10, 10)]  # table-wise puts 100 with 10 and 90 with 10
    assert memory(make_plan(tables, 2, Layout(), STATE, None)).tolist() == [110 * 36, 100 * 36]
    many = [TableShape(100, 8), *[TableShape(20, 8)] * 5]  # by number of tables 100 + 2 · 20 | 3 · 20
    assert memory(make_plan(many, 2, Layout(), STATE, None)).tolist() == [140 * 36, 60 * 36]
    assert memory(make_plan(many, 2, Layout(memory_limit=100 * 36), STATE, None)).tolist() == [100 * 36, 100 * 36]


def test_where_memory_is_scarce_rows_are_cut_to_fill_it():
    total = sum(shape.rows * (4 * shape.dim + STATE) for shape in TABLES)
    plan = planned(TABLES, 4, limit=total // 4 + 100)
    assert memory(plan).max() <= total // 4 + 100
    assert memory(plan).sum() == total


def test_rows_fill_ranks_that_hold_something_up_to_one_level():
    tables = [TableShape(100, 8), TableShape(50, 8)]
    shards = contiguous(tables, [0, 1], np.array([0, 90 * 36, 500 * 36]), STATE)
    rows = [sum(shard.rows for shard in shards if shard.owner == owner) for owner in range(3)]
    assert rows == [120, 29, 1]  # up to 120 each, but for the row that every rank gets


# --- balanced ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owners", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("columns", [False, True])
def test_every_number_of_a_planned_sharding_is_held(owners: int, columns: bool):
    plan = planned(TABLES, owners, columns=columns)  # Plan itself refuses shards that don't make up their table
    loads = plan_loads(plan, counts_of(TABLES), STATE)
    if "columns" not in kinds(plan):
        assert loads.lookups.sum() == pytest.approx(sum(shape.hots for shape in TABLES))
    assert columns or "columns" not in kinds(plan)
    assert plan.hash == planned(TABLES, owners, columns=columns).hash


def test_a_hot_table_is_cut_where_hits_balance_and_not_in_the_middle():
    tables = [TableShape(100_000, 16, 40), *[TableShape(3_000, 16)] * 3]
    head_first = -np.sort(-zipf(100_000, 400_000))
    plan = make_plan(tables, 2, Layout(sharding="planned"), STATE, [head_first, *counts_of(tables)[1:]])
    parts = [shard for shard in plan.shards if shard.table == 0]
    work = shard_seconds(parts, cumulative(head_first, tables[0], 2048), Setting(2, 2048, STATE))
    assert len(work) == 2  # lookups of the head, and distinct rows of the tail, which cost more
    assert work[0] == pytest.approx(work[1], rel=0.01)
    kept = Layout(sharding="planned", tables={0: "table-wise"})
    assert kinds(make_plan(tables, 2, kept, STATE, [head_first, *counts_of(tables)[1:]]))[0] == "whole"
    assert min(s.rows for s in parts) < 10_000


def test_tiny_tables_are_replicated_and_large_ones_never():
    tables = [TableShape(4, 16)] * 20 + [TableShape(200_000, 16)] * 6
    plan = planned(tables, 2)
    assert plan.replicated == tuple(range(20))
    assert not planned(tables, 2, batch=64).replicated  # an all-reduce more costs more than it saves
    assert not planned(tables, 2, replicas=False).replicated
    assert not planned(tables, 1).replicated


def test_replicating_is_a_matter_of_cost():
    """All that a replicated table costs beside its lookups grows with its rows."""
    at = Setting(ranks=4, batch=2048, state_bytes=4)
    small, large = (replicated_seconds(TableShape(rows, 16), 2048.0, 4.0, at) for rows in (4, 100_000))
    assert large - small == pytest.approx(99_996 * 4 * 17 * (2 * 0.75 * 1e-9 + 0.4e-9))


def test_columns_are_split_only_on_request():
    tables = [TableShape(50_000, 64, 30), TableShape(50, 64)]
    assert "columns" in kinds(planned(tables, 4, columns=True))
    assert "columns" not in kinds(planned(tables, 4))


@pytest.mark.parametrize("seed", range(12))
def test_a_planned_step_is_no_longer_than_a_table_wise_one(seed: int):
    generator = np.random.default_rng(seed)
    tables = [TableShape(int(10 ** generator.uniform(1, 4)), 16, int(generator.choice([1, 1, 5]))) for _ in range(12)]
    counts = counts_of(tables)
    plan = make_plan(tables, 3, Layout(sharding="planned"), STATE, counts, replicas=False)
    mine, plain = (plan_balance(p, counts, STATE, 2048) for p in (plan, table_wise(tables, 3)))
    assert mine.seconds.max() <= plain.seconds.max() * (1 + 1e-9)
    assert 0 <= mine.gap < 1 / 3  # pieces that nearly fit: well within Graham's bound


def test_tables_that_a_layout_names_keep_their_sharding_in_a_planned_one():
    layout = Layout(sharding="planned", tables={1: "row-wise", 4: "column-wise", 0: "replicated"})
    plan = make_plan(TABLES, 2, layout, STATE, counts_of(TABLES), replicas=False)
    assert [kinds(plan)[table] for table in (0, 1, 4)] == ["replicated", "rows", "columns"]
    whole = dict.fromkeys((1, 2), "table-wise")
    for limit in (None, 70_000):  # table 1 takes 68000 bytes, the rest 21252: rows fill the other rank
        layout = Layout(sharding="planned", tables=whole, memory_limit=limit)
        plan = make_plan(TABLES, 2, layout, STATE, counts_of(TABLES), replicas=False)
        assert [kinds(plan)[table] for table in whole] == ["whole", "whole"]
        assert limit is None or memory(plan).max() <= limit


def test_many_ranks_and_few_tables():
    tables = [TableShape(1000, 16), TableShape(60, 16)]
    plan = planned(tables, 64)
    assert all(plan.of(owner) for owner in range(64)) or plan.replicated == (0, 1)
    with pytest.raises(PlanError, match="60 rows of 1 tables can't be split over 64 ranks"):
        planned(tables[1:], 64, replicas=False)


def test_tables_that_nobody_asks_for_are_planned_too():
    plan = make_plan(TABLES, 3, Layout(sharding="planned"), STATE, [np.zeros(s.rows, np.int64) for s in TABLES])
    assert all(plan.of(owner) for owner in range(3)) or len(plan.replicated) == len(TABLES)


# --- what is expected -------------------------------------------------------------------------------------------------


def test_distinct_rows_are_what_a_simulation_finds():
    counts = zipf(500, 5_000)
    expected = touched(counts, 5_000, 300).sum()
    generator = np.random.default_rng(1)
    found = np.mean([len(np.unique(generator.choice(500, 300, p=counts / 5_000))) for _ in range(300)])
    assert expected == pytest.approx(found, rel=0.01)
    assert touched(np.array([70_000, 0, 100_000]), 170_000, 1).tolist() == pytest.approx([7 / 17, 0, 10 / 17])
    assert touched(np.array([5]), 5, 10).tolist() == [1.0]


def test_costs_of_pieces_add_up_to_the_whole_but_for_traffic():
    shape, counts = TableShape(1000, 16), zipf(1000, 10_000)
    of_table, at = cumulative(counts, shape, 2048), Setting(2, 2048, STATE)
    cut = [TableShard(owner, 0, *rows, 0, 16, 1000, 16) for owner, rows in enumerate([(0, 300), (300, 1000)])]
    whole = [TableShard(0, 0, 0, 1000, 0, 16, 1000, 16)]
    traffic = 2048 * (0.5 * (4 + 8 * 16) * 1e-9 + 15e-9) + 2048 * 15e-9  # a second time, and which ids are mine
    assert shard_seconds(cut, of_table, at).sum() == pytest.approx(shard_seconds(whole, of_table, at).sum() + traffic)


# --- in words ---------------------------------------------------------------------------------------------------------


def test_a_plan_is_described_by_table_and_by_rank():
    layout = Layout(tables={0: "replicated", 1: "row-wise", 3: "column-wise"})
    plan = make_plan(TABLES, 2, layout, STATE, None)
    lines = describe_plan(plan, counts_of(TABLES), STATE).splitlines()
    assert lines[0] == f"plan {plan.hash}: 5 tables over 2 ranks"
    assert lines[3].split() == ["0", "7", "8", "1", "252", "replicated", "all"]
    assert lines[4].split() == ["1", "1,000", "16", "1", "68,000", "row-wise,", "2", "0–1"]
    assert lines[6].split() == ["3", "64", "8", "3", "2,304", "column-wise,", "2", "0–1"]
    ranks = [line.split() for line in lines[10:12]]
    assert sum(float(rank[5].rstrip("%")) for rank in ranks) == pytest.approx(100, abs=0.2)
    assert [int(rank[3].replace(",", "")) for rank in ranks] == memory(plan).tolist()
    assert "gap at most" in lines[-1]
    assert "as if all rows of a table were asked for alike" in describe_plan(plan, None, STATE)


def test_how_plans_of_ranks_differ_is_said_in_words():
    one, two = table_wise(TABLES, 2), row_wise(TABLES, 2)
    assert differences([one, table_wise(TABLES, 2), one]) is None
    said = differences([one, two, two, one])
    assert said.startswith("ranks 1–2: table 0 is rows 0–2 × columns 0–7 on 0, rows 3–6 × columns 0–7 on 1, ranks 0 3 rows 0–6")
    assert "5 tables differ" in said
    wider = [TableShape(7, 12), *TABLES[1:]]
    assert "table 0 is TableShape(rows=7, dim=12" in differences([one, table_wise(wider, 2)])
    assert "for 1 ranks of a group" in differences([one, table_wise(TABLES, 1)])
    assert "4 tables, rank 0 5" in differences([one, table_wise(TABLES[:4], 2)])
