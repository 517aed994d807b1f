"""Power against the noncentral t, published sample sizes and simulation of the tests themselves."""

import math

import numpy as np
import pytest
from scipy import stats

from meshrec.stats import paired_t, paired_t_power, smallest_n, tost_p, tost_power


@pytest.mark.parametrize(("ratio", "n"), [(2, 4), (1.5, 6), (1, 11), (0.75, 17), (0.5, 36)])
def test_seeds_for_tost_at_80_percent(ratio: float, n: int) -> None:
    assert smallest_n(lambda seeds: tost_power(ratio, 1.0, seeds)) == n


@pytest.mark.parametrize(("ratio", "n"), [(0.5, 34), (0.8, 15), (0.2, 199)])
def test_seeds_for_the_paired_t_as_tabled(ratio: float, n: int) -> None:
    """Cohen's d 0.2 / 0.5 / 0.8, two-sided 0.05, power 0.8: 199 / 34 / 15 pairs, as G*Power gives."""
    assert smallest_n(lambda seeds: paired_t_power(ratio, 1.0, seeds)) == n


def test_paired_t_is_the_noncentral_t() -> None:
    critical = stats.t.isf(0.025, 4)
    expected = stats.nct.sf(critical, 4, 1.5 * math.sqrt(5)) + stats.nct.cdf(-critical, 4, 1.5 * math.sqrt(5))
    assert paired_t_power(0.3, 0.2, 5) == pytest.approx(expected)


def test_powers_are_probabilities_everywhere() -> None:
    """Also where SciPy's noncentral t gives up; where it doesn't, it is the reference."""
    agreed = 0
    for n in (2, 3, 5, 12, 100):
        critical = stats.t.isf(0.025, n - 1)
        for ratio in np.geomspace(0.01, 1e4, 25):
            shift = ratio * math.sqrt(n)
            reference = stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)
            power, equivalence = paired_t_power(ratio, 1, n), tost_power(ratio, 1, n)
            assert 0 <= power <= 1, (n, ratio)
            assert 0 <= equivalence <= 1, (n, ratio)
            if not math.isnan(reference):
                assert power == pytest.approx(reference, abs=1e-9), (n, ratio)
                agreed += 1
    assert agreed > 60


@pytest.mark.parametrize(("n", "ratio"), [(3, 2.0), (6, 1.5), (11, 1.0)])
def test_powers_are_what_the_tests_do(n: int, ratio: float) -> None:
    """4000 experiments each, Monte Carlo standard error at most 0.008."""
    noise = np.random.default_rng(10).normal(0, 1, (4000, n))
    found = np.mean([paired_t(row + ratio).p < 0.05 for row in noise[:2000]])
    shown = np.mean([tost_p(row, ratio) < 0.05 for row in noise])
    assert found == pytest.approx(paired_t_power(ratio, 1.0, n), abs=4 * 0.5 / math.sqrt(2000))
    assert shown == pytest.approx(tost_power(ratio, 1.0, n), abs=4 * 0.5 / math.sqrt(4000))


def test_edges() -> None:
    assert math.isnan(paired_t_power(1, 1, 1))
    assert math.isnan(tost_power(1, math.nan, 5))
    assert paired_t_power(1, 0, 3) == 1
    assert tost_power(1, 0, 3) == 1
    assert tost_power(1e6, 1, 3) == pytest.approx(1)
    assert smallest_n(lambda n: tost_power(1e6, 1.0, n)) == 2
    assert smallest_n(lambda n: tost_power(1e-6, 1.0, n)) is None
    assert paired_t_power(1e6, 1, 3) == pytest.approx(1)
