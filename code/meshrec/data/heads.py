"""The planted model's head rows: effects for those whose gradient coherence is asked for, and what all of them are like."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from meshrec.data.coherence import coherence, observed, solve_heads, target_of
from meshrec.data.columns import MISSING_ROW
from meshrec.data.store import HeadRow
from meshrec.experiment.schema import CATEGORICAL_FEATURES, SyntheticDataset

if TYPE_CHECKING:
    from meshrec.data.planted import Planted


def _asked(dataset: SyntheticDataset) -> list[float | None]:
    """The coherence asked for of each table's head row."""
    return dataset.head_coherence or [None] * CATEGORICAL_FEATURES


def without_asked(planted: "Planted") -> "Planted":
    """No effect yet of the head rows whose effect will be solved for."""
    effects = [values.copy() for values in planted.effect_of_rank]
    for table, rho in enumerate(_asked(planted.dataset)):
        if rho is not None:
            effects[table][0] = 0
    return replace(planted, effect_of_rank=effects)


def with_asked(planted: "Planted", logit: NDArray[np.float64], ids: NDArray[np.int32]) -> "Planted":
    """Effects of the head rows that were asked for, given rows' logits without bias [n] and their ids [n, 26]."""
    dataset, asked = planted.dataset, _asked(planted.dataset)
    if all(rho is None for rho in asked):
        return planted
    rate, flips = dataset.click_rate, planted.flip_rate
    targets = [None if rho is None else target_of(rho, rate, flips) for rho in asked]
    heads = np.array([rows[0] for rows in planted.row_of_rank])
    found, bias = solve_heads(logit, contributions(planted, ids), ids == heads, targets, rate)
    effects = [values.copy() for values in planted.effect_of_rank]
    for table, rho in enumerate(asked):
        if rho is not None:
            effects[table][0] = found[table]
    return replace(planted, effect_of_rank=effects, bias=bias)


def contributions(planted: "Planted", ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """What each id adds to its row's logit, float32 of the same shape as ids int32 [n, 26]."""
    columns = []
    for table, effects in enumerate(planted.effect_of_rank):
        of_row = np.empty_like(effects)
        of_row[MISSING_ROW], of_row[planted.row_of_rank[table]] = effects[-1], effects[:-1]
        columns.append(of_row[ids[:, table]])
    return np.stack(columns, axis=1)


def head_rows(planted: "Planted") -> list[HeadRow]:
    """Each table's most popular row: where it is, how often it is hit, and how coherent its gradients are."""
    dense, ids, sparse = planted.calibration_rows()
    logit = planted.bias + dense + sparse
    own, rate = contributions(planted, ids), observed(planted.dataset.click_rate, planted.flip_rate)
    heads = []
    for table, law in enumerate(planted.popularity):
        probability = float(expit(logit - own[:, table] + planted.effect_of_rank[table][0]).mean())
        heads.append(
            HeadRow(
                row=int(planted.row_of_rank[table][0]),
                share=float(law.cumulative[0]) * (1 - planted.dataset.missing_rate),
                coherence=coherence(observed(probability, planted.flip_rate), rate),
            )
        )
    return heads
