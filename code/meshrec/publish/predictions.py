"""What arithmetic says before anything is run: a moment scale is a learning rate, and some cells must agree.

With ε outside the root, lr·g/(√(v/c) + ε) = √c·lr·g/(√v + √c·ε); inside it, lr·g/√(v/c + ε) = √c·lr·g/√(v + c·ε).
"""

import math
from typing import Any

from meshrec.experiment import Experiment
from meshrec.experiment.schema import (
    DensityScaledRowwiseAdagrad,
    Layout,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    Optimizer,
    Sgd,
)

SAME = 1e-5
"""Up to this, relative in the learning rate and absolute in ε, kernels are the same."""

Kernel = tuple[str, float, float]
"""Kind with its other settings, learning rate and ε of the plain optimizer that computes the same."""


def kernel(level: Optimizer) -> Kernel:
    """Plain optimizer that an optimizer level amounts to."""
    if isinstance(level, Sgd):
        return "sgd", level.lr, 0.0
    if isinstance(level, MomentumRowwiseAdagrad):
        kind = "rowwise_adagrad, ε outside" if level.beta == 0 else f"momentum {level.beta}"
        return kind, level.lr, level.eps
    if isinstance(level, DensityScaledRowwiseAdagrad):
        kind = "rowwise_adagrad, ε outside" if level.replicas == 1 else f"density-scaled for {level.replicas} replicas"
        return kind, level.lr, level.eps
    c = level.moment_scale if isinstance(level, MomentScaledRowwiseAdagrad) else 1.0
    inside = level.eps_placement == "inside"
    return f"rowwise_adagrad, ε {level.eps_placement}", math.sqrt(c) * level.lr, (c if inside else math.sqrt(c)) * level.eps


def same_kernel(one: Optimizer, other: Optimizer) -> bool:
    """Whether two levels compute the same update up to `SAME`."""
    (kind_1, lr_1, eps_1), (kind_2, lr_2, eps_2) = kernel(one), kernel(other)
    return kind_1 == kind_2 and math.isclose(lr_1, lr_2, rel_tol=SAME) and math.isclose(eps_1, eps_2, abs_tol=SAME)


def same_training(one: Layout, other: Layout) -> bool:
    """Whether two layouts compute the same weights up to rounding: it doesn't matter on which ranks rows lie, nor how they
    travel; it does which samples make up a group."""
    return _training(one) == _training(other)


def _training(layout: Layout) -> tuple[int | str, ...]:
    if layout.replicas == 1 or layout.sync == "gradients":
        return (1,)
    return layout.replicas, layout.sync_every, layout.sync_moments, layout.rank_order


def predicted_none(experiment: Experiment, comparison: str, metric: str) -> bool:
    """Whether arithmetic predicts that a comparison shows no difference, so that its result checks the code.

    Speed is predicted the same only where the layout is one and the same.
    """
    (layout_0, layout_1), (optimizer_0, optimizer_1) = (
        experiment.analysis.factorial.layouts,
        experiment.analysis.factorial.optimizers,
    )
    layouts = same_layouts(experiment, layout_0, layout_1, metric)
    optimizers = _same_optimizers(experiment, optimizer_0, optimizer_1)
    known = {"layout": layouts, "optimizer": optimizers, "interaction": layouts or optimizers}
    if comparison in known:
        return known[comparison]
    (layout_0, optimizer_0), (layout_1, optimizer_1) = (cell.split(".") for cell in experiment.analysis.pairs[comparison])
    return same_layouts(experiment, layout_0, layout_1, metric) and _same_optimizers(experiment, optimizer_0, optimizer_1)


def same_layouts(experiment: Experiment, one: str, other: str, metric: str) -> bool:
    """Whether two layouts are predicted to give the same metric."""
    speed = metric == "samples_per_second"
    return one == other or (not speed and same_training(experiment.layouts[one], experiment.layouts[other]))


def _same_optimizers(experiment: Experiment, one: str, other: str) -> bool:
    return same_kernel(experiment.optimizers[one], experiment.optimizers[other])


def moment_note(experiment: Experiment) -> str | None:
    """That a moment scale is a learning rate, with this experiment's numbers; None without such an optimizer."""
    scaled = {label: level for label, level in experiment.optimizers.items() if isinstance(level, MomentScaledRowwiseAdagrad)}
    if not scaled:
        return None
    examples = [_example(label, level) for label, level in scaled.items()]
    eps = (
        "with ε multiplied by √c"
        if all(level.eps_placement == "outside" for level in scaled.values())
        else ("with ε multiplied by √c where it stands outside the root, by c where inside")
    )
    return (
        f"A moment scale c is a learning rate of √c·lr, {eps}: {'; '.join(examples)}. "
        "An optimizer effect here is an effect of that learning rate."
    )


def _example(label: str, level: Any) -> str:
    _, lr, _ = kernel(level)
    return f"{label} (lr {level.lr:g}, c = {level.moment_scale:g}) computes what plain row-wise AdaGrad does with lr {lr:.4g}"
