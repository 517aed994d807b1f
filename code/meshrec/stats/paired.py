"""The headline interval: paired t on per-seed differences."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats


@dataclass(frozen=True)
class PairedEstimate:
    """Mean of n paired differences with its uncertainty. What n doesn't allow is NaN."""

    n: int
    estimate: float
    """Mean difference, in the metric's unit."""
    ci_low: float
    ci_high: float
    """Two-sided interval: estimate ± t(n−1) · sd / √n."""
    p: float
    """Two-sided p of "the true mean difference is zero"."""
    sd: float
    """Standard deviation of the differences (ddof = 1): σ_diff."""
    d_z: float
    """Effect size: estimate / sd."""


def paired_t(differences: NDArray[np.float64], confidence: float = 0.95) -> PairedEstimate:
    """Estimate, interval, p and effect size of paired differences.

    Differences that are all equal have no spread to test against: the interval is the point itself and p is 1 where they
    are all zero (the two treatments computed the same numbers), else 0.

    Args:
        differences: shape (n,), finite, one per seed.
        confidence: level of the interval, in (0, 1).

    Raises:
        ValueError: not one-dimensional, or not finite.
    """
    differences = checked(differences)
    n = len(differences)
    estimate = float(differences.mean()) if n else math.nan
    if n < 2:
        return PairedEstimate(n, estimate, *[math.nan] * 5)
    if np.ptp(differences) == 0:
        estimate = float(differences[0])
        d_z = math.copysign(math.inf, estimate) if estimate else 0.0
        return PairedEstimate(n, estimate, estimate, estimate, float(estimate == 0), 0.0, d_z)
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(confidence)
    sd = float(differences.std(ddof=1))
    return PairedEstimate(n, estimate, float(interval.low), float(interval.high), float(test.pvalue), sd, estimate / sd)


def checked(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """The differences as float64, or an error: a NaN would spread into every number without a word."""
    differences = np.asarray(differences, dtype=np.float64)
    if differences.ndim != 1 or not np.isfinite(differences).all():
        raise ValueError(
            f"found differences of shape {differences.shape}, {np.count_nonzero(~np.isfinite(differences))} of them not "
            "finite; want one finite number per seed: drop the seeds of failed runs first"
        )
    return differences
