"""Every kernel against the optimizers' definitions in float64, and against the other kernels."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from meshrec.embeddings.kernels import ShardTables, make_tables
from meshrec.embeddings.optimizers import RowOptimizer, row_optimizer
from meshrec.embeddings.plan import PlanError, TableShard
from meshrec.embeddings.rows import RowGradients
from meshrec.experiment.factors import (
    DensityScaledRowwiseAdagrad,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    Optimizer,
    RowwiseAdagrad,
    Sgd,
)
from support.definitions import Hits, Table, step

KERNELS = ("fbgemm", "numba", "torch")
CPU = torch.device("cpu")
LEVELS: dict[str, Optimizer] = {
    "sgd": Sgd(kind="sgd", lr=0.3),
    "outside": RowwiseAdagrad(kind="rowwise_adagrad", lr=0.1, eps=0.1, eps_placement="outside"),
    "scaled inside": MomentScaledRowwiseAdagrad(
        kind="moment_scaled_rowwise_adagrad", lr=0.1, eps=0.1, eps_placement="inside", moment_scale=4
    ),
    "momentum": MomentumRowwiseAdagrad(kind="momentum_rowwise_adagrad", lr=0.1, eps=0.1, beta=0.9),
    "density": DensityScaledRowwiseAdagrad(kind="density_scaled_rowwise_adagrad", lr=0.1, eps=0.1, replicas=4),
}
RULES = [*((name, False) for name in LEVELS), *((name, True) for name in LEVELS if name != "sgd")]
FBGEMM = [("sgd", False), ("outside", False), ("scaled inside", False)]
WITH_KERNEL = [(kernel, *rule) for kernel in KERNELS for rule in RULES if kernel != "fbgemm" or rule in FBGEMM]
TOLERANCE = 4e-7
"""Of the largest number, after 5 steps in float32."""


def shards_of(case: str, dim: int) -> list[TableShard]:
    """Shards (start, stop, rows of the table, hots) of one rank."""
    cases = {
        "one-hot": [(0, 12, 12, 1)],
        "multi-hot": [(0, 7, 7, 5)],
        "row-split": [(5, 14, 30, 1), (20, 300, 300, 3)],
        "several": [(0, 40, 40, 1), (0, 3, 3, 2), (64, 192, 256, 3), (0, 200, 200, 1)],
    }
    return [TableShard(0, t, a, b, 0, dim, rows, dim, hots) for t, (a, b, rows, hots) in enumerate(cases[case])]


def random_ids(shards: list[TableShard], samples: int, generator: torch.Generator) -> torch.Tensor:
    """Rows of the tables [C, B] int32, whether a shard holds them or not; repeats in bags where tables are small."""
    columns = [torch.randint(0, s.table_rows, (s.hots, samples), generator=generator, dtype=torch.int32) for s in shards]
    return torch.cat(columns)


def filled(kernel: str, shards: list[TableShard], optimizer: RowOptimizer) -> ShardTables:
    tables = make_tables(kernel, shards, optimizer, CPU)
    tables.weights().copy_(torch.randn(tables.rows, tables.dim, generator=torch.Generator().manual_seed(3)))
    return tables


def hits_of(tables: ShardTables, ids: torch.Tensor, gradients: torch.Tensor) -> Hits:
    """Rows of the buffer, id by id, and the gradient of each, float64."""
    rows, parts, first, column = [], [], 0, 0
    for number, shard in enumerate(tables.shards):
        of_shard = gradients[:, number * tables.dim : (number + 1) * tables.dim].double()
        for hot in ids[column : column + shard.hots]:
            held = (hot >= shard.start) & (hot < shard.stop)
            rows.append(hot[held].long() - shard.start + first)
            parts.append(of_shard[held])
        first, column = first + shard.rows, column + shard.hots
    return Hits(torch.cat(rows), torch.cat(parts))


def assert_close(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    error, largest = (found.double() - wanted).abs().max().item(), wanted.abs().max().item()
    assert error <= TOLERANCE * largest, f"{what}: off by {error:.1e}, the largest number is {largest:.1e}"


def definition_states(tables: ShardTables, table: Table) -> dict[str, torch.Tensor]:
    first = tables.optimizer.initial_moment  # what ε inside the root becomes in a kernel
    states = {
        "moments": table.moments + first,
        "lagged_moments": table.lagged + first,
        "velocity": table.velocity,
        "density": table.density,
    }
    return {name: states[name] for name in tables.states()}


@pytest.mark.parametrize("dim", [4, 8, 16, 64])
@pytest.mark.parametrize("case", ["one-hot", "multi-hot", "row-split", "several"])
@pytest.mark.parametrize(("kernel", "name", "lagged"), WITH_KERNEL)
def test_the_kernel_computes_the_definition(kernel: str, name: str, lagged: bool, case: str, dim: int):
    level, generator = LEVELS[name], torch.Generator().manual_seed(0)
    tables = filled(kernel, shards_of(case, dim), row_optimizer(level, lagged))
    table = Table(tables.weights().double())
    for number in range(6):
        ids = random_ids(tables.shards, 30 + number, generator)
        gradients = torch.randn(ids.shape[1], len(tables.shards) * dim, generator=generator)
        tables.update(ids, gradients)
        step(level.model_dump(), table, hits_of(tables, ids, gradients), lagged)
        if number % 3 == 1:
            tables.end_average(None)
            table.lagged = table.moments.clone()
    assert_close(tables.weights(), table.weights, "weights")
    for state, wanted in definition_states(tables, table).items():
        assert_close(tables.states()[state], wanted, state)


@pytest.mark.parametrize("case", ["one-hot", "multi-hot", "row-split", "several"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_lookup_sums_the_rows_that_are_held(kernel: str, case: str):
    tables = filled(kernel, shards_of(case, 8), RowOptimizer("sgd", 0.1))
    ids = random_ids(tables.shards, 50, torch.Generator().manual_seed(1))
    wanted, first, column = [], 0, 0
    for shard in tables.shards:
        rows = torch.zeros(shard.table_rows, 8, dtype=torch.float64)
        rows[shard.start : shard.stop] = tables.weights()[first : first + shard.rows].double()
        wanted.append(rows[ids[column : column + shard.hots].long()].sum(dim=0))
        first, column = first + shard.rows, column + shard.hots
    found = tables.lookup(ids)
    assert found.shape == (50, 8 * len(tables.shards))
    assert_close(found, torch.cat(wanted, dim=1), "pooled")


@pytest.mark.parametrize("case", ["multi-hot", "row-split", "several"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_touched_rows_are_distinct_and_ascending(kernel: str, case: str):
    tables = filled(kernel, shards_of(case, 4), RowOptimizer("sgd", 0.1))
    generator = torch.Generator().manual_seed(2)
    for samples in (3, 400, 7):
        ids = random_ids(tables.shards, samples, generator)
        wanted = sorted(set(hits_of(tables, ids, torch.zeros(samples, 4 * len(tables.shards))).rows.tolist()))
        found = tables.touched(ids)
        assert found.dtype == torch.int64
        assert found.tolist() == wanted


@pytest.mark.parametrize(("kernel", "name", "lagged"), WITH_KERNEL)
def test_summing_and_applying_is_the_update(kernel: str, name: str, lagged: bool):
    optimizer = row_optimizer(LEVELS[name], lagged)
    fused, halves = (filled(kernel, shards_of("several", 8), optimizer) for _ in range(2))
    generator = torch.Generator().manual_seed(4)
    for _ in range(4):
        ids = random_ids(fused.shards, 60, generator)
        gradients = torch.randn(60, 32, generator=generator)
        fused.update(ids, gradients)
        summed = halves.sum(ids, gradients)
        hits = hits_of(halves, ids, gradients)
        assert_close(
            summed.gradients, torch.zeros(halves.rows, 8).double().index_add_(0, *vars(hits).values())[summed.rows], "sums"
        )
        halves.apply(summed)
    assert_close(halves.weights(), fused.weights().double(), "weights")
    for state, tensor in fused.states().items():
        assert_close(halves.states()[state], tensor.double(), state)


@pytest.mark.parametrize("name", ["outside", "momentum", "density"])
@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_moments_grow_by_the_mean_squares_of_whole_rows(kernel: str, name: str):
    optimizer = row_optimizer(LEVELS[name])
    tables = filled(kernel, shards_of("several", 8), optimizer)
    before = tables.weights().double()
    rows, gradients = torch.tensor([1, 41, 44, 370]), torch.randn(4, 8)
    squares = torch.tensor([0.5, 2.0, 30.0, 0.0])
    tables.apply(RowGradients(rows, gradients, torch.ones(4), gradients.square().sum(dim=1)), squares)
    assert tables.states()["moments"][rows].tolist() == squares.tolist()
    c = optimizer.replicas  # no row has a past: its density's estimate is 0
    root = (squares.double() / c).sqrt() + optimizer.eps
    before[rows] -= optimizer.lr * gradients.double() / root[:, None]
    assert_close(tables.weights(), before, "weights")


@pytest.mark.parametrize("name", ["sgd", "outside"])
def test_fbgemm_has_no_means_of_whole_rows(name: str):
    tables = filled("fbgemm", shards_of("one-hot", 4), row_optimizer(LEVELS[name]))
    with pytest.raises(PlanError, match="use kernel numba or torch"):
        tables.apply(RowGradients(torch.tensor([0]), torch.ones(1, 4)), torch.ones(1))


@pytest.mark.parametrize(("name", "lagged"), [rule for rule in RULES if rule not in FBGEMM])
def test_fbgemm_refuses_optimizers_that_it_lacks(name: str, lagged: bool):
    optimizer = row_optimizer(LEVELS[name], lagged)
    with pytest.raises(PlanError, match=f"fbgemm has no {optimizer.kind}.*use kernel numba or torch"):
        make_tables("fbgemm", shards_of("one-hot", 4), optimizer, CPU)


def test_numba_refuses_a_gpu():
    with pytest.raises(PlanError, match="kernel numba is compiled for the CPU, not for cuda"):
        make_tables("numba", shards_of("one-hot", 4), RowOptimizer("sgd", 0.1), torch.device("cuda"))


@pytest.mark.parametrize(("kernel", "samples"), [("numba", 0), *((kernel, 2) for kernel in KERNELS)])
def test_a_batch_of_nothing_changes_nothing(kernel: str, samples: int):
    """No samples at all, or none of whose rows is held."""
    tables = filled(kernel, shards_of("row-split", 4), row_optimizer(LEVELS["outside"]))
    before = tables.weights().clone()
    ids = torch.tensor([[0, 29], [0, 19], [1, 2], [5, 19]], dtype=torch.int32)[:, :samples].contiguous()
    pooled = tables.lookup(ids)
    assert pooled.shape == (samples, 8)
    assert not pooled.any()
    tables.update(ids, torch.ones(samples, 8))
    assert tables.touched(ids).shape == (0,)
    summed = tables.sum(ids, torch.ones(samples, 8))
    assert summed.gradients.shape == (0, 4)
    assert torch.equal(tables.weights(), before)
    assert not tables.states()["moments"].any()


def zipf_ids(tables: int, rows: int, samples: int, seed: int) -> torch.Tensor:
    """Head-heavy ids [tables, B] int32, exponent 1.05, popular rows anywhere in a table."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(np.arange(1, rows + 1) ** -1.05)
    popularity = np.searchsorted(cumulative, rng.random((tables, samples)) * cumulative[-1])
    places = np.stack([np.random.default_rng(100 + table).permutation(rows) for table in range(tables)])
    return torch.from_numpy(np.take_along_axis(places, popularity, axis=1).astype(np.int32))


@pytest.mark.parametrize("name", ["sgd", "outside", "scaled inside"])
def test_numba_and_fbgemm_agree_on_head_heavy_ids(name: str):
    shards = [TableShard(0, table, 0, 10_000, 0, 16, 10_000, 16) for table in range(26)]
    fbgemm, numba = (filled(kernel, shards, row_optimizer(LEVELS[name])) for kernel in ("fbgemm", "numba"))
    for seed in range(3):
        ids = zipf_ids(26, 10_000, 2048, seed)
        gradients = torch.randn(2048, 26 * 16, generator=torch.Generator().manual_seed(seed)) * 0.05
        assert torch.equal(fbgemm.touched(ids), numba.touched(ids))
        assert_close(numba.lookup(ids), fbgemm.lookup(ids).double(), "pooled")
        fbgemm.update(ids, gradients)
        numba.update(ids, gradients)
    assert_close(numba.weights(), fbgemm.weights().double(), "weights")


@pytest.mark.parametrize(("kernel", "name", "lagged"), WITH_KERNEL)
def test_the_same_steps_give_the_same_bits(kernel: str, name: str, lagged: bool):
    states = []
    for _ in range(2):
        tables = filled(kernel, shards_of("several", 16), row_optimizer(LEVELS[name], lagged))
        generator = torch.Generator().manual_seed(5)
        for _ in range(3):
            tables.update(random_ids(tables.shards, 200, generator), torch.randn(200, 64, generator=generator))
        states.append([tables.weights(), *tables.states().values()])
    assert all(map(torch.equal, *states))


@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_rows_are_used_where_their_storage_is_now(kernel: str):
    """Replicas that keep a part of a shard each free the storage between steps, and get another one."""
    tables = filled(kernel, shards_of("one-hot", 4), row_optimizer(LEVELS["outside"]))
    ids, gradients = torch.arange(12, dtype=torch.int32)[None], torch.ones(12, 4)
    before, live = tables.lookup(ids), [tables.weights(), tables.states()["moments"]]
    kept = [tensor.clone() for tensor in live]
    for tensor, copy in zip(live, kept, strict=True):
        size = tensor.untyped_storage().nbytes()
        tensor.untyped_storage().resize_(0)
        elsewhere = torch.full((1000,), 7.0)  # what was there is somebody else's now
        tensor.untyped_storage().resize_(size)
        tensor.copy_(copy)
        assert elsewhere[0] == 7
    assert torch.equal(tables.lookup(ids), before)
    tables.update(ids, gradients)
    assert_close(tables.weights(), kept[0].double() - 0.1 / 1.1, "weights")


COMPILE = """
import sys, numpy as np
from meshrec.embeddings.kernels.compiled.loops import compiled_loops
ids, shards = np.array([[3, 4]], np.int32), np.array([[0, 50, 0, 1]])
for dim in map(int, sys.argv[1:]):
    pooled = np.empty((2, dim), np.float32)
    compiled_loops(dim).lookup(ids, shards, np.arange(50 * dim, dtype=np.float32).reshape(50, dim), pooled)
    print(pooled.sum(axis=1).tolist())
"""


def test_processes_that_compile_at_once_get_their_own_code(tmp_path: Path):
    """Of different widths at the same time into one cache, then of the width that the other one compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", COMPILE, *dims], env=environment, stdout=subprocess.PIPE, text=True)
        for dims in (["4", "8"], ["8", "4"])
    ]
    outputs = [process.communicate(timeout=120)[0].split("\n")[:2] for process in started]
    of_4, of_8 = "[54.0, 70.0]", "[220.0, 284.0]"
    assert outputs == [[of_4, of_8], [of_8, of_4]]
    # a name for each width: numba numbers the files behind a name, and two that write at once take the same number
    assert len({path.name for path in tmp_path.rglob("loops.lookup_*.nbi")}) == 2


def test_live_says_what_runs():
    optimizer = RowOptimizer("rowwise_adagrad", 0.25, 0.5)
    for kernel, name in (("numba", "compiled.NumbaTables"), ("torch", "reference.TorchTables")):
        live = make_tables(kernel, shards_of("one-hot", 4), optimizer, CPU).live()
        wanted = {"optimizer": "EXACT_ROWWISE_ADAGRAD", "lr": 0.25, "eps": 0.5, "weight_dtype": "float32", "device": "cpu"}
        assert live == wanted | {"kernel": f"meshrec.embeddings.kernels.{name}"}
