"""Families of tests: Holm for what the experiment announces, Benjamini–Hochberg for what is only explored."""

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

Array = NDArray[np.float64]


def holm(p: Array) -> Array:
    """Holm's step-down adjusted p: controls the chance of any false claim in the family. NaN stays NaN."""
    return _adjusted(p, "holm")


def benjamini_hochberg(p: Array) -> Array:
    """Benjamini–Hochberg adjusted p: controls the share of false claims among the claims made. NaN stays NaN."""
    return _adjusted(p, "fdr_bh")


def adjust(p: Array, confirmatory: NDArray[np.bool_]) -> Array:
    """Adjusted p of a table of tests: Holm over the confirmatory rows, Benjamini–Hochberg over the others. Shapes (k,)."""
    adjusted = np.full(len(p), np.nan)
    adjusted[confirmatory] = holm(p[confirmatory])
    adjusted[~confirmatory] = benjamini_hochberg(p[~confirmatory])
    return adjusted


def _adjusted(p: Array, method: str) -> Array:
    """A test that couldn't be computed still counts: losing runs must not make a family that was announced smaller."""
    p = np.asarray(p, dtype=np.float64)
    if not len(p):
        return p
    adjusted: Array = multipletests(np.where(np.isnan(p), 1.0, p), method=method)[1]
    return np.where(np.isnan(p), np.nan, adjusted)
