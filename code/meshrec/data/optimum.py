"""Quality of the true click probabilities on labels that were drawn from them, in memory that doesn't grow with the rows."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

from meshrec.data.store import Optimum
from meshrec.measure.quality import logloss, quality

EXACT_ROWS = 1 << 22
"""Up to so many rows everything is kept and AUC is exact; beyond, it is that of scores rounded to `BINS` values."""
BINS = 1 << 20


class TruthQuality:
    """Takes logits and labels part by part.

    Beyond `EXACT_ROWS`, logits are rounded to bins that are equally wide on the scale of a logistic function fitted to the
    first rows. A pair of a click and a non-click in the same bin counts one half, so that the error of AUC is at most half the
    share of such pairs, and far less in fact: about 10⁻⁷ at most for any logits that aren't much wider spread than the first.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[NDArray[np.float64], NDArray[np.float32]]] = []
        self._bins: NDArray[np.int64] | None = None
        """Non-clicks and clicks in each bin, [2, BINS]."""
        self._rows = 0
        self._clicks = 0
        self._loss = 0.0
        self._centre = 0.0
        self._spread = 1.0

    def add(self, logits: NDArray[np.float64], labels: NDArray[np.float32]) -> None:
        """Take logits [n] of the true probabilities and labels [n]; both are copied."""
        if len(labels) == 0:
            return
        self._rows += len(labels)
        self._clicks += int(labels.sum(dtype=np.float64))
        self._kept.append((logits.copy(), labels.copy()))
        if self._rows > EXACT_ROWS:
            self._fold()

    def result(self) -> Optimum | None:
        """The quality so far; None where it isn't defined, because there are only clicks or none."""
        if self._clicks in (0, self._rows):
            return None
        if self._bins is None:
            best = quality(*(np.concatenate(part) for part in zip(*self._kept, strict=True)))
            return Optimum(logloss=best.logloss, ne=best.ne, auc=best.auc)
        rate, loss = self._clicks / self._rows, self._loss / self._rows
        return Optimum(logloss=loss, ne=loss / float(entr(rate) + entr(1 - rate)), auc=self._auc())

    def _fold(self) -> None:
        """Count what was kept, and keep it no longer."""
        if self._bins is None:
            logits = np.concatenate([part for part, _ in self._kept])
            self._centre, self._spread = float(logits.mean()), float(logits.std()) or 1.0
            self._bins = np.zeros((2, BINS), np.int64)
        for logits, labels in self._kept:
            self._loss += logloss(logits, labels) * len(labels)
            place = np.minimum((expit((logits - self._centre) / self._spread) * BINS).astype(np.int64), BINS - 1)
            np.add.at(self._bins, (labels.astype(np.int64), place), 1)
        self._kept = []

    def _auc(self) -> float:
        assert self._bins is not None
        others, clicks = self._bins.astype(np.float64)
        below = np.cumsum(others) - others
        return float(clicks @ (below + others / 2)) / (self._clicks * (self._rows - self._clicks))
