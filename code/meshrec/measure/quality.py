"""Quality of click predictions: logloss, normalised entropy and AUC, exact and in float64."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr
from scipy.stats import rankdata

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Quality:
    """Metrics of one set of predictions."""

    logloss: float
    ne: float
    auc: float


def quality(logits: Floats, labels: Floats) -> Quality:
    """Metrics of predicted logits [n] against labels in {0, 1} [n].

    Raises:
        ValueError: all labels are the same, so that neither normalised entropy nor AUC is defined.
    """
    rate = float(np.mean(labels, dtype=np.float64))
    if rate in (0.0, 1.0):
        raise ValueError(f"all {labels.size} evaluation labels are {rate:.0f}: metrics need clicks and non-clicks")
    loss = logloss(logits, labels)
    return Quality(loss, loss / float(entr(rate) + entr(1 - rate)), auc(logits, labels))


def logloss(logits: Floats, labels: Floats) -> float:
    """Mean negative log-likelihood in nats: softplus(x) − y·x, which never overflows."""
    x = logits.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, x) - labels * x))


def auc(scores: Floats, labels: Floats) -> float:
    """Probability that a click outscores a non-click, ties counting one half (Mann–Whitney U over n₁·n₀)."""
    clicks = labels > 0.5
    positives = int(clicks.sum())
    negatives = clicks.size - positives
    rank_sum = float(rankdata(scores.astype(np.float64))[clicks].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
