"""Metrics against numbers worked out by hand and against a count over all pairs."""

import math

import numpy as np
import pytest

from meshrec.measure.quality import auc, logloss, quality


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def auc_over_all_pairs(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of (click, non-click) pairs that are in order, ties one half: the definition, in n² steps."""
    won = [(click > other) + (click == other) / 2 for click in scores[labels == 1] for other in scores[labels == 0]]
    return sum(won) / len(won)


def test_logloss_by_hand():
    """Probabilities 0.9, 0.2, 0.6 of labels 1, 0, 0: −(ln 0.9 + ln 0.8 + ln 0.4)/3."""
    logits = np.array([logit(0.9), logit(0.2), logit(0.6)])
    wanted = -(math.log(0.9) + math.log(0.8) + math.log(0.4)) / 3
    assert logloss(logits, np.array([1, 0, 0])) == pytest.approx(wanted, rel=1e-14)


def test_logloss_neither_overflows_nor_saturates():
    assert logloss(np.array([1000.0, -1000.0]), np.array([0, 1])) == 1000
    assert logloss(np.array([1000.0, -1000.0]), np.array([1, 0])) == 0
    assert logloss(np.array([-40.0]), np.array([0])) == pytest.approx(math.exp(-40), rel=1e-12)


def test_logloss_of_float32_logits_is_summed_in_float64():
    logits = np.full(100_000, 0.1, np.float32)
    wanted = math.log1p(math.exp(float(np.float32(0.1))))
    assert logloss(logits, np.zeros(100_000, np.float32)) == pytest.approx(wanted, rel=1e-12)


def test_ne_of_the_evaluation_sets_own_click_rate_is_one():
    labels = np.array([1, 0, 0, 0, 1, 0, 0, 0])
    assert quality(np.full(8, logit(0.25)), labels).ne == pytest.approx(1, rel=1e-14)


def test_ne_is_over_the_entropy_of_the_evaluation_labels_not_of_the_predictions():
    """Trained at a click rate of 1/4 and evaluated at 1/2: loss −(ln ¼ + ln ¾)/2 over ln 2, worse than knowing the rate."""
    found = quality(np.full(6, logit(0.25)), np.array([1, 1, 1, 0, 0, 0]))
    loss = -(math.log(1 / 4) + math.log(3 / 4)) / 2
    assert found.logloss == pytest.approx(loss, rel=1e-14)
    assert found.ne == pytest.approx(loss / math.log(2), rel=1e-14)
    assert found.ne > 1.2


def test_ne_by_hand_with_a_rate_that_is_no_half():
    """Labels 1, 0, 0: the entropy of 1/3 is ln 3 − ⅔ ln 2."""
    logits = np.array([logit(0.9), logit(0.2), logit(0.6)])
    loss = -(math.log(0.9) + math.log(0.8) + math.log(0.4)) / 3
    found = quality(logits, np.array([1, 0, 0], np.float32))
    assert found.ne == pytest.approx(loss / (math.log(3) - 2 / 3 * math.log(2)), rel=1e-7)


def test_auc_by_hand():
    """Clicks at 3 and 1, non-clicks at 2 and 0: of four pairs only (1, 2) is out of order."""
    scores, labels = np.array([3.0, 2.0, 1.0, 0.0]), np.array([1, 0, 1, 0])
    assert auc(scores, labels) == 0.75
    assert auc(-scores, labels) == 0.25
    assert quality(scores, labels).auc == 0.75


def test_auc_of_equal_scores_is_one_half_in_any_order():
    for labels in ([1, 0, 0, 0], [0, 0, 0, 1], [1, 1, 0, 1]):
        assert auc(np.zeros(4), np.array(labels)) == 0.5


@pytest.mark.parametrize("levels", [2, 5, 20, 1000])
def test_auc_with_ties_is_the_count_over_all_pairs(levels: int):
    generator = np.random.default_rng(levels)
    labels = (generator.random(150) < 0.3).astype(np.float32)
    scores = (generator.integers(0, levels, 150) + labels * levels / 10).round().astype(np.float32)
    assert auc(scores, labels) == pytest.approx(auc_over_all_pairs(scores, labels), abs=1e-14)


@pytest.mark.parametrize(("labels", "rate"), [([0.0, 0.0, 0.0], 0), ([1.0, 1.0, 1.0], 1)])
def test_one_class_has_no_metrics(labels: list[float], rate: int):
    with pytest.raises(ValueError, match=f"all 3 evaluation labels are {rate}"):
        quality(np.zeros(3), np.array(labels))
