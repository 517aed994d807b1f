"""What the mathematics of moment averaging predicts exactly, found on real ranks."""

import functools
import math
from typing import Any

import numpy as np
import pytest

from meshrec.data.batches import Batch
from meshrec.experiment import Cell
from support.experiments import random_batches, small_cell
from support.ranks import State, train_on_ranks

ROWS = 400
LR = 0.05
PLAIN = {"kind": "rowwise_adagrad", "lr": LR, "eps": 1e-12}
"""ε next to nothing: a step is then lr·g/√v, as in the theory."""


def scaled(c: float, **changes: Any) -> dict[str, Any]:
    return {**PLAIN, "kind": "moment_scaled_rowwise_adagrad", "moment_scale": c, **changes}


CELLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1d": ({}, PLAIN),
    "2d": ({"replicas": 2}, PLAIN),
    "4d": ({"replicas": 4}, PLAIN),
    "2d c=2": ({"replicas": 2}, scaled(2)),
    "4d c=4": ({"replicas": 4}, scaled(4)),
    "2d c=1": ({"replicas": 2}, scaled(1)),
    "1d inside c=1": ({}, scaled(1, eps=1e-3, eps_placement="inside")),
    "1d inside": ({}, {**PLAIN, "eps": 1e-3, "eps_placement": "inside"}),
    "1d c=3, ε=0.01": ({}, scaled(3, eps=0.01)),
    "1d √3·lr, √3·ε": ({}, {**PLAIN, "lr": math.sqrt(3) * LR, "eps": math.sqrt(3) * 0.01}),
    "1d other order": ({"rank_order": "shards-adjacent", "sync_every": 5}, PLAIN),
    "1d row-wise": ({"sharding": "row-wise"}, PLAIN),
}


def cell_of(name: str, ranks: int = 4) -> Cell:
    layout, optimizer = CELLS[name]
    dataset = {"kind": "synthetic", "train_samples": 4096, "eval_samples": 512, "table_rows": ROWS}
    return small_cell(ranks, layout, optimizer, dataset=dataset)


def unique_rows(steps: int) -> list[Batch]:
    """Batches in which no row is hit twice: every row that is hit is hit in one group only, and nothing is summed."""
    generator = np.random.default_rng(3)
    batches = random_batches(cell_of("1d"), steps)
    ids = [np.stack([generator.permutation(ROWS)[:64] for _ in range(26)], axis=1) for _ in range(steps)]
    return [Batch(batch.dense, rows.astype(np.int32), batch.labels) for batch, rows in zip(batches, ids, strict=True)]


@functools.cache
def states(steps: int) -> dict[str, State]:
    return dict(
        zip(CELLS, train_on_ranks(4, [cell_of(name) for name in CELLS], [unique_rows(steps)] * len(CELLS)), strict=True)
    )


def assert_same_bits(one: State, other: State) -> None:
    for table in range(26):
        np.testing.assert_array_equal(one.tables[0][table], other.tables[0][table])
        np.testing.assert_array_equal(one.moments[0][table], other.moments[0][table])
    np.testing.assert_array_equal(one.dense[0], other.dense[0])


@pytest.mark.parametrize(("name", "replicas"), [("2d", 2), ("4d", 4)])
def test_a_row_hit_in_one_group_has_m_times_the_moment_of_1d(name: str, replicas: int):
    """R = M: the group's mean gradient is M times the global one, its square M²; the average over twins divides once."""
    for table in range(26):
        one, many = states(1)["1d"].moments[0][table], states(1)[name].moments[0][table]
        assert (one > 0).sum() == 64
        np.testing.assert_array_equal(many, replicas * one)


@pytest.mark.parametrize(("name", "replicas", "c"), [("2d", 2, 1), ("4d", 4, 1), ("2d c=2", 2, 2), ("4d c=4", 4, 4)])
def test_the_first_touch_of_a_row_steps_root_c_over_m_as_far_as_1d(name: str, replicas: int, c: int):
    start = states(0)["1d"].tables[0]
    for table in range(26):
        one = (states(1)["1d"].tables[0][table] - start[table])[unique_rows(1)[0].sparse[:, table]]
        many = (states(1)[name].tables[0][table] - start[table])[unique_rows(1)[0].sparse[:, table]]
        large = np.abs(one) > 0.2 * LR  # the rest is rounding of w itself
        np.testing.assert_allclose(many[large] / one[large], math.sqrt(c) / replicas, rtol=1e-4)


def test_identical_group_gradients_make_2d_equal_to_1d():
    """R = 1: both groups see the same samples, so that their mean gradients are the global one."""
    batches = [
        Batch(*(np.concatenate([part[:32], part[:32]]) for part in (batch.dense, batch.sparse, batch.labels)))
        for batch in unique_rows(20)
    ]
    one, two = train_on_ranks(2, [cell_of("1d", 2), cell_of("2d", 2)], [batches] * 2)
    assert_same_bits(one, two)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2d c=1", "2d"),
        ("1d inside c=1", "1d inside"),
        ("1d c=3, ε=0.01", "1d √3·lr, √3·ε"),
        ("1d other order", "1d"),
        ("1d row-wise", "1d"),
    ],
)
def test_the_same_bits(one: str, other: str):
    """c = 1 is plain; c is a learning rate; one replica has no order and no interval; sharding changes no sum here."""
    assert_same_bits(states(10)[one], states(10)[other])


def test_different_cells_differ():
    """The comparisons above could fail."""
    with pytest.raises(AssertionError):
        assert_same_bits(states(10)["2d c=2"], states(10)["2d"])
