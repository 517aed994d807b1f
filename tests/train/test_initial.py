"""The seed reaches every initial weight, and no weight can differ or change its place without the digests saying so."""

import math

import pytest
import torch

from meshrec.embeddings.engine import InitialRows, ShardedEmbeddings
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import Plan, TableShape, TableShard
from meshrec.embeddings.planner import make_plan
from meshrec.experiment.factors import Layout, TableSharding
from meshrec.experiment.schema import DlrmModel
from meshrec.measure.digest import add, digest_rows
from meshrec.measure.ledger import Ledger
from meshrec.mesh.collectives import Collectives
from meshrec.mesh.groups import Mesh
from meshrec.mesh.layout import MeshLayout
from meshrec.train.initial import dense_digest, initial_model, initial_rows, tables_digest

ROWS = [40, 9, 40, 100]
DIM = 4
DIMS = [4, 8, 4, 16]
"""Of the tests that want tables of different widths."""
MODEL = DlrmModel(embedding_dim=4, bottom_mlp=[8, 4], top_mlp=[8, 1])
SGD = RowOptimizer("sgd", 0.1)
WHOLE_TABLES = Layout()


def embeddings(plan: Plan, owner: int, rows: InitialRows, twins: int = 1) -> ShardedEmbeddings:
    """One rank's engine with its initial weights; without collectives it needs no process group."""
    mesh = Mesh(MeshLayout(plan.owners, 1), owner, torch.device("cpu"), None, None, None)  # type: ignore[arg-type]
    engine = ShardedEmbeddings(plan, SGD, Layout(replicas=twins), "torch", Collectives(mesh, Ledger()), twins)
    engine.initialise(rows)
    return engine


def weights_of(seed: int, rows: list[int] = ROWS) -> InitialRows:
    return initial_rows(seed, rows, [DIM] * len(rows))


def plan_of(owners: int, layout: Layout = WHOLE_TABLES, dims: list[int] | None = None) -> Plan:
    shapes = [TableShape(*shape) for shape in zip(ROWS, dims or [DIM] * len(ROWS), strict=True)]
    return make_plan(shapes, owners, layout, 0, None)


def sum_over(plan: Plan, rows: InitialRows, twins: int = 1) -> int:
    return add(*(tables_digest(embeddings(plan, owner, rows, twins)) for owner in range(plan.owners)))


def digest_of(seed: int, owners: int = 1, layout: Layout = WHOLE_TABLES) -> int:
    return sum_over(plan_of(owners, layout), weights_of(seed))


def flat(seed: int) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in initial_model(seed, MODEL).parameters()])


@pytest.mark.parametrize("table", range(4))
def test_another_seed_has_other_rows(table: int):
    here, there, again = (weights_of(seed)(table, 0, ROWS[table]) for seed in (0, 1, 0))
    assert torch.equal(here, again)
    assert not (here == there).any()


def test_another_seed_has_other_dense_weights_in_every_layer():
    assert torch.equal(flat(0), flat(0))
    for here, there in zip(initial_model(0, MODEL).parameters(), initial_model(1, MODEL).parameters(), strict=True):
        assert not (here == there).any()


def test_the_dense_weights_leave_the_callers_random_state_alone():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    initial_model(0, MODEL)
    assert torch.equal(torch.rand(3), wanted)
    assert not torch.equal(flat(0), flat(5))  # nor does that state reach them


def test_another_seed_has_other_digests():
    assert len({digest_of(seed) for seed in range(5)}) == 5
    assert len({dense_digest(flat(seed), ROWS, [DIM] * 4) for seed in range(5)}) == 5


def test_tables_of_equal_size_have_different_rows():
    rows = weights_of(0)
    assert not (rows(0, 0, 40) == rows(2, 0, 40)).any()


def test_seed_and_table_are_not_added_up():
    """Table 1 of seed 0 is not table 0 of seed 1."""
    assert not (weights_of(0, [40, 40])(1, 0, 40) == weights_of(1, [40, 40])(0, 0, 40)).any()


def test_a_part_of_a_table_is_that_part_of_the_whole():
    rows = weights_of(3)
    assert torch.equal(rows(3, 17, 60), rows(3, 0, 100)[17:60])
    assert rows(3, 17, 60).dtype == torch.float32


@pytest.mark.parametrize("rows", [1000, 16_000])
def test_weights_are_uniform_in_one_over_the_root_of_the_rows(rows: int):
    weights, bound = initial_rows(0, [rows], [16])(0, 0, rows).double(), 1 / math.sqrt(rows)
    assert weights.abs().max() <= bound * (1 + 1e-6)
    assert weights.max() > 0.999 * bound
    assert weights.min() < -0.999 * bound
    assert abs(float(weights.mean())) < 0.02 * bound
    assert float(weights.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_the_tables_digest_is_that_of_all_tables_one_below_the_other():
    rows = weights_of(0)
    whole = torch.cat([rows(table, 0, count) for table, count in enumerate(ROWS)])
    assert digest_of(0) == digest_rows(0, whole.numpy())


@pytest.mark.parametrize("sharding", ["table-wise", "row-wise"])
@pytest.mark.parametrize("owners", [2, 3, 4])
def test_digests_of_shards_add_up_to_that_of_the_whole(owners: int, sharding: TableSharding):
    assert digest_of(0, owners, Layout(sharding=sharding)) == digest_of(0)


def test_tables_of_different_widths_lie_one_below_the_other():
    rows = initial_rows(0, ROWS, DIMS)
    whole = torch.cat([rows(table, 0, count).flatten() for table, count in enumerate(ROWS)])
    assert sum_over(plan_of(1, dims=DIMS), rows) == digest_rows(0, whole.numpy())


@pytest.mark.parametrize("owners", [2, 4])
@pytest.mark.parametrize(
    "tables",
    [
        {3: "column-wise"},
        {3: "column-wise", 0: "row-wise"},
        {0: "replicated", 3: "column-wise"},
        {0: "replicated", 1: "row-wise", 2: "replicated", 3: "replicated"},
        dict.fromkeys(range(4), "replicated"),
    ],
    ids=str,
)
def test_digests_do_not_depend_on_how_single_tables_are_sharded(owners: int, tables: dict[int, TableSharding]):
    """Replicated ones count once a group, wherever they are; columns have their places in the rows."""
    rows, layout = initial_rows(0, ROWS, DIMS), Layout(sharding="row-wise", tables=tables)
    assert sum_over(plan_of(owners, layout, DIMS), rows) == sum_over(plan_of(1, dims=DIMS), rows)


def test_swapped_columns_change_the_digest():
    rows = initial_rows(0, [40], [16])
    swapped = lambda table, *part: rows(table, *part)[:, [*range(8, 16), *range(8)]]  # noqa: E731
    plan = make_plan([TableShape(40, 16)], 2, Layout(sharding="column-wise"), 0, None)
    assert sum_over(plan, swapped) != sum_over(plan, rows)


def test_local_twins_count_once_and_are_equal():
    """One process with three groups' tables holds one model, three times."""
    engine = embeddings(plan_of(1), 0, weights_of(0), twins=3)
    assert tables_digest(engine) == digest_of(0)
    for tables in engine.kernels():
        assert torch.equal(tables.weights(), engine.kernels()[0].weights())
    assert len(engine.kernels()) == 3


def shard(owner: int, table: int, start: int, stop: int) -> TableShard:
    return TableShard(owner, table, start, stop, 0, DIM, ROWS[table], DIM)


def test_unevenly_cut_tables_add_up_too():
    parts = [(0, 0, 0, 7), (0, 1, 0, 9), (0, 3, 99, 100), (1, 0, 7, 40), (1, 2, 0, 40), (1, 3, 0, 99)]
    plan = Plan(tuple(TableShape(rows, DIM) for rows in ROWS), 2, tuple(shard(*part) for part in parts))
    assert sum_over(plan, weights_of(0)) == digest_of(0)


def test_swapping_tables_of_equal_size_changes_the_digest():
    rows = weights_of(0)
    assert sum_over(plan_of(1), lambda table, *part: rows([2, 1, 0, 3][table], *part)) != digest_of(0)


def test_swapping_tables_between_ranks_changes_the_digest():
    """Tables 0 and 1 on a rank each: what a rank holds is digested under its table's name."""
    plan = make_plan([TableShape(40, DIM)] * 2, 2, Layout(), 0, None)
    rows = weights_of(0, [40, 40])
    assert sum_over(plan, rows) != sum_over(plan, lambda table, *part: rows(1 - table, *part))


@pytest.mark.parametrize("row", [0, 44, 188])
def test_the_live_weights_are_digested_down_to_one_number(row: int):
    engine = embeddings(plan_of(1), 0, weights_of(0))
    engine.kernels()[0].weights()[row, DIM - 1] += 1e-4
    assert tables_digest(engine) != digest_of(0)


@pytest.mark.parametrize("at", [0, 100, -1])
def test_the_dense_digest_changes_with_one_weight(at: int):
    changed = flat(0)
    changed[at] = torch.nextafter(changed[at], torch.tensor(9.0))
    assert dense_digest(changed, ROWS, [DIM] * 4) != dense_digest(flat(0), ROWS, [DIM] * 4)


def test_dense_parameters_stand_behind_all_tables():
    assert dense_digest(flat(0), ROWS, [DIM] * 4) == digest_rows(189 * DIM, flat(0).numpy())


def test_dense_parameters_stand_behind_tables_of_different_widths():
    assert dense_digest(flat(0), ROWS, DIMS) == digest_rows(40 * 4 + 9 * 8 + 40 * 4 + 100 * 16, flat(0).numpy())
