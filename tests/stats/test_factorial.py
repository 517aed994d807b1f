"""Contrasts against hand computation and against the analysis of variance."""

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.anova import AnovaRM

from meshrec.stats import contrast_by_seed, factorial_weights, pair_weights, paired_t

WEIGHTS = factorial_weights(["1d", "2d"], ["plain", "scaled"])


def table(seeds: int, rng: np.random.Generator) -> pd.DataFrame:
    """Planted: base 1, layout +0.3, optimizer −0.2, interaction 0.1, seed effects, noise 0.05."""
    block = rng.normal(0, 1, seeds)
    planted = {"1d.plain": 1.0, "1d.scaled": 0.8, "2d.plain": 1.25, "2d.scaled": 1.15}
    return pd.DataFrame({name: mean + block + rng.normal(0, 0.05, seeds) for name, mean in planted.items()})


def test_hand_computed() -> None:
    values = pd.DataFrame({"1d.plain": [1.0], "1d.scaled": [2.0], "2d.plain": [5.0], "2d.scaled": [9.0]}, index=[7])
    contrasts = {name: contrast_by_seed(values, weights) for name, weights in WEIGHTS.items()}
    assert {name: series.loc[7] for name, series in contrasts.items()} == {
        "layout": ((5 - 1) + (9 - 2)) / 2,
        "optimizer": ((2 - 1) + (9 - 5)) / 2,
        "interaction": (9 - 2) - (5 - 1),
    }
    assert contrast_by_seed(values, pair_weights("1d.plain", "2d.scaled")).loc[7] == 8


def test_planted_effects_are_recovered() -> None:
    values = table(200, np.random.default_rng(6))
    for name, planted, error in [("layout", 0.3, 0.05), ("optimizer", -0.15, 0.05), ("interaction", 0.1, 0.1)]:
        estimate = contrast_by_seed(values, WEIGHTS[name]).mean()
        assert estimate == pytest.approx(planted, abs=4 * error / math.sqrt(200)), name


def test_agrees_with_repeated_measures_anova() -> None:
    """With one degree of freedom, F of each effect is the square of its contrast's t, and the p values are the same."""
    values = table(6, np.random.default_rng(7))
    long = values.rename_axis("seed").reset_index().melt("seed", var_name="treatment")
    long[["layout", "optimizer"]] = long.treatment.str.split(".", expand=True)
    anova = AnovaRM(long, "value", "seed", within=["layout", "optimizer"]).fit().anova_table
    for name, row in [("layout", "layout"), ("optimizer", "optimizer"), ("interaction", "layout:optimizer")]:
        result = paired_t(contrast_by_seed(values, WEIGHTS[name]).to_numpy())
        assert result.p == pytest.approx(anova.loc[row, "Pr > F"]), name
        assert result.d_z**2 * result.n == pytest.approx(anova.loc[row, "F Value"]), name


def test_failed_cell_drops_its_seed_where_it_matters() -> None:
    values = table(4, np.random.default_rng(8))
    values.loc[2, "2d.plain"] = math.nan
    assert list(contrast_by_seed(values, WEIGHTS["layout"]).index) == [0, 1, 3]
    assert list(contrast_by_seed(values, pair_weights("1d.plain", "2d.scaled")).index) == [0, 1, 2, 3]
