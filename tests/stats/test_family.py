"""Adjusted p values against hand examples."""

import math

import numpy as np

from meshrec.stats import adjust, benjamini_hochberg, holm


def test_holm_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; made monotone the last is 0.06."""
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])


def test_benjamini_hochberg_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04 times 4/1, 4/2, 4/3, 4/4 is 0.02, 0.02, 0.04, 0.04."""
    np.testing.assert_allclose(benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.005])), [0.02, 0.04, 0.04, 0.02])


def test_a_lost_test_still_counts() -> None:
    adjusted = holm(np.array([0.02, math.nan, math.nan]))
    np.testing.assert_allclose(adjusted, [0.06, math.nan, math.nan])


def test_families_are_kept_apart() -> None:
    p = np.array([0.01, 0.02, 0.03, 0.9])
    adjusted = adjust(p, np.array([True, True, False, False]))
    np.testing.assert_allclose(adjusted, [0.02, 0.02, 0.06, 0.9])
    assert len(adjust(np.array([]), np.array([], dtype=bool))) == 0
    np.testing.assert_allclose(adjust(p[:2], np.array([True, True])), [0.02, 0.02])


def test_holm_as_defined() -> None:
    """Adjusted p of the i-th smallest of k: the largest of (k − j + 1)·p_(j) over j ≤ i, at most 1."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        p = rng.uniform(size=5) ** 3
        order = np.argsort(p)
        expected = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(5, 0, -1)))
        np.testing.assert_allclose(holm(p)[order], expected)
