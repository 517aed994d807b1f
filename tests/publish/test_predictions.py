"""A moment scale is a learning rate; cells that must agree are known before they run."""

import pytest

from meshrec.embeddings.adagrad import kernel_optimizer
from meshrec.experiment import Experiment
from meshrec.experiment.schema import Layout, MomentScaledRowwiseAdagrad, Optimizer, RowwiseAdagrad, Sgd
from meshrec.publish.predictions import kernel, moment_note, predicted_none, same_kernel
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
    used = kernel_optimizer(level)
    _, lr, eps = kernel(level)
    assert (lr, eps) == pytest.approx((used.lr, used.eps + used.initial_moment))


def test_same_kernels() -> None:
    assert same_kernel(SCALED, ROOT)
    assert not same_kernel(SCALED, PLAIN)
    assert not same_kernel(SCALED, ROOT.model_copy(update={"lr": 0.0425}))
    assert not same_kernel(SCALED.model_copy(update={"eps": 1e-3}), ROOT.model_copy(update={"eps": 1e-3}))
    assert not same_kernel(PLAIN, Sgd(kind="sgd", lr=0.03))


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
