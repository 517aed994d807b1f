"""The seed reaches every initial weight, and no weight can differ or change its place without the digests saying so."""

import math

import pytest
import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.engine import InitialRows, ShardedEmbeddings
from meshrec.embeddings.plan import Plan, TableShard, make_plan
from meshrec.experiment.schema import DlrmModel, Layout
from meshrec.measure.digest import add, digest_rows
from meshrec.measure.ledger import Ledger
from meshrec.mesh.collectives import Collectives
from meshrec.mesh.groups import Mesh
from meshrec.mesh.layout import MeshLayout
from meshrec.train.initial import dense_digest, initial_model, initial_rows, tables_digest

ROWS = [40, 9, 40, 100]
DIM = 4
MODEL = DlrmModel(embedding_dim=4, bottom_mlp=[8, 4], top_mlp=[8, 1])
SGD = KernelOptimizer("sgd", 0.1)


def embeddings(plan: Plan, owner: int, rows: InitialRows) -> ShardedEmbeddings:
    """One rank's engine with its initial weights; without collectives it needs no process group."""
    mesh = Mesh(MeshLayout(plan.owners, 1), owner, torch.device("cpu"), None, None, None)  # type: ignore[arg-type]
    engine = ShardedEmbeddings(plan, DIM, SGD, Layout(), "torch", Collectives(mesh, Ledger()))
    engine.initialise(rows)
    return engine


def digest_of(seed: int, owners: int = 1, sharding="table-wise", rows: list[int] = ROWS) -> int:
    plan = make_plan(rows, owners, sharding)
    return add(*(tables_digest(embeddings(plan, owner, initial_rows(seed, rows, DIM))) for owner in range(owners)))


def flat(seed: int) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in initial_model(seed, MODEL).parameters()])


@pytest.mark.parametrize("table", range(4))
def test_another_seed_has_other_rows(table: int):
    here, there, again = (initial_rows(seed, ROWS, DIM)(table, 0, ROWS[table]) for seed in (0, 1, 0))
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
    assert len({dense_digest(flat(seed), ROWS, DIM) for seed in range(5)}) == 5


def test_tables_of_equal_size_have_different_rows():
    rows = initial_rows(0, ROWS, DIM)
    assert not (rows(0, 0, 40) == rows(2, 0, 40)).any()


def test_seed_and_table_are_not_added_up():
    """Table 1 of seed 0 is not table 0 of seed 1."""
    assert not (initial_rows(0, [40, 40], DIM)(1, 0, 40) == initial_rows(1, [40, 40], DIM)(0, 0, 40)).any()


def test_a_part_of_a_table_is_that_part_of_the_whole():
    rows = initial_rows(3, ROWS, DIM)
    assert torch.equal(rows(3, 17, 60), rows(3, 0, 100)[17:60])
    assert rows(3, 17, 60).dtype == torch.float32


@pytest.mark.parametrize("rows", [1000, 16_000])
def test_weights_are_uniform_in_one_over_the_root_of_the_rows(rows: int):
    weights, bound = initial_rows(0, [rows], 16)(0, 0, rows).double(), 1 / math.sqrt(rows)
    assert weights.abs().max() <= bound * (1 + 1e-6)
    assert weights.max() > 0.999 * bound
    assert weights.min() < -0.999 * bound
    assert abs(float(weights.mean())) < 0.02 * bound
    assert float(weights.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_the_tables_digest_is_that_of_all_tables_one_below_the_other():
    rows = initial_rows(0, ROWS, DIM)
    whole = torch.cat([rows(table, 0, count) for table, count in enumerate(ROWS)])
    assert digest_of(0) == digest_rows(0, whole.numpy())


@pytest.mark.parametrize("sharding", ["table-wise", "row-wise"])
@pytest.mark.parametrize("owners", [2, 3, 4])
def test_digests_of_shards_add_up_to_that_of_the_whole(owners: int, sharding: str):
    assert digest_of(0, owners, sharding) == digest_of(0)


def test_unevenly_cut_tables_add_up_too():
    shards = (
        TableShard(0, 0, 0, 7),
        TableShard(0, 1, 0, 9),
        TableShard(0, 3, 99, 100),
        TableShard(1, 0, 7, 40),
        TableShard(1, 2, 0, 40),
        TableShard(1, 3, 0, 99),
    )
    plan, rows = Plan(tuple(ROWS), 2, shards), initial_rows(0, ROWS, DIM)
    assert add(*(tables_digest(embeddings(plan, owner, rows)) for owner in (0, 1))) == digest_of(0)


def test_swapping_tables_of_equal_size_changes_the_digest():
    rows = initial_rows(0, ROWS, DIM)
    swapped = embeddings(make_plan(ROWS, 1, "table-wise"), 0, lambda table, *part: rows([2, 1, 0, 3][table], *part))
    assert tables_digest(swapped) != digest_of(0)


def test_swapping_tables_between_ranks_changes_the_digest():
    """Tables 0 and 2 on a rank each: what a rank holds is digested under its table's name."""
    plan = Plan((40, 40), 2, (TableShard(0, 0, 0, 40), TableShard(1, 1, 0, 40)))
    rows = initial_rows(0, [40, 40], DIM)
    right, wrong = (
        add(*(tables_digest(embeddings(plan, owner, source)) for owner in (0, 1)))
        for source in (rows, lambda table, *part: rows(1 - table, *part))
    )
    assert right != wrong


@pytest.mark.parametrize("row", [0, 44, 188])
def test_the_live_weights_are_digested_down_to_one_number(row: int):
    engine = embeddings(make_plan(ROWS, 1, "table-wise"), 0, initial_rows(0, ROWS, DIM))
    engine.tables.weights()[row, DIM - 1] += 1e-4
    assert tables_digest(engine) != digest_of(0)


@pytest.mark.parametrize("at", [0, 100, -1])
def test_the_dense_digest_changes_with_one_weight(at: int):
    changed = flat(0)
    changed[at] = torch.nextafter(changed[at], torch.tensor(9.0))
    assert dense_digest(changed, ROWS, DIM) != dense_digest(flat(0), ROWS, DIM)


def test_dense_parameters_stand_behind_all_tables():
    assert dense_digest(flat(0), ROWS, DIM) == digest_rows(189 * DIM, flat(0).numpy())
