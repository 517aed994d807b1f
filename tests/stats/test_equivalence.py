"""TOST against its definition, at the margin by simulation, and each rule of the verdict."""

import math

import numpy as np
import pytest
from scipy import stats

from meshrec.stats import tost_p, verdict


def test_is_the_larger_of_two_one_sided_tests() -> None:
    differences = np.random.default_rng(3).normal(0.1, 1, 8)
    above = stats.ttest_1samp(differences, -1.5, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, 1.5, alternative="less").pvalue
    assert tost_p(differences, 1.5) == pytest.approx(max(above, below))


def test_agrees_with_the_90_percent_interval() -> None:
    """TOST at 0.05 accepts exactly when the 90 % interval lies inside the margin."""
    rng = np.random.default_rng(4)
    accepted = []
    for _ in range(200):
        differences = rng.normal(0.3, 1, 10)
        interval = stats.ttest_1samp(differences, 0).confidence_interval(0.9)
        inside = interval.low > -1 and interval.high < 1
        assert (tost_p(differences, 1.0) < 0.05) == inside
        accepted.append(inside)
    assert 0 < sum(accepted) < 200


@pytest.mark.parametrize("true", [0.5, -0.5])
def test_refuses_on_the_margin(true: float) -> None:
    """A true difference of exactly the margin passes at most 5 % of the time: 4000 experiments, MC standard error 0.0034."""
    experiments = 4000
    draws = np.random.default_rng(5).normal(true, 0.3, (experiments, 8))
    accepted = np.mean([tost_p(row, 0.5) < 0.05 for row in draws])
    assert accepted <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / experiments)
    assert accepted > 0.03  # and the test isn't idle: at this spread its size is close to nominal


def test_edges() -> None:
    assert math.isnan(tost_p(np.array([0.1]), 1.0))
    assert tost_p(np.zeros(3), 0.1) == 0
    assert tost_p(np.full(3, 0.1), 0.1) == 1
    with pytest.raises(ValueError, match="positive"):
        tost_p(np.zeros(3), 0.0)


@pytest.mark.parametrize(
    ("n", "p_adjusted", "p_tost", "power", "wanted"),
    [
        (1, math.nan, math.nan, math.nan, "too few seeds"),
        (12, 0.5, 0.01, 0.9, "equivalent"),
        (12, 0.001, 0.01, 0.9, "equivalent"),  # certainly there, certainly smaller than the margin
        (12, 0.001, 0.9, 0.9, "different"),
        (3, 0.001, 0.9, 0.2, "different"),  # found in spite of low power
        (3, 0.2, 0.3, 0.2, "too few seeds"),
        (12, 0.2, 0.3, 0.85, "inconclusive"),
        (3, 0.2, None, None, "no margin"),
        (3, 0.01, None, None, "different"),
        (12, 0.05, 0.05, 0.8, "inconclusive"),  # neither bound is reached
    ],
)
def test_verdict(n: int, p_adjusted: float, p_tost: float | None, power: float | None, wanted: str) -> None:
    assert verdict(n, p_adjusted, p_tost, power, 0.05) == wanted
