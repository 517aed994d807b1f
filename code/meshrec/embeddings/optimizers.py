"""Embedding optimizers as what a kernel computes for a row.

The moment-scaled optimizer is *exactly* plain row-wise AdaGrad with other parameters, so that one kernel serves both:

* ε outside the root: lr·g/(√(v/c) + ε) = √c·lr·g/(√v + √c·ε);
* ε inside: lr·g/√(v/c + ε) = √c·lr·g/√(v + c·ε), where c·ε is put into v before the first step and the kernel's own ε is 0.
"""

import math
from dataclasses import dataclass
from typing import Literal

from meshrec.experiment.factors import (
    DensityScaledRowwiseAdagrad,
    EpsPlacement,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    Optimizer,
    Sgd,
)

RowKind = Literal["sgd", "rowwise_adagrad", "momentum_rowwise_adagrad", "density_scaled_rowwise_adagrad"]

DENSITY_STATISTICS = 4
"""Numbers that the density-scaled optimizer keeps for a row: see `RowOptimizer`."""


@dataclass(frozen=True)
class RowOptimizer:
    """What a kernel computes for a row of D numbers, with g the sum over the row's hits in the batch:

    * `sgd`: w ← w − lr·g;
    * `rowwise_adagrad`: v ← v + mean_D(g²), then w ← w − lr·g/(√v + ε);
    * `momentum_rowwise_adagrad`: v likewise, u ← β·u + g, then w ← w − lr·u/(√v + ε); rows without a hit keep u and w;
    * `density_scaled_rowwise_adagrad`: v likewise, then w ← w − lr·g/(√(v/c) + ε) with the row's own c = (Kρ + M)/(Kρ + 1).

    With `lagged`, the root is taken of the row's moment as of the last synchronisation of replicas; of a row that had none
    then (v = `initial_moment`), of the present one.

    The density's K, a row's hits in a global batch, and ρ, the share of the mean in a hit's gradient, are estimated from four
    sums over the row's past steps, over its group's hits i = 1 … k with gradients gᵢ and g = Σgᵢ: ‖g‖² − Σ‖gᵢ‖², k(k − 1),
    Σ‖gᵢ‖² and k. The first over the second estimates ‖μ‖², the third over the fourth ‖μ‖² + tr Σ; ρ is their ratio, kept in
    [0, 1], and 0 before a row was hit twice in a step. K is M times the fourth over the number of steps. The estimates exclude
    the step that they are used in.
    """

    kind: RowKind
    lr: float
    eps: float = 0.0
    initial_moment: float = 0.0
    """v before the first step, of every row."""
    beta: float = 0.0
    replicas: int = 1
    """M of the density's c."""
    lagged: bool = False

    @property
    def has_moments(self) -> bool:
        """Whether rows have a second moment."""
        return self.kind != "sgd"

    def state_widths(self) -> dict[str, int]:
        """Numbers a row, by name of the state; 0 is one for each column of the row."""
        widths = {"moments": 1} if self.has_moments else {}
        if self.lagged:
            widths["lagged_moments"] = 1
        if self.kind == "momentum_rowwise_adagrad":
            widths["velocity"] = 0
        if self.kind == "density_scaled_rowwise_adagrad":
            widths["density"] = DENSITY_STATISTICS
        return widths


def row_optimizer(level: Optimizer, lagged: bool = False) -> RowOptimizer:
    """What a kernel computes for an optimizer level, with moments that lag one synchronisation or not."""
    if isinstance(level, Sgd):
        return RowOptimizer("sgd", level.lr)
    if isinstance(level, MomentumRowwiseAdagrad):
        return RowOptimizer("momentum_rowwise_adagrad", level.lr, level.eps, beta=level.beta, lagged=lagged)
    if isinstance(level, DensityScaledRowwiseAdagrad):
        return RowOptimizer("density_scaled_rowwise_adagrad", level.lr, level.eps, replicas=level.replicas, lagged=lagged)
    scale = level.moment_scale if isinstance(level, MomentScaledRowwiseAdagrad) else 1.0
    return _rowwise(level.lr, level.eps, level.eps_placement, scale, lagged)


def _rowwise(lr: float, eps: float, placement: EpsPlacement, scale: float, lagged: bool) -> RowOptimizer:
    root = math.sqrt(scale)
    if placement == "outside":
        return RowOptimizer("rowwise_adagrad", root * lr, root * eps, 0.0, lagged=lagged)
    return RowOptimizer("rowwise_adagrad", root * lr, 0.0, scale * eps, lagged=lagged)
