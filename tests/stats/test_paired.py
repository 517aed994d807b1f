"""The paired t against closed forms, scipy's own two-sample form, and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from meshrec.stats import paired_t


def test_hand_computed() -> None:
    """Differences 1, 2, 3: mean 2, sd 1, t = 2√3, and for two degrees of freedom t's distribution has a closed form."""
    result = paired_t(np.array([1.0, 2.0, 3.0]))
    t = 2 * math.sqrt(3)
    assert (result.n, result.estimate, result.sd, result.d_z) == (3, 2.0, 1.0, 2.0)
    assert result.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    # CDF of t with 2 df: 1/2 + x / (2√(2 + x²)), so its 97.5 % quantile is 0.95·√(2 / (1 − 0.95²))
    half_width = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert (result.ci_low, result.ci_high) == pytest.approx((2 - half_width, 2 + half_width))


def test_agrees_with_scipys_paired_form() -> None:
    rng = np.random.default_rng(1)
    other, reference = rng.normal(0.3, 1, 9), rng.normal(0, 1, 9)
    theirs = stats.ttest_rel(other, reference)
    ours = paired_t(other - reference, 0.9)
    interval = theirs.confidence_interval(0.9)
    assert ours.p == pytest.approx(theirs.pvalue)
    assert (ours.ci_low, ours.ci_high) == pytest.approx((interval.low, interval.high))


def test_interval_covers_and_aa_is_rarely_significant() -> None:
    """4000 A/A experiments of 5 seeds: coverage 0.95 and false positives 0.05, Monte Carlo standard error 0.0034."""
    experiments, true = 4000, 0.7
    draws = np.random.default_rng(2).normal(true, 0.2, (experiments, 5))
    results = [paired_t(row) for row in draws]
    four_errors = 4 * math.sqrt(0.05 * 0.95 / experiments)
    coverage = np.mean([result.ci_low <= true <= result.ci_high for result in results])
    false_positives = np.mean([paired_t(row - true).p < 0.05 for row in draws])
    assert coverage == pytest.approx(0.95, abs=four_errors)
    assert false_positives == pytest.approx(0.05, abs=four_errors)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_for_an_interval(n: int) -> None:
    result = paired_t(np.full(n, 0.25))
    assert result.n == n
    assert math.isnan(result.estimate) if n == 0 else result.estimate == 0.25
    assert all(math.isnan(value) for value in (result.ci_low, result.ci_high, result.p, result.sd, result.d_z))


def test_equal_differences_have_no_spread() -> None:
    zeros, constant = paired_t(np.zeros(3)), paired_t(np.full(3, -0.1))
    assert (zeros.p, zeros.d_z, zeros.ci_low, zeros.ci_high) == (1, 0, 0, 0)
    assert (constant.p, constant.d_z, constant.ci_low, constant.ci_high) == (0, -math.inf, -0.1, -0.1)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of them not finite"):
        paired_t(np.array([0.1, math.nan]))
