"""What the live objects must say is worked out by hand, and a lie in any single field is caught and named."""

import math
from typing import Any

import numpy as np
import pytest

from meshrec.experiment import Cell
from meshrec.train.live import LiveMismatch, check_live, expected_live, live_moment_scale
from meshrec.train.setup import make_cell_plan
from support.experiments import small_cell

ROWS = [100] * 13 + [10] * 13
LAYOUT = {"replicas": 2, "sync_every": 3}
PLAIN = {"kind": "rowwise_adagrad", "lr": 0.02, "eps": 0.003}
SCALED = {"kind": "moment_scaled_rowwise_adagrad", "lr": 0.02, "eps": 0.003, "moment_scale": 4}
INSIDE = SCALED | {"eps_placement": "inside"}
MOMENTUM = {"kind": "momentum_rowwise_adagrad", "lr": 0.02, "beta": 0.9, "eps": 0.003}
DENSITY = {"kind": "density_scaled_rowwise_adagrad", "lr": 0.02, "replicas": 2, "eps": 0.003}


def cell(layout: dict[str, Any] = LAYOUT, optimizer: dict[str, Any] = PLAIN, **changes: Any) -> Cell:
    data = {"kind": "synthetic", "train_samples": 4096, "eval_samples": 512, "table_rows": ROWS}
    return small_cell(4, layout, optimizer, **{"dataset": data} | changes)


def expected(asked: Cell, rank: int) -> dict[str, Any]:
    return expected_live(asked, make_cell_plan(asked), rank)


def check(asked: Cell, rank: int, live: dict[str, Any]) -> None:
    check_live(asked, make_cell_plan(asked), rank, live)


WANTED = {
    "kernel": "fbgemm_gpu.SplitTableBatchedEmbeddingBagsCodegen",
    "optimizer": "EXACT_ROWWISE_ADAGRAD",
    "lr": 0.02,
    "eps": 0.003,
    "initial_moment": 0.0,
    "sharding_group": [0, 2],
    "replica_group": [0, 1],
    "rows_held": 7 * 100 + 6 * 10,  # tables go in turn to the rank with the fewest, large ones first
    "weight_dtype": "float32",
    "replicas": 2,
    "local_twins": 1,
    "shards": 2,
    "sync": "weights",
    "sync_every": 3,
    "sync_moments": "averaged",
    "dense_optimizer": "SGD",
    "dense_lr": 0.1,
}
"""Rank 0 of 4 with two replicas next to each other."""


def test_expectations_by_hand():
    assert expected(cell(), 0) == WANTED


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"rank": 3}, {"sharding_group": [1, 3], "replica_group": [2, 3], "rows_held": 6 * 100 + 7 * 10}),
        ({"layout": LAYOUT | {"rank_order": "shards-adjacent"}}, {"sharding_group": [0, 1], "replica_group": [0, 2]}),
        ({"layout": LAYOUT | {"sharding": "row-wise"}}, {"rows_held": 13 * 50 + 13 * 5}),
        ({"layout": {"replicas": 2, "sync": "gradients"}}, {"sync": "gradients", "sync_every": 1}),
        (
            {"layout": {"replicas": 4}},
            {
                "replicas": 4,
                "shards": 1,
                "sharding_group": [0],
                "replica_group": [0, 1, 2, 3],
                "rows_held": 1430,
                "sync_every": 1,
            },
        ),
        (
            {"layout": {"replicas": 1, "sharding": "row-wise", "sync_every": 3}},
            {
                "replicas": 1,
                "shards": 4,
                "sharding_group": [0, 1, 2, 3],
                "replica_group": [0],
                "rows_held": 13 * 25 + 13 * 2,
                "sync": None,
                "sync_every": None,
                "sync_moments": None,
            },
        ),
        ({"optimizer": SCALED}, {"lr": 0.04, "eps": 0.006}),
        ({"optimizer": INSIDE}, {"lr": 0.04, "eps": 0.0, "initial_moment": 0.012}),
        (
            {"training": {"kernel": "torch", "dense_optimizer": {"kind": "adagrad", "lr": 0.07}}},
            {"kernel": "meshrec.embeddings.kernels.reference.TorchTables", "dense_optimizer": "Adagrad", "dense_lr": 0.07},
        ),
        (
            {"training": {"execution": "virtual", "kernel": "numba"}},  # one process, whose groups are itself
            {
                "kernel": "meshrec.embeddings.kernels.compiled.NumbaTables",
                "shards": 1,
                "local_twins": 2,
                "sharding_group": [0],
                "replica_group": [0],
                "rows_held": 1430,
                "dense_optimizer": "Adagrad",
                "dense_lr": 0.02,
            },
        ),
        ({"layout": LAYOUT | {"sync_moments": "lagged"}}, {"sync_moments": "lagged"}),
        ({"layout": LAYOUT | {"sync_moments": "local"}}, {"sync_moments": "local"}),
        ({"layout": LAYOUT | {"tables": {0: "replicated", 25: "replicated"}}}, {"rows_held": 6 * 100 + 6 * 10 + 100 + 10}),
        ({"layout": LAYOUT | {"sharding": "column-wise"}}, {"rows_held": 1430}),
        ({"optimizer": MOMENTUM}, {"optimizer": "EXACT_MOMENTUM_ROWWISE_ADAGRAD"}),
        ({"optimizer": DENSITY}, {"optimizer": "EXACT_DENSITY_SCALED_ROWWISE_ADAGRAD"}),
    ],
    ids=[
        "rank 3",
        "order",
        "rows",
        "gradients",
        "replicas only",
        "1D",
        "scaled",
        "inside",
        "training",
        "virtual",
        "lagged",
        "local",
        "replicated tables",
        "columns",
        "momentum",
        "density",
    ],
)
def test_expectations_follow_the_cell(changed: dict[str, Any], wanted: dict[str, Any]):
    settings = {name: value for name, value in changed.items() if name != "rank"}
    assert rounded(expected(cell(**settings), changed.get("rank", 0))) == WANTED | wanted


def rounded(live: dict[str, Any]) -> dict[str, Any]:
    return {field: round(value, 12) if isinstance(value, float) else value for field, value in live.items()}


def test_sgd_has_neither_eps_nor_moments():
    found = expected(cell(optimizer={"kind": "sgd", "lr": 0.5}), 0)
    assert found == {field: value for field, value in WANTED.items() if field not in ("eps", "initial_moment")} | {
        "optimizer": "EXACT_SGD",
        "lr": 0.5,
    }


@pytest.mark.parametrize("rank", range(4))
def test_what_is_as_it_should_be_passes(rank: int):
    for optimizer in (PLAIN, SCALED, INSIDE, {"kind": "sgd", "lr": 0.5}):
        asked = cell(optimizer=optimizer)
        check(asked, rank, expected(asked, rank) | {"threads": 1})


def test_numbers_pass_as_the_float32_that_kernels_keep():
    asked = cell(optimizer=INSIDE)
    live = expected(asked, 0)
    kept = {field: float(np.float32(live[field])) for field in ("lr", "eps", "initial_moment", "dense_lr")}
    assert kept["lr"] != live["lr"]
    check(asked, 0, live | kept)


LIES = {
    "kernel": "meshrec.embeddings.kernels.reference.TorchTables",
    "optimizer": "EXACT_SGD",
    "lr": 0.02 * math.sqrt(2),
    "eps": 1e-8,
    "initial_moment": 1e-8,
    "sharding_group": [0, 1],
    "replica_group": [0, 2],
    "rows_held": 1430,
    "weight_dtype": "float16",
    "replicas": 1,
    "local_twins": 2,
    "shards": 4,
    "sync": "gradients",
    "sync_every": 1,
    "sync_moments": "local",
    "dense_optimizer": "Adagrad",
    "dense_lr": 0.02,
}


def test_there_is_a_lie_for_every_field():
    assert LIES.keys() == WANTED.keys() == expected(cell(), 0).keys()


@pytest.mark.parametrize("field", LIES)
def test_a_lie_in_one_field_is_caught_and_it_alone_is_named(field: str):
    with pytest.raises(LiveMismatch) as caught:
        check(cell(), 0, WANTED | {field: LIES[field]})
    said = str(caught.value)
    assert said.endswith(f": {field}: found {LIES[field]!r}, want {WANTED[field]!r}")
    assert said.startswith("cell layout.optimizer.strong, rank 0: ")


@pytest.mark.parametrize("field", WANTED)
def test_a_missing_field_is_caught(field: str):
    live = {name: value for name, value in WANTED.items() if name != field}
    with pytest.raises(LiveMismatch, match=f" {field}: found None, want "):
        check(cell(), 0, live)


@pytest.mark.parametrize("field", ["lr", "eps", "dense_lr"])
@pytest.mark.parametrize("factor", [1 + 1e-5, 1 - 1e-5, -1])
def test_small_differences_are_caught(field: str, factor: float):
    with pytest.raises(LiveMismatch, match=f" {field}: found "):
        check(cell(), 0, WANTED | {field: WANTED[field] * factor})


@pytest.mark.parametrize("field", ["lr", "eps", "initial_moment"])
def test_a_lie_about_the_scaled_optimizer_is_caught(field: str):
    """The plain optimizer's numbers in its place."""
    asked = cell(optimizer=INSIDE)
    plain = {"lr": 0.02, "eps": 0.003, "initial_moment": 0.003}
    with pytest.raises(LiveMismatch, match=f" {field}: found "):
        check(asked, 0, expected(asked, 0) | {field: plain[field]})


def test_rows_are_those_of_the_plan_that_was_made():
    """A plan from measured frequencies isn't what the cell alone would give."""
    asked = cell()
    other = make_cell_plan(cell(layout=LAYOUT | {"sharding": "row-wise"}))
    check_live(asked, other, 0, WANTED | {"rows_held": 13 * 50 + 13 * 5})
    with pytest.raises(LiveMismatch, match=" rows_held: found 760, want 715"):
        check_live(asked, other, 0, WANTED)


def test_several_lies_are_all_named():
    with pytest.raises(LiveMismatch, match=r"lr: found 1.0, want 0.02; .*replica_group: found \[0\], want \[0, 1\]"):
        check(cell(), 0, WANTED | {"lr": 1.0, "replica_group": [0]})


def test_another_ranks_state_is_caught():
    with pytest.raises(LiveMismatch, match=r"rank 3: .*sharding_group"):
        check(cell(), 3, WANTED)


@pytest.mark.parametrize(("lr", "scale"), [(0.04, 4), (0.02, 1), (0.02 * math.sqrt(2), 2), (0.01, 0.25)])
def test_the_moment_scale_is_what_the_live_learning_rate_implies(lr: float, scale: float):
    assert live_moment_scale(cell(optimizer=SCALED), {"lr": lr}) == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("optimizer", [PLAIN, {"kind": "sgd", "lr": 0.02}], ids=["plain", "sgd"])
def test_other_optimizers_have_no_moment_scale(optimizer: dict[str, Any]):
    assert live_moment_scale(cell(optimizer=optimizer), {"lr": 0.04}) is None
