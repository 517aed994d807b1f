"""Head rows whose gradients are noise or signal, as asked: effects that give a row its gradient coherence.

For a model that predicts the click rate c of every sample, a hit of a row moves it by c − y times a direction that is the same
for all hits if the model is additive in the row. With q the click rate of the row's own hits, the hit's gradient has the mean
μ = c − q and the variance q·(1 − q), so that per hit

    ρ = μ² / (μ² + q·(1 − q)).

With K hits a batch and M groups, the theory of averaged moments expects 2D to accumulate (Kρ + M) / (Kρ + 1) times what 1D
does. A model that is not additive, or has learned part of the row already, has a smaller ρ; one that is far from the click
rate, as at its start, a larger one.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from meshrec.data.columns import DataError

SWEEPS = 60
CLOSE_ENOUGH = 1e-6
"""Of probabilities."""
LARGEST_EFFECT = 20.0
"""Logit that is as good as certain: effects that grow beyond it don't come to rest."""
LONGEST_STEP = 2.0


def coherence(rate: float, click_rate: float) -> float:
    """ρ of a row whose hits have click rate `rate`, for a model that predicts `click_rate`."""
    mean = (click_rate - rate) ** 2
    return mean / (mean + rate * (1 - rate))


def rate_of(rho: float, click_rate: float) -> float:
    """Click rate of a row's hits that has coherence |rho|: above `click_rate` if rho is positive, else below."""
    size = abs(rho)
    half = click_rate * (1 - size) + size / 2
    root = np.sqrt(max(half**2 - click_rate**2 * (1 - size), 0.0))
    return float(half + np.sign(rho) * root)


def solve_bias(logit: NDArray[np.float64], rate: float) -> float:
    """The bias that makes the mean click probability `rate`, for logits without one [n]."""
    reach = 40.0 + float(np.abs(logit).max())
    return float(brentq(lambda bias: float(expit(bias + logit).mean()) - rate, -reach, reach))


def solve_heads(
    rest: NDArray[np.float64], own: NDArray[np.float32], hit: NDArray[np.bool_], targets: list[float | None], rate: float
) -> tuple[NDArray[np.float64], float]:
    """Effects of head rows that give their hits the click rates asked for, and the bias that keeps the overall one.

    A table's ids are drawn independently of everything else, so that the hits of its head row look like all samples but for
    that table's own effect: every sample serves to find every head's click rate, however rare its hits.

    Args:
        rest: logits without bias and without these heads' effects, [n].
        own: what each table contributes to them, [n, tables].
        hit: which samples hit each table's head row, [n, tables].
        targets: click probability of each head row's hits; None leaves the row alone.
        rate: click probability over all samples.

    Returns:
        Effects [tables], 0 where there is no target, and the bias.

    Raises:
        DataError: there are no such effects, since too many hits would have to be clicks.
    """
    effects, total, error = np.zeros(len(targets)), rest.copy(), np.inf
    wanted = {table: target for table, target in enumerate(targets) if target is not None}
    for _ in range(SWEEPS):
        bias, error = solve_bias(total, rate), 0.0
        for table, target in wanted.items():
            probability = expit(bias + total + np.where(hit[:, table], 0.0, effects[table]) - own[:, table])
            short = target - float(probability.mean())
            slope = float((probability * (1 - probability)).mean())
            step = float(np.clip(short / max(slope, 1e-9), -LONGEST_STEP, LONGEST_STEP))
            effects[table] += step
            total[hit[:, table]] += step
            error = max(error, abs(short))
        if error < CLOSE_ENOUGH:
            return effects, bias
        if np.abs(effects).max() > LARGEST_EFFECT:
            break
    raise DataError(
        f"dataset.head_coherence: no effects of head rows give all that is asked and a click rate of {rate:g} (off by "
        f"{error:.2g}); ask for less coherence, of both signs, in fewer tables, or for smaller head shares"
    )


def observed(probability: float, flip_rate: float) -> float:
    """Probability of a click after label noise."""
    return flip_rate + (1 - 2 * flip_rate) * probability


def target_of(rho: float, click_rate: float, flip_rate: float) -> float:
    """Click probability before label noise of a head row's hits, whose labels after it have coherence |rho|.

    Raises:
        DataError: label noise leaves less coherence than that.
    """
    rate = rate_of(rho, observed(click_rate, flip_rate))
    clean = (rate - flip_rate) / (1 - 2 * flip_rate) if flip_rate != 0.5 else -1.0
    if rho == 0:
        return click_rate
    if not 0 < clean < 1:
        most = coherence(observed(float(rho > 0), flip_rate), observed(click_rate, flip_rate))
        raise DataError(f"dataset.head_coherence: found {rho:g}, want less than {most:.4g} in size, which label_noise leaves")
    return clean
