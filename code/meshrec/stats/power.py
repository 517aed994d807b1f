"""How often n seeds would settle a question, given the spread of the differences. Exact for normal differences."""

import math
from collections.abc import Callable

from scipy import integrate, special

LARGEST_N = 10_000
NEGLIGIBLE = 1e-12
"""Probability of the tails of the spread that aren't integrated."""


def paired_t_power(effect: float, sd: float, n: int, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t test finds a true mean difference, exact.

    This is a probability of the noncentral t distribution, integrated here because SciPy's `nct` returns NaN for some
    ordinary arguments (effect/sd = 12, n = 3).

    Args:
        effect: true mean difference, e.g. the margin.
        sd: σ_diff, standard deviation of the differences, in the same unit; 0 gives power 1 for any effect.
        n: seeds; NaN is returned below 2.
        alpha: two-sided level of the test.
    """
    if n < 2 or math.isnan(sd):
        return math.nan
    if sd == 0:
        return 1.0 if effect else alpha
    shifted, critical = abs(effect) / sd * math.sqrt(n), float(special.stdtrit(n - 1, 1 - alpha / 2))

    def found(s: float) -> float:
        return float(special.ndtr(shifted - critical * s) + special.ndtr(-critical * s - shifted))

    return _over_spread(found, n)


def tost_power(margin: float, sd: float, n: int, alpha: float = 0.05) -> float:
    """Chance that the paired TOST shows equivalence when the true mean difference is zero (Phillips 1990), exact.

    The mean d and the spread s of n normal differences are independent, and TOST accepts where |d| < margin − t·s/√n: the
    power is the chance of that given s, integrated over the distribution of s. (The usual shortcut that adds up two
    noncentral t probabilities goes below zero at small n.)

    Args:
        margin: equivalence margin.
        sd: σ_diff, standard deviation of the differences, in the margin's unit.
        n: seeds; NaN is returned below 2.
        alpha: level of each of the two one-sided tests.
    """
    if n < 2 or math.isnan(sd):
        return math.nan
    if sd == 0:
        return 1.0
    shifted, critical = margin / sd * math.sqrt(n), float(special.stdtrit(n - 1, 1 - alpha))

    def accepted(s: float) -> float:
        return float(1 - 2 * special.ndtr(critical * s - shifted))

    return _over_spread(accepted, n, shifted / critical)


def _over_spread(chance: Callable[[float], float], n: int, largest: float = math.inf) -> float:
    """Expectation of a chance given s/σ over the distribution of s/σ, where s/σ is at most `largest`; it is 0 beyond."""
    df = n - 1
    low, high = (math.sqrt(2 * special.gammaincinv(df / 2, p) / df) for p in (NEGLIGIBLE, 1 - NEGLIGIBLE))
    if low >= largest:
        return 0.0
    scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)

    def density(s: float) -> float:
        return math.exp(scale + (df - 1) * math.log(s) - df * s * s / 2)  # of s/σ, chi over √df; SciPy's is 40 times slower

    integral = integrate.quad(lambda s: chance(s) * density(s), low, min(high, largest))[0]
    return min(1.0, max(0.0, float(integral)))  # rounding may leave [0, 1] by 1e-15


def smallest_n(power_at: Callable[[int], float], target: float = 0.8) -> int | None:
    """Smallest n whose power reaches the target, for a power that grows with n; None beyond 10,000.

    Args:
        power_at: n → power, e.g. `lambda n: tost_power(margin, sd, n)`.
        target: power wanted.
    """
    high = 2
    while power_at(high) < target:
        high *= 2
        if high > LARGEST_N:
            return None
    low = high // 2  # power at `low` is below the target, or `low` is 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power_at(middle) < target else (low, middle)
    return high
