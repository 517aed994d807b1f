"""Popularity of ids: bounded Zipf laws, how often their head is hit, and fast draws from them.

Of n ids, the one of popularity rank r (0 is the most popular) is drawn with probability (r + 1)^−s / H(n, s), where H(n, s) is
the sum of k^−s over k = 1 … n. With missing fields at a rate m, a batch of B rows hits the id of rank r

    K = B · (1 − m) · (r + 1)^−s / H(n, s)

times on average. For the head, r = 0, these are some shares K / B at m = 0:

    s        n = 100    n = 20,000    n = 10⁶
    0        1.0 %      0.005 %       0.0001 %
    0.8      12 %       3.1 %         1.3 %
    1.05     21 %       12 %          9.5 %
    1.5      41 %       38 %          38 %
    2        61 %       61 %          61 %

Above s = 1 the head's share hardly depends on the table's size; below, it shrinks as n^(s−1).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from meshrec.data.columns import MISSING_ROW
from meshrec.data.compiled import compiled

SUMMED = 1 << 16
"""Terms of H(n, s) that are added one by one; Euler–Maclaurin's formula gives the others to 16 digits."""
STEEPEST = 64.0
"""Exponent at which the second id is drawn once in 2⁶⁴ times."""


@dataclass(frozen=True)
class BoundedZipf:
    """A law over ranks 0 … ids − 1, for inversion with a guide table (Chen and Asau, 1974). Arrays are only read."""

    cumulative: NDArray[np.float64]
    """P(rank ≤ r), [ids], up to rounding of the last one."""
    guide: NDArray[np.int32]
    """First rank that a uniform number u with floor(u · ids) = k can mean, [ids]."""

    @classmethod
    def of(cls, ids: int, exponent: float) -> "BoundedZipf":
        """P(rank = r) ∝ (r + 1)^−exponent; 0 is uniform."""
        weights = np.arange(1, ids + 1, dtype=np.float64) ** -exponent
        cumulative = np.cumsum(weights / weights.sum())
        guide = np.searchsorted(cumulative, np.arange(ids) / ids * cumulative[-1]).astype(np.int32)
        return cls(cumulative, guide)

    def draw(
        self,
        uniform: NDArray[np.float64],
        missing: NDArray[np.bool_],
        row_of_rank: NDArray[np.int32],
        effect_of_rank: NDArray[np.float32],
        rows: NDArray[np.int32],
        logit: NDArray[np.float64],
    ) -> None:
        """Draw a table's rows, and add their effects to the logits.

        Args:
            uniform: numbers in [0, 1), [n]; each means the first rank whose cumulative probability is no less.
            missing: fields without an id, [n].
            row_of_rank: [ids].
            effect_of_rank: [ids + 1], the last one of a missing field.
            rows: to be filled, [n]; 0 where missing.
            logit: to be added to, [n].
        """
        _draw(uniform, missing, self.cumulative, self.guide, row_of_rank, effect_of_rank, rows, logit)


@compiled
def _draw(uniform, missing, cumulative, guide, row_of_rank, effect_of_rank, rows, logit):  # type: ignore[no-untyped-def]
    """The guide is at most one rank too far, by rounding; then on to the first rank that is far enough."""
    ids = len(guide)
    for n in range(len(uniform)):
        if missing[n]:
            rows[n] = MISSING_ROW
            logit[n] += effect_of_rank[ids]
            continue
        rank = guide[int(uniform[n] * ids)]
        wanted = uniform[n] * cumulative[ids - 1]
        while rank > 0 and cumulative[rank - 1] >= wanted:
            rank -= 1
        while cumulative[rank] < wanted:
            rank += 1
        rows[n] = row_of_rank[rank]
        logit[n] += effect_of_rank[rank]


def harmonic(ids: int, exponent: float) -> float:
    """H(ids, exponent) = Σ k^−exponent over k = 1 … ids, for an exponent ≥ 0, at a cost that doesn't grow with ids."""
    last = min(ids, SUMMED)
    total = float(np.sum(np.arange(last, 0, -1, dtype=np.float64) ** -exponent))
    if ids == last:
        return total
    a, b = float(last), float(ids)
    power = 1 - exponent
    folds = math.log(b / a)
    integral = folds if power == 0 else a**power * math.expm1(power * folds) / power
    edges = (b**-exponent - a**-exponent) / 2
    slopes = exponent * (a ** (-exponent - 1) - b ** (-exponent - 1)) / 12
    return float(total + integral + edges + slopes)


def head_share(ids: int, exponent: float) -> float:
    """Probability of the most popular of `ids` ids."""
    return 1 / harmonic(ids, exponent)


def exponent_of(ids: int, share: float) -> float:
    """The exponent with which the most popular of `ids` ids is drawn with probability `share`.

    Raises:
        ValueError: share < 1 / ids, which is that of the uniform law, or so close to 1 that no exponent up to 64 gives it.
    """
    if not 1 / ids <= share <= head_share(ids, STEEPEST):
        raise ValueError(f"head share {share:g} of {ids} ids: want at least 1/{ids} = {1 / ids:g}, and less than 1")
    if share == 1 / ids:
        return 0.0
    return float(brentq(lambda exponent: head_share(ids, exponent) - share, 0.0, STEEPEST, xtol=1e-12))
