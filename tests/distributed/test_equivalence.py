"""The engine on real ranks against an independent float64 model: every layout, sharding, rank order and optimizer."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from meshrec.experiment import Cell
from meshrec.mesh.layout import MeshLayout
from support.experiments import OPTIMIZERS, random_batches, small_cell
from support.ranks import State, train_on_ranks
from support.reference import Reference, largest_difference, largest_relative_difference, simulate

STEPS = 50
TOLERANCE = 5e-6
"""Float32 rounding over 50 steps. A wrong gradient scale shows at 1e-2 (see the test of that)."""

LAYOUTS: dict[int, list[dict[str, Any]]] = {
    1: [{"sharding": "table-wise"}, {"sharding": "row-wise"}],
    2: [
        {"replicas": replicas, "sharding": sharding, "sync_every": every}
        for replicas, sharding, every in ((1, "table-wise", 1), (1, "row-wise", 1), (2, "table-wise", 1), (2, "row-wise", 3))
    ],
    4: [
        {"replicas": replicas, "sharding": sharding, "rank_order": order, "sync_every": every}
        for replicas, sharding, order, every in (
            (1, "table-wise", "replicas-adjacent", 1),
            (1, "row-wise", "replicas-adjacent", 1),
            *itertools.product((2,), ("table-wise", "row-wise"), ("replicas-adjacent", "shards-adjacent"), (1, 7)),
            (4, "table-wise", "replicas-adjacent", 1),
        )
    ],
}


def optimizers_of(ranks: int, index: int) -> list[str]:
    """Every optimizer on up to two ranks; on four, all of them on two very different layouts and two of them on the others."""
    if ranks < 4 or index in (2, 9):
        return list(OPTIMIZERS)
    return ["sgd", "plain"]


CASES = [
    (ranks, index, name) for ranks in LAYOUTS for index in range(len(LAYOUTS[ranks])) for name in optimizers_of(ranks, index)
]


def cell_of(ranks: int, index: int, optimizer: str) -> Cell:
    return small_cell(ranks, LAYOUTS[ranks][index], OPTIMIZERS[optimizer])


@functools.cache
def on_ranks(ranks: int) -> dict[tuple[int, str], State]:
    """All cases of a rank count in one launch."""
    keys = [(index, name) for index in range(len(LAYOUTS[ranks])) for name in optimizers_of(ranks, index)]
    cells = [cell_of(ranks, *key) for key in keys]
    batches = random_batches(cells[0], STEPS)
    states = train_on_ranks(ranks, cells, [batches] * len(cells), timeout=250)
    return dict(zip(keys, states, strict=True))


@functools.cache
def reference(groups: tuple[tuple[int, ...], ...], ranks: int, every: int, optimizer: str) -> Reference:
    cell = small_cell(ranks, {}, OPTIMIZERS[optimizer])
    return simulate(cell, random_batches(cell, STEPS), [list(group) for group in groups], every)


def initial_moment(optimizer: str) -> float:
    """With ε inside the root the kernel starts from v = c·ε."""
    settings = OPTIMIZERS[optimizer]
    return settings.get("moment_scale", 1) * settings["eps"] if settings.get("eps_placement") == "inside" else 0.0


def groups_of(cell: Cell) -> tuple[tuple[int, ...], ...]:
    layout = MeshLayout(cell.ranks, cell.layout_level.replicas, cell.layout_level.rank_order)
    return tuple(map(tuple, layout.sharding_groups()))


@pytest.mark.parametrize(("ranks", "index", "optimizer"), CASES)
def test_ranks_compute_what_m_groups_compute(ranks: int, index: int, optimizer: str):
    cell, state = cell_of(ranks, index, optimizer), on_ranks(ranks)[index, optimizer]
    wanted = reference(groups_of(cell), ranks, cell.layout_level.sync_every, optimizer)
    for replica in range(cell.layout_level.replicas):
        assert largest_difference(state.tables[replica], wanted.tables) < TOLERANCE
        if optimizer != "sgd":
            moments = [moment + initial_moment(optimizer) for moment in wanted.moments]
            assert largest_relative_difference(state.moments[replica], moments) < 1e-3
    assert largest_difference(state.dense, [wanted.dense] * ranks) < TOLERANCE
    assert np.abs(state.losses - wanted.losses).max() < TOLERANCE


@pytest.mark.parametrize("ranks", [2, 4])
def test_sgd_2d_every_step_is_1d(ranks: int):
    """The definition of S1's gradient scale: with plain SGD and K = 1 the layout changes nothing."""
    single = reference(((0,),), 1, 1, "sgd")
    for index, layout in enumerate(LAYOUTS[ranks]):
        if layout["sync_every"] == 1:
            state = on_ranks(ranks)[index, "sgd"]
            assert largest_difference(state.tables[0], single.tables) < TOLERANCE
            assert largest_difference(state.dense, [single.dense] * ranks) < TOLERANCE


@pytest.mark.parametrize("ranks", [2, 4])
def test_adagrad_1d_is_the_single_process(ranks: int):
    single = reference(((0,),), 1, 1, "plain")
    for index, layout in enumerate(LAYOUTS[ranks]):
        if layout["replicas"] == 1:
            assert largest_difference(on_ranks(ranks)[index, "plain"].tables[0], single.tables) < TOLERANCE


def test_adagrad_2d_is_not_1d():
    """The tolerance can tell 2D from 1D: otherwise the tests above would prove nothing."""
    single = reference(((0,),), 1, 1, "plain")
    index = next(i for i, layout in enumerate(LAYOUTS[4]) if layout["replicas"] == 4)
    assert largest_difference(on_ranks(4)[index, "plain"].tables[0], single.tables) > 1000 * TOLERANCE


@pytest.mark.parametrize("ranks", [2, 4])
def test_twins_are_bit_equal_after_an_average(ranks: int):
    for (index, _), state in on_ranks(ranks).items():
        for replica in range(1, LAYOUTS[ranks][index]["replicas"]):
            for table in range(26):
                np.testing.assert_array_equal(state.tables[replica][table], state.tables[0][table])
                np.testing.assert_array_equal(state.moments[replica][table], state.moments[0][table])


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1 / 2, False), (2.0, False)])
def test_a_wrong_gradient_scale_is_visible(scale: float, is_right: bool):
    """Row-wise AdaGrad forgets the gradient's scale unless ε is large. At ε = 0.1 a factor of N or 1/N shows."""
    index = 2
    cell = cell_of(4, index, "large_eps")
    wrong = dict(OPTIMIZERS["large_eps"], eps_placement="outside", eps=0.1 / scale)  # s·g/(s·√v + ε) = g/(√v + ε/s)
    wanted = simulate(cell, random_batches(cell, STEPS), [list(group) for group in groups_of(cell)], 1, wrong)
    difference = largest_difference(on_ranks(4)[index, "large_eps"].tables[0], wanted.tables)
    assert (difference < TOLERANCE) if is_right else (difference > 1000 * TOLERANCE)
