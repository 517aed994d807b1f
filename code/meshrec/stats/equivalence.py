"""Parity is a claim of its own: two one-sided t tests (Schuirmann 1987) against a margin that the experiment states."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.weightstats import ttost_paired

from meshrec.stats.paired import checked

Verdict = Literal["equivalent", "different", "inconclusive", "no margin", "too few seeds"]

ENOUGH_POWER = 0.8


def tost_p(differences: NDArray[np.float64], margin: float) -> float:
    """P of "the true mean difference is outside ±margin": small means equivalent. NaN below two differences.

    Differences that are all equal have no spread: p is 0 inside the margin and 1 on or outside it.

    Args:
        differences: shape (n,), finite, one per seed.
        margin: > 0, in the unit of the differences.

    Raises:
        ValueError: the margin isn't positive, or the differences aren't finite.
    """
    if not margin > 0:
        raise ValueError(f"found margin {margin}, want a positive number")
    differences = checked(differences)
    if len(differences) < 2:
        return math.nan
    if np.ptp(differences) == 0:
        return float(abs(differences[0]) >= margin)
    p, _, _ = ttost_paired(differences, np.zeros_like(differences), -margin, margin)
    return float(p)


def verdict(n: int, p_adjusted: float, p_tost: float | None, power: float | None, alpha: float) -> Verdict:
    """What one comparison says. The first rule that holds decides.

    1. n < 2 → `too few seeds`: there is no spread, so no interval and no test.
    2. TOST p < alpha → `equivalent`. It comes before `different`: a difference that is certainly there but certainly
       smaller than the margin is one that the experiment declared not to matter; its interval still shows it.
    3. adjusted p of the paired t < alpha → `different`.
    4. no margin → `no margin`: no difference is shown, and without a margin neither equivalence nor power can be stated.
    5. power < 0.8 → `too few seeds`: the run could not have settled the question, so that it didn't says nothing.
    6. otherwise `inconclusive`.

    Args:
        n: seeds compared.
        p_adjusted: two-sided p, adjusted for its family.
        p_tost: see `tost_p`; None without a margin.
        power: the smaller of the powers to detect the margin and to show equivalence; None without a margin.
        alpha: 1 − confidence.
    """
    if n < 2:
        return "too few seeds"
    if p_tost is not None and p_tost < alpha:
        return "equivalent"
    if p_adjusted < alpha:
        return "different"
    if p_tost is None or power is None:
        return "no margin"
    if power < ENOUGH_POWER:
        return "too few seeds"
    return "inconclusive"
