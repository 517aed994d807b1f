"""A moment scale is a learning rate; cells that must agree are known before they run."""

import pytest

from meshrec.embeddings.optimizers import row_optimizer
from meshrec.experiment import Experiment
from meshrec.experiment.schema import (
    DensityScaledRowwiseAdagrad,
    Layout,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    Optimizer,
    RowwiseAdagrad,
    Sgd,
)
from meshrec.publish.predictions import kernel, moment_note, predicted_none, same_kernel, same_training
from meshrec.publish.wording import CHECK, CHECK_FAILED, sentence
from publish.planted import smoke, with_analysis

PLAIN = RowwiseAdagrad(kind="rowwise_adagrad", lr=0.03)
SCALED = MomentScaledRowwiseAdagrad(kind="moment_scaled_rowwise_adagrad", lr=0.03, moment_scale=2)
ROOT = RowwiseAdagrad(kind="rowwise_adagrad", lr=0.0424264)


@pytest.mark.parametrize("level", [PLAIN, SCALED, Sgd(kind="sgd", lr=0.1)])
@pytest.mark.parametrize("placement", ["outside", "inside"])
def test_is_what_the_trainer_uses(level: Optimizer, placement: str) -> None:
    if level.kind != "sgd":
        level = level.model_copy(update={"eps": 1e-4, "eps_placement": placement})
    used = row_optimizer(level)
    _, lr, eps = kernel(level)
    assert (lr, eps) == pytest.approx((used.lr, used.eps + used.initial_moment))


def test_same_kernels() -> None:
    assert same_kernel(SCALED, ROOT)
    assert not same_kernel(SCALED, PLAIN)
    assert not same_kernel(SCALED, ROOT.model_copy(update={"lr": 0.0425}))
    assert not same_kernel(SCALED.model_copy(update={"eps": 1e-3}), ROOT.model_copy(update={"eps": 1e-3}))
    assert not same_kernel(PLAIN, Sgd(kind="sgd", lr=0.03))


def momentum(beta: float, **changes: float) -> MomentumRowwiseAdagrad:
    return MomentumRowwiseAdagrad(kind="momentum_rowwise_adagrad", lr=0.03, beta=beta).model_copy(update=changes)


def density(replicas: int, **changes: float) -> DensityScaledRowwiseAdagrad:
    level = DensityScaledRowwiseAdagrad(kind="density_scaled_rowwise_adagrad", lr=0.03, replicas=replicas)
    return level.model_copy(update=changes)


def test_momentum_and_density_are_plain_only_without_effect() -> None:
    """β = 0 has no past, and one replica nothing to make up for."""
    assert same_kernel(PLAIN, momentum(0))
    assert same_kernel(PLAIN, density(1))
    for level in (momentum(0.9), density(2)):
        for other in (PLAIN, SCALED, momentum(0.8), density(3), level.model_copy(update={"lr": 0.031})):
            assert not same_kernel(level, other)
        assert same_kernel(level, level)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"sharding": "row-wise"}, True),
        ({"tables": {3: "replicated"}}, True),
        ({"sync_rows": "whole"}, True),
        ({"sync_overlap": True}, True),
        ({"replica_storage": "sharded", "sync_rows": "whole"}, True),
        ({"sync_every": 2}, False),
        ({"sync_moments": "local"}, False),
        ({"sync_moments": "lagged"}, False),
        ({"rank_order": "shards-adjacent"}, False),
        ({"replicas": 4}, False),
        ({"sync": "gradients"}, False),
    ],
    ids=str,
)
def test_where_rows_lie_and_how_they_travel_changes_no_number(change: dict[str, object], same: bool) -> None:
    assert same_training(Layout(replicas=2), Layout.model_validate({"replicas": 2, **change})) == same
    assert same_training(Layout(), Layout.model_validate({**change, "replicas": 1}))


def controls() -> Experiment:
    """With a pair of the same learning rate, one that isn't, and one that exchanges gradients."""
    experiment = smoke()
    pairs = {"moment_or_lr": ["2d.root", "2d.scaled"], "exact": ["1d.plain", "exact.plain"], "both": ["1d.plain", "2d.scaled"]}
    return with_analysis(experiment, pairs=pairs).model_copy(
        update={
            "optimizers": {"plain": PLAIN, "scaled": SCALED, "root": ROOT},
            "layouts": experiment.layouts | {"exact": Layout(replicas=2, sync="gradients", ranks=[2, 4])},
        }
    )


@pytest.mark.parametrize(
    ("comparison", "metric", "none"),
    [
        ("moment_or_lr", "ne", True),
        ("moment_or_lr", "samples_per_second", True),
        ("exact", "ne", True),
        ("exact", "samples_per_second", False),  # the same weights, other messages
        ("both", "ne", False),
        ("layout", "ne", False),
        ("optimizer", "ne", False),
        ("interaction", "ne", False),
    ],
)
def test_what_arithmetic_predicts_is_called_a_check(comparison: str, metric: str, none: bool) -> None:
    assert predicted_none(controls(), comparison, metric) == none
    row = {"comparison": comparison, "metric": metric, "ranks": 2, "scaling": "strong", "n": 3, "verdict": "different"}
    row |= {"estimate": 0.1, "ci_low": 0.05, "ci_high": 0.15, "p_adjusted": 0.01, "margin": 0.005, "note": None}
    assert (CHECK_FAILED in sentence(controls(), row)) == none
    passed = row | {"verdict": "equivalent", "p_adjusted": 0.5, "p_tost": 0.01}
    assert (CHECK in sentence(controls(), passed)) == none


def test_factors_whose_levels_compute_the_same_are_checks_too() -> None:
    same = with_analysis(controls(), factorial=controls().analysis.factorial.model_copy(update={"layouts": ["1d", "exact"]}))
    assert predicted_none(same, "layout", "ne")
    assert predicted_none(same, "interaction", "ne")
    assert not predicted_none(same, "layout", "samples_per_second")
    assert not predicted_none(same, "optimizer", "ne")


def test_note_gives_this_experiments_numbers() -> None:
    note = moment_note(controls())
    assert note
    assert "scaled (lr 0.03, c = 2) computes what plain row-wise AdaGrad does with lr 0.04243" in note
    assert "ε multiplied by √c:" in note
    assert moment_note(smoke().model_copy(update={"optimizers": {"plain": PLAIN}})) is None
