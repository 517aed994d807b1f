"""Contrasts as weights over treatments. A seed is a block: each contrast is computed within seeds, then compared over seeds."""

from collections.abc import Sequence

import pandas as pd

Weights = dict[str, float]
"""Weight of each treatment (`layout.optimizer`); they sum to 0."""


def factorial_weights(layouts: Sequence[str], optimizers: Sequence[str]) -> dict[str, Weights]:
    """Main effects and interaction of a 2 × 2, each factor given as [reference, other].

    `layout`: mean over optimizers of other − reference. `optimizer`: likewise, mean over layouts. `interaction`: what the
    other optimizer adds to the layout's effect, (other − reference layout | other) − (other − reference layout | reference).
    """
    (layout_0, layout_1), (optimizer_0, optimizer_1) = layouts, optimizers
    cells = (
        f"{layout_0}.{optimizer_0}",
        f"{layout_0}.{optimizer_1}",
        f"{layout_1}.{optimizer_0}",
        f"{layout_1}.{optimizer_1}",
    )
    return {
        "layout": dict(zip(cells, (-0.5, -0.5, 0.5, 0.5), strict=True)),
        "optimizer": dict(zip(cells, (-0.5, 0.5, -0.5, 0.5), strict=True)),
        "interaction": dict(zip(cells, (1.0, -1.0, -1.0, 1.0), strict=True)),
    }


def pair_weights(reference: str, other: str) -> Weights:
    """Simple comparison of two treatments: other − reference."""
    return {reference: -1.0, other: 1.0}


def contrast_by_seed(values: pd.DataFrame, weights: Weights) -> "pd.Series[float]":
    """Weighted sum of each seed's values, for the seeds that have all of them.

    Args:
        values: float64, one row per seed, one column per treatment; NaN where a run failed or is missing.
        weights: treatments must be columns of `values`.

    Returns:
        float64, indexed by the seeds that remain: a seed with a failed cell drops out of comparisons with that cell only.
    """
    complete = values[list(weights)].dropna()
    return (complete * pd.Series(weights)).sum(axis="columns")
