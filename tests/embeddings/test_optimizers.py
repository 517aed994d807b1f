"""Optimizer levels as what kernels compute, worked out by hand, and what fbgemm says of itself."""

import math

import pytest
import torch

from meshrec.embeddings.kernels import FbgemmTables
from meshrec.embeddings.optimizers import RowOptimizer, row_optimizer
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import (
    DensityScaledRowwiseAdagrad,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    RowwiseAdagrad,
    Sgd,
)


def scaled(placement: str, c: float) -> RowOptimizer:
    settings = {"kind": "moment_scaled_rowwise_adagrad", "lr": 0.1, "eps": 0.01, "eps_placement": placement, "moment_scale": c}
    return row_optimizer(MomentScaledRowwiseAdagrad.model_validate(settings))


def test_plain_levels():
    assert row_optimizer(Sgd(kind="sgd", lr=0.3)) == RowOptimizer("sgd", 0.3)
    outside = RowwiseAdagrad(kind="rowwise_adagrad", lr=0.1, eps=0.01)
    assert row_optimizer(outside) == RowOptimizer("rowwise_adagrad", 0.1, 0.01)
    inside = outside.model_copy(update={"eps_placement": "inside"})
    assert row_optimizer(inside) == RowOptimizer("rowwise_adagrad", 0.1, 0.0, initial_moment=0.01)


@pytest.mark.parametrize(("c", "root"), [(0.25, 0.5), (1, 1), (4, 2), (16, 4)])
def test_a_moment_scale_is_a_learning_rate_and_an_epsilon(c: float, root: float):
    assert scaled("outside", c) == RowOptimizer("rowwise_adagrad", root * 0.1, root * 0.01)
    assert scaled("inside", c) == RowOptimizer("rowwise_adagrad", root * 0.1, 0.0, initial_moment=c * 0.01)


@pytest.mark.parametrize("placement", ["outside", "inside"])
@pytest.mark.parametrize("c", [0.5, 2, 3])
def test_the_first_step_of_a_row_is_the_scaled_optimizers(placement: str, c: float):
    """g = 0.2 in every column: v = 0.04."""
    found = scaled(placement, c)
    step = found.lr * 0.2 / (math.sqrt(found.initial_moment + 0.04) + found.eps)
    root = math.sqrt(0.04 / c) + 0.01 if placement == "outside" else math.sqrt(0.04 / c + 0.01)
    assert step == pytest.approx(0.1 * 0.2 / root, rel=1e-14)


def test_momentum_and_density():
    momentum = MomentumRowwiseAdagrad(kind="momentum_rowwise_adagrad", lr=0.1, beta=0.9, eps=0.01)
    assert row_optimizer(momentum) == RowOptimizer("momentum_rowwise_adagrad", 0.1, 0.01, beta=0.9)
    density = DensityScaledRowwiseAdagrad(kind="density_scaled_rowwise_adagrad", lr=0.1, replicas=4, eps=0.01)
    assert row_optimizer(density) == RowOptimizer("density_scaled_rowwise_adagrad", 0.1, 0.01, replicas=4)


@pytest.mark.parametrize(
    ("optimizer", "widths"),
    [
        (RowOptimizer("sgd", 0.1), {}),
        (RowOptimizer("rowwise_adagrad", 0.1), {"moments": 1}),
        (RowOptimizer("rowwise_adagrad", 0.1, lagged=True), {"moments": 1, "lagged_moments": 1}),
        (RowOptimizer("momentum_rowwise_adagrad", 0.1), {"moments": 1, "velocity": 0}),
        (RowOptimizer("density_scaled_rowwise_adagrad", 0.1), {"moments": 1, "density": 4}),
    ],
)
def test_state_of_a_row(optimizer: RowOptimizer, widths: dict[str, int]):
    assert optimizer.state_widths() == widths


@pytest.mark.parametrize("kind", ["sgd", "rowwise_adagrad", "momentum_rowwise_adagrad", "density_scaled_rowwise_adagrad"])
def test_moments_lag_where_there_are_any(kind: str):
    levels = {
        "sgd": Sgd(kind="sgd", lr=0.1),
        "rowwise_adagrad": RowwiseAdagrad(kind="rowwise_adagrad", lr=0.1),
        "momentum_rowwise_adagrad": MomentumRowwiseAdagrad(kind="momentum_rowwise_adagrad", lr=0.1, beta=0.5),
        "density_scaled_rowwise_adagrad": DensityScaledRowwiseAdagrad(
            kind="density_scaled_rowwise_adagrad", lr=0.1, replicas=2
        ),
    }
    found = row_optimizer(levels[kind], lagged=True)
    assert found.lagged == found.has_moments == (kind != "sgd")


def test_live_reads_fbgemm_and_not_the_settings():
    optimizer = RowOptimizer("rowwise_adagrad", 0.25, 0.5, 2.0)
    tables = FbgemmTables([TableShard(0, 0, 0, 4, 0, 8, 4, 8)], optimizer, torch.device("cpu"))
    assert tables.live() == {
        "kernel": "fbgemm_gpu.SplitTableBatchedEmbeddingBagsCodegen",
        "optimizer": "EXACT_ROWWISE_ADAGRAD",
        "lr": 0.25,
        "eps": 0.5,
        "weight_dtype": "float32",
        "device": "cpu",
    }
    assert tables.states()["moments"].tolist() == [2.0] * 4
    tables._module.learning_rate_tensor.fill_(0.125)
    assert tables.live()["lr"] == 0.125
