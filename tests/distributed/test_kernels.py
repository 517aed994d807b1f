"""The engine computes the same with every kernel."""

import functools
from itertools import product
from typing import Any

import pytest

from meshrec.experiment import Cell
from support.experiments import OPTIMIZERS, random_batches, small_cell
from support.ranks import State, train_on_ranks
from support.reference import largest_difference, largest_relative_difference

STEPS, TOLERANCE = 30, 5e-6
LAYOUTS: dict[str, dict[str, Any]] = {
    "rows": {"sharding": "row-wise"},
    "K=3": {"replicas": 2, "sync_every": 3},
    "gradients": {"replicas": 2, "sync": "gradients"},
    "columns": {"sharding": "column-wise"},
    "mixed": {"tables": {2: "replicated", 3: "row-wise", 20: "column-wise"}},
    "lagged": {"replicas": 2, "sync_moments": "lagged"},
}
LEVELS = {name: OPTIMIZERS[name] for name in ("sgd", "scaled", "scaled_inside")} | {
    "momentum": {"kind": "momentum_rowwise_adagrad", "lr": 0.02, "beta": 0.8, "eps": 3e-3},
    "density": {"kind": "density_scaled_rowwise_adagrad", "lr": 0.02, "replicas": 2, "eps": 3e-3},
}
WHOLE_ROWS = ("rows", "K=3", "gradients")


def pairs() -> list[tuple[str, str, str]]:
    """(kernel, layout, optimizer) to be compared with the reference kernel."""
    everything = [("fbgemm", layout, name) for layout, name in product(WHOLE_ROWS, ("sgd", "scaled_inside"))]
    everything += [("fbgemm", layout, "sgd") for layout in ("columns", "mixed")]
    everything += [("numba", layout, name) for layout, name in product(WHOLE_ROWS, ("sgd", "scaled_inside", "momentum"))]
    everything += [("numba", layout, "density") for layout in ("rows", "K=3")]
    return everything + [
        ("numba", layout, name) for layout in ("columns", "mixed", "lagged") for name in ("scaled", "momentum")
    ]


CASES = pairs()


def cell_of(kernel: str, layout: str, optimizer: str) -> Cell:
    model = {"embedding_dim": 8, "hots": [1 + table % 2 for table in range(26)], "bottom_mlp": [16, 8], "top_mlp": [16, 1]}
    training = {"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "kernel": kernel}
    return small_cell(2, LAYOUTS[layout], LEVELS[optimizer], training=training, model=model)


@functools.cache
def states() -> dict[tuple[str, str, str], State]:
    """All cells in one launch."""
    cases = list(dict.fromkeys([*CASES, *(("torch", *case[1:]) for case in CASES)]))
    cells = [cell_of(*case) for case in cases]
    batches = random_batches(cells[0], STEPS)
    return dict(zip(cases, train_on_ranks(2, cells, [batches] * len(cells), timeout=250), strict=True))


@pytest.mark.parametrize(("kernel", "layout", "optimizer"), CASES)
def test_kernels_agree(kernel: str, layout: str, optimizer: str):
    found, reference = states()[kernel, layout, optimizer], states()["torch", layout, optimizer]
    assert kernel in found.live[0]["kernel"].lower()
    assert "TorchTables" in reference.live[0]["kernel"]
    assert largest_difference(found.tables[0], reference.tables[0]) < TOLERANCE
    assert largest_difference(found.dense, reference.dense) < TOLERANCE
    if optimizer != "sgd":
        assert largest_relative_difference(found.moments[0], reference.moments[0]) < 1e-3
    for name, state in found.states.items():
        assert largest_difference(state[0], reference.states[name][0]) < TOLERANCE, name


def test_another_optimizer_or_layout_would_be_seen():
    """The tolerance can tell them apart."""
    of = {case[1:]: state.tables[0] for case, state in states().items() if case[0] == "torch"}
    for one, other in (
        (("rows", "scaled_inside"), ("rows", "sgd")),
        (("rows", "momentum"), ("rows", "density")),
        (("K=3", "momentum"), ("rows", "momentum")),
        (("lagged", "scaled"), ("columns", "scaled")),
    ):
        assert largest_difference(of[one], of[other]) > 100 * TOLERANCE
