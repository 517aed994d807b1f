"""Embedding optimizers as parameters of the two kernels there are: SGD and plain row-wise AdaGrad.

The moment-scaled optimizer is *exactly* plain row-wise AdaGrad with other parameters, so that one kernel serves both:

* ε outside the root: lr·g/(√(v/c) + ε) = √c·lr·g/(√v + √c·ε);
* ε inside: lr·g/√(v/c + ε) = √c·lr·g/√(v + c·ε), where c·ε is put into v before the first step and the kernel's own ε is 0.
"""

import math
from dataclasses import dataclass
from typing import Literal

from meshrec.experiment.schema import EpsPlacement, MomentScaledRowwiseAdagrad, Optimizer, Sgd


@dataclass(frozen=True)
class KernelOptimizer:
    """What a kernel is made with: v ← v + mean(g²), then w ← w − lr·g/(√v + eps); or w ← w − lr·g."""

    kind: Literal["sgd", "rowwise_adagrad"]
    lr: float
    eps: float = 0.0
    initial_moment: float = 0.0
    """v before the first step, of every row."""

    @property
    def has_moments(self) -> bool:
        """Whether rows have a second moment."""
        return self.kind == "rowwise_adagrad"


def kernel_optimizer(level: Optimizer) -> KernelOptimizer:
    """Parameters of the kernel that computes an optimizer level."""
    if isinstance(level, Sgd):
        return KernelOptimizer("sgd", level.lr)
    scale = level.moment_scale if isinstance(level, MomentScaledRowwiseAdagrad) else 1.0
    return _rowwise(level.lr, level.eps, level.eps_placement, scale)


def _rowwise(lr: float, eps: float, placement: EpsPlacement, scale: float) -> KernelOptimizer:
    root = math.sqrt(scale)
    if placement == "outside":
        return KernelOptimizer("rowwise_adagrad", root * lr, root * eps, 0.0)
    return KernelOptimizer("rowwise_adagrad", root * lr, 0.0, scale * eps)
