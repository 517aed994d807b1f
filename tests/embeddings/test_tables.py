"""Every kernel against the definition in float64, over several steps with repeated rows."""

import numpy as np
import pytest
import torch

from meshrec.embeddings.adagrad import KernelOptimizer, kernel_optimizer
from meshrec.embeddings.kernels import FbgemmTables, ShardTables, TorchTables
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import MomentScaledRowwiseAdagrad, RowwiseAdagrad, Sgd
from support.reference import largest_difference, update

LEVELS = {
    "sgd": Sgd(kind="sgd", lr=0.3),
    **{
        f"plain {placement} {eps}": RowwiseAdagrad(kind="rowwise_adagrad", lr=0.1, eps=eps, eps_placement=placement)
        for placement in ("outside", "inside")
        for eps in (1e-8, 1e-2, 1.0)
    },
    **{
        f"scaled {placement} {c}": MomentScaledRowwiseAdagrad(
            kind="moment_scaled_rowwise_adagrad", lr=0.1, eps=0.01, eps_placement=placement, moment_scale=c
        )
        for placement in ("outside", "inside")
        for c in (0.5, 1, 2, 16)
    },
}


@pytest.fixture(params=[FbgemmTables, TorchTables])
def kernel(request: pytest.FixtureRequest) -> type[ShardTables]:
    return request.param


@pytest.mark.parametrize("name", LEVELS)
def test_the_kernel_computes_the_definition(kernel: type[ShardTables], name: str):
    level = LEVELS[name]
    optimizer = kernel_optimizer(level)
    tables = kernel([TableShard(0, 0, 0, 12), TableShard(0, 3, 5, 14)], 8, optimizer, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    tables.weights().copy_(torch.randn(21, 8, generator=generator))
    weights, moments = tables.weights().double(), torch.zeros(21, dtype=torch.float64)
    for _ in range(5):
        ids = torch.stack([torch.randint(0, 12, (30,), generator=generator), torch.randint(0, 9, (30,), generator=generator)])
        gradient = torch.randn(30, 16, generator=generator)
        tables.lookup(ids.flatten(), torch.arange(61)).backward(gradient)
        summed = torch.zeros(21, 8, dtype=torch.float64)
        for shard, first_row in enumerate((0, 12)):
            summed.index_add_(0, ids[shard] + first_row, gradient[:, 8 * shard : 8 * shard + 8].double())
        update(level.model_dump(), weights, moments, summed)
    assert largest_difference([tables.weights().numpy()], [weights.numpy()]) < 3e-6
    if optimizer.has_moments:
        wanted = moments + optimizer.initial_moment
        np.testing.assert_allclose(tables.moments().numpy(), wanted.numpy(), rtol=2e-6)


@pytest.mark.parametrize("name", ["sgd", "plain outside 0.01", "scaled inside 2"])
def test_applying_summed_gradients_is_the_same_update(kernel: type[ShardTables], name: str):
    """Rows of both shards, unequally many, against the definition; untouched rows stay."""
    level = LEVELS[name]
    optimizer = kernel_optimizer(level)
    tables = kernel(
        [TableShard(0, 0, 0, 12), TableShard(0, 2, 0, 3), TableShard(0, 3, 5, 14)], 8, optimizer, torch.device("cpu")
    )
    generator = torch.Generator().manual_seed(1)
    tables.weights().copy_(torch.randn(24, 8, generator=generator))
    weights, moments = tables.weights().double(), torch.zeros(24, dtype=torch.float64)
    for rows in ([0, 3, 11, 15, 23], [1, 3, 4, 5, 6, 7, 12, 13, 14], [20]):
        gradient = torch.randn(len(rows), 8, generator=generator)
        tables.apply(torch.tensor(rows), gradient)
        summed = torch.zeros(24, 8, dtype=torch.float64)
        summed[rows] = gradient.double()
        update(level.model_dump(), weights, moments, summed)
    assert largest_difference([tables.weights().numpy()], [weights.numpy()]) < 3e-6
    if optimizer.has_moments:
        np.testing.assert_allclose(tables.moments().numpy(), (moments + optimizer.initial_moment).numpy(), rtol=2e-6)


def test_lookup_sums_bags_and_leaves_empty_ones_at_zero(kernel: type[ShardTables]):
    tables = kernel([TableShard(0, 0, 0, 4)], 4, KernelOptimizer("sgd", 0.1), torch.device("cpu"))
    tables.weights().copy_(torch.arange(16.0).view(4, 4))
    pooled = tables.lookup(torch.tensor([1, 3, 2]), torch.tensor([0, 2, 2, 3]))
    np.testing.assert_array_equal(pooled.detach().numpy(), [[16, 18, 20, 22], [0, 0, 0, 0], [8, 9, 10, 11]])


def test_live_reads_the_kernel_and_not_its_settings():
    tables = FbgemmTables([TableShard(0, 0, 0, 4)], 4, KernelOptimizer("rowwise_adagrad", 0.25, 0.5, 2.0), torch.device("cpu"))
    assert tables.live() | {"optimizer": "EXACT_ROWWISE_ADAGRAD", "lr": 0.25, "eps": 0.5, "device": "cpu"} == tables.live()
    assert tables.moments().tolist() == [2.0] * 4
    tables._module.learning_rate_tensor.fill_(0.125)
    assert tables.live()["lr"] == 0.125
