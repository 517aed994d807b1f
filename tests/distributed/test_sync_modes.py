"""Every way to keep replicas together: against the float64 groups, against each other, and on the virtual mesh."""

import functools
from typing import Any

import numpy as np
import pytest

from meshrec.experiment import Cell
from meshrec.mesh.layout import MeshLayout
from support.experiments import OPTIMIZERS, random_batches, small_cell
from support.ranks import State, train_on_ranks
from support.reference import Reference, largest_difference, largest_relative_difference, simulate

STEPS = 20
TOLERANCE = 5e-6
TWO = {"replicas": 2}
LAYOUTS: dict[str, dict[str, Any]] = {
    "blocking": TWO,
    "blocking, K=3": {**TWO, "sync_every": 3},
    "whole": {**TWO, "sync_rows": "whole"},
    "whole, K=3": {**TWO, "sync_rows": "whole", "sync_every": 3},
    "auto": {**TWO, "sync_rows": "auto", "sync_every": 3},
    "overlapped": {**TWO, "sync_overlap": True},
    "overlapped, K=3": {**TWO, "sync_overlap": True, "sync_every": 3},
    "sharded storage": {**TWO, "sync_rows": "whole", "replica_storage": "sharded"},
    "local moments": {**TWO, "sync_moments": "local"},
    "local moments, K=3": {**TWO, "sync_moments": "local", "sync_every": 3},
    "lagged": {**TWO, "sync_moments": "lagged"},
    "lagged, K=3": {**TWO, "sync_moments": "lagged", "sync_every": 3},
    "lagged overlapped": {**TWO, "sync_moments": "lagged", "sync_overlap": True},
    "gradients": {**TWO, "sync": "gradients"},
    "row-wise": {**TWO, "sharding": "row-wise"},
    "column-wise": {**TWO, "sharding": "column-wise"},
    "column-wise gradients": {**TWO, "sharding": "column-wise", "sync": "gradients"},
    "mixed": {**TWO, "tables": {0: "replicated", 3: "row-wise", 7: "column-wise", 25: "replicated"}, "sync_every": 3},
    "mixed lagged": {**TWO, "tables": {0: "replicated", 3: "row-wise"}, "sync_moments": "lagged", "sync_every": 3},
    "all replicated": {**TWO, "tables": dict.fromkeys(range(26), "replicated"), "sync_every": 3},
    "all replicated gradients": {**TWO, "tables": dict.fromkeys(range(26), "replicated"), "sync": "gradients"},
    "all replicated in one group": {"tables": dict.fromkeys(range(26), "replicated")},
    "mixed gradients": {**TWO, "tables": {0: "replicated", 25: "row-wise", 7: "column-wise"}, "sync": "gradients"},
    "mixed in one group": {"tables": {0: "replicated", 3: "row-wise", 7: "column-wise", 25: "replicated"}},
}
SAME_BITS = [
    ("whole", "blocking"),
    ("whole, K=3", "blocking, K=3"),
    ("auto", "blocking, K=3"),
    ("overlapped", "blocking"),
    ("overlapped, K=3", "blocking, K=3"),
    ("sharded storage", "blocking"),
    ("lagged overlapped", "lagged"),
]
ALL_OPTIMIZERS = OPTIMIZERS | {
    "momentum": {"kind": "momentum_rowwise_adagrad", "lr": 0.02, "beta": 0.8, "eps": 3e-3},
    "density": {"kind": "density_scaled_rowwise_adagrad", "lr": 0.02, "replicas": 2, "eps": 3e-3},
}
"""Of the sync modes' own mathematics."""
HOTS = [1 + table % 3 for table in range(26)]


def wants_gradients(name: str) -> bool:
    return LAYOUTS[name].get("sync") == "gradients"


def optimizers_of(name: str) -> list[str]:
    if name in ("blocking, K=3", "mixed in one group"):
        chosen = [*ALL_OPTIMIZERS]
    elif name in ("blocking", "lagged, K=3", "local moments, K=3"):
        chosen = ["sgd", "plain", "scaled", "scaled_inside", "momentum", "density"]
    else:
        chosen = ["scaled"]
    if "lagged" in name:
        chosen = [optimizer for optimizer in chosen if optimizer != "sgd"]
    replicates = "replicated" in LAYOUTS[name].get("tables", {}).values()
    return [optimizer for optimizer in chosen if optimizer != "density" or not replicates]


CASES = [(name, optimizer) for name in LAYOUTS for optimizer in optimizers_of(name)]


def cell_of(name: str, optimizer: str, ranks: int = 4, **training: Any) -> Cell:
    model = {"embedding_dim": 16, "bottom_mlp": [16, 16], "top_mlp": [16, 1], "hots": HOTS}
    settings = {"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "kernel": "torch", **training}
    return small_cell(ranks, LAYOUTS[name], ALL_OPTIMIZERS[optimizer], training=settings, model=model)


def train(processes: int, **training: Any) -> dict[tuple[str, str], State]:
    cells = [cell_of(*case, **training) for case in CASES]
    batches = random_batches(cells[0], STEPS)
    return dict(zip(CASES, train_on_ranks(processes, cells, [batches] * len(cells), timeout=280), strict=True))


@functools.cache
def on_ranks() -> dict[tuple[str, str], State]:
    return train(4)


@functools.cache
def virtually() -> dict[tuple[str, str], State]:
    return train(1, execution="virtual")


@functools.cache
def reference(groups: tuple[tuple[int, ...], ...], every: int, moments: str, optimizer: str) -> Reference:
    cell = small_cell(
        4,
        {"replicas": max(2, len(groups)), "sync_moments": moments},
        ALL_OPTIMIZERS[optimizer],
        model=cell_of("blocking", optimizer).experiment.model.model_dump(),
    )
    return simulate(cell, random_batches(cell, STEPS), [list(group) for group in groups], every)


def wanted(name: str, optimizer: str) -> Reference:
    """Gradients that are exchanged make one group of all ranks."""
    layout = cell_of(name, optimizer).layout_level
    groups = MeshLayout(4, 1 if wants_gradients(name) else layout.replicas, layout.rank_order).sharding_groups()
    return reference(tuple(map(tuple, groups)), layout.sync_every, layout.sync_moments, optimizer)


def assert_is(state: State, name: str, optimizer: str) -> None:
    expected = wanted(name, optimizer)
    local = "local" in name
    settings = ALL_OPTIMIZERS[optimizer]
    start = settings.get("moment_scale", 1) * settings["eps"] if settings.get("eps_placement") == "inside" else 0.0
    for replica in range(len(state.tables)):
        group = expected.groups[replica if local else 0]
        assert largest_difference(state.tables[replica], [table.weights.numpy() for table in group]) < TOLERANCE
        if optimizer != "sgd":
            moments = [table.moments.numpy() + start for table in group]
            assert largest_relative_difference(state.moments[replica], moments) < 1e-3
        if optimizer == "momentum":
            assert (
                largest_difference(state.states["velocity"][replica], [table.velocity.numpy() for table in group]) < TOLERANCE
            )
        if optimizer == "density":
            hits = [table.density[:, 3].numpy() for table in group]
            assert largest_difference([density[:, 3] for density in state.states["density"][replica]], hits) < 1e-3
    assert largest_difference(state.dense, [expected.dense] * len(state.dense)) < TOLERANCE
    assert np.abs(state.losses - expected.losses).max() < TOLERANCE


@pytest.mark.parametrize(("name", "optimizer"), CASES)
def test_ranks_compute_what_the_groups_compute(name: str, optimizer: str):
    assert_is(on_ranks()[name, optimizer], name, optimizer)


@pytest.mark.parametrize(("name", "optimizer"), CASES)
def test_the_virtual_mesh_computes_what_the_groups_compute(name: str, optimizer: str):
    state = virtually()[name, optimizer]
    assert state.live[0]["local_twins"] == len(state.tables)
    assert_is(state, name, optimizer)


@pytest.mark.parametrize(("one", "other"), SAME_BITS)
@pytest.mark.parametrize("optimizer", ["scaled"])
def test_the_way_that_rows_travel_changes_no_bit(one: str, other: str, optimizer: str):
    assert_same_bits(on_ranks()[one, optimizer], on_ranks()[other, optimizer])


def assert_same_bits(one: State, other: State) -> None:
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.dense, other.dense)
    for replica in range(len(one.tables)):
        for table in range(26):
            np.testing.assert_array_equal(one.tables[replica][table], other.tables[replica][table])
            np.testing.assert_array_equal(one.moments[replica][table], other.moments[replica][table])


def test_modes_that_differ_in_their_mathematics_differ():
    """The tolerance can tell them apart: otherwise nothing above would prove anything."""
    base = on_ranks()["blocking", "scaled"].tables[0]
    for name in ("blocking, K=3", "local moments", "lagged", "gradients"):
        assert largest_difference(on_ranks()[name, "scaled"].tables[0], base) > 100 * TOLERANCE
    plain = on_ranks()["blocking", "plain"].tables[0]
    for optimizer in ("momentum", "density"):
        assert largest_difference(on_ranks()["blocking", optimizer].tables[0], plain) > 100 * TOLERANCE


def test_stages_that_overlap_change_no_bit():
    """Prefetching exchanges the next batch's ids during a step; the numbers stay."""
    names = ["blocking, K=3", "overlapped", "gradients", "sharded storage", "mixed", "mixed in one group"]
    cells = [cell_of(name, "scaled", pipeline="sequential") for name in names]
    batches = random_batches(cells[0], STEPS)
    for name, state in zip(names, train_on_ranks(4, cells, [batches] * len(cells)), strict=True):
        assert_same_bits(state, on_ranks()[name, "scaled"])


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_byte_on_the_wire_is_in_the_formula(case: tuple[str, str]):
    state = on_ranks()[case]
    for entries, formula in zip(state.traffic, state.analytic, strict=True):
        counted = {name: entry.sent_bytes / STEPS for name, entry in entries.items() if entry.sent_bytes}
        assert counted == pytest.approx({name: sent for name, sent in formula.items() if sent}, rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_byte_of_memory_is_in_the_formula(case: tuple[str, str]):
    for counted, formula in on_ranks()[case].memory:
        assert {name: counted[name] for name in formula} == formula


@functools.cache
def large() -> dict[str, State]:
    """Three steps on tables of which a batch touches few rows."""
    data = {"kind": "synthetic", "train_samples": 4096, "eval_samples": 512, "table_rows": 2000}
    names = ["blocking", "whole", "auto", "sharded storage"]
    cells = [small_cell(2, LAYOUTS[name], OPTIMIZERS["plain"], dataset=data) for name in names]
    return dict(zip(names, train_on_ranks(2, cells, [random_batches(cells[0], 3)] * len(cells)), strict=True))


def sent_to_twins(name: str) -> float:
    return sum(entry.sent_bytes for kind, entry in large()[name].traffic[0].items() if kind.startswith("sync"))


def test_touched_rows_send_far_less_than_whole_shards():
    assert sent_to_twins("blocking") < sent_to_twins("whole") / 20
    assert sent_to_twins("auto") < sent_to_twins("whole") / 20  # few rows are touched, so that it takes them alone


def test_sharded_storage_halves_what_a_twin_keeps():
    for (whole, _), (half, _) in zip(large()["whole"].memory, large()["sharded storage"].memory, strict=True):
        assert half["tables"] == whole["tables"] / 2
        assert half["optimizer_state"] == whole["optimizer_state"] / 2
