"""What a layout can't be, and settings that no optimizer has."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from meshrec.experiment.factors import Layout, Optimizer

STORED = {"replicas": 2, "replica_storage": "sharded", "sync_rows": "whole"}
EXACT = {"replicas": 2, "sync": "gradients"}
KINDS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "rowwise_adagrad": {},
    "moment_scaled_rowwise_adagrad": {"moment_scale": 2},
    "momentum_rowwise_adagrad": {"beta": 0.9},
    "density_scaled_rowwise_adagrad": {"replicas": 2},
}


def test_a_layout_is_1d_unless_it_says_otherwise():
    plain = Layout()
    assert (plain.replicas, plain.sharding, plain.tables, plain.memory_limit) == (1, "table-wise", {}, None)
    assert (plain.sync, plain.sync_every, plain.sync_moments, plain.sync_rows) == ("weights", 1, "averaged", "touched")
    assert (plain.sync_overlap, plain.replica_storage, plain.ranks) == (False, "replicated", None)
    assert plain.at(1)
    assert [Layout(ranks=[2, 4]).at(ranks) for ranks in (1, 2, 4)] == [False, True, True]


@pytest.mark.parametrize(
    ("settings", "key", "wanted"),
    [
        ({**EXACT, "sync_every": 2}, "sync_every is 2", "want 1"),
        ({**EXACT, "sync_moments": "local"}, "sync_moments is local", "want averaged"),
        ({**EXACT, "sync_rows": "whole"}, "sync_rows is whole", "want touched"),
        ({**EXACT, "sync_overlap": True}, "sync_overlap is True", "want False"),
        ({**STORED, "sync": "gradients", "sync_rows": "touched"}, "sync is gradients", "want weights"),
        ({**STORED, "sync_every": 2}, "sync_every is 2", "want 1"),
        ({**STORED, "sync_moments": "lagged"}, "sync_moments is lagged", "want averaged"),
        ({**STORED, "sync_rows": "auto"}, "sync_rows is auto", "want whole"),
        ({**STORED, "sync_overlap": True}, "sync_overlap is True", "want False"),
    ],
    ids=str,
)
def test_ways_to_keep_replicas_together_that_exclude_each_other(settings: dict[str, Any], key: str, wanted: str):
    with pytest.raises(ValidationError, match=f"{key}, {wanted}: twins that") as caught:
        Layout.model_validate(settings)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    "settings", [STORED, EXACT, {**EXACT, "tables": {25: "replicated"}}, {"sync_overlap": True, "replicas": 2}]
)
def test_ways_that_go_together(settings: dict[str, Any]):
    assert Layout.model_validate(settings).replicas == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"replicas": 0},
        {"sync_every": 0},
        {"memory_limit": 0},
        {"ranks": []},
        {"tables": {26: "row-wise"}},
        {"tables": {-1: "row-wise"}},
        {"tables": {0: "planned"}},
        {"sharding": "replicated"},
        {"sync_moments": "shared"},
        {"sync_rows": "some"},
        {"replica_storage": "nowhere"},
        {"rank_order": "random"},
        {"overlap": True},
    ],
    ids=str,
)
def test_levels_that_there_are_not(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        Layout.model_validate(settings)


@pytest.mark.parametrize("kind", KINDS)
def test_no_optimizer_decays_weights(kind: str):
    settings = {"kind": kind, "lr": 0.1, **KINDS[kind]}
    assert TypeAdapter(Optimizer).validate_python(settings).kind == kind
    with pytest.raises(
        ValidationError, match="weight_decay is not supported: of a sparse update it would decay touched rows only"
    ):
        TypeAdapter(Optimizer).validate_python(settings | {"weight_decay": 0.0})


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "momentum_rowwise_adagrad", "beta": 1.0},
        {"kind": "momentum_rowwise_adagrad", "beta": -0.1},
        {"kind": "momentum_rowwise_adagrad"},
        {"kind": "momentum_rowwise_adagrad", "beta": 0.9, "eps_placement": "inside"},
        {"kind": "density_scaled_rowwise_adagrad"},
        {"kind": "density_scaled_rowwise_adagrad", "replicas": 0},
        {"kind": "density_scaled_rowwise_adagrad", "replicas": 2, "moment_scale": 2},
        {"kind": "sgd", "eps": 0.1},
    ],
    ids=str,
)
def test_optimizer_settings_that_there_are_not(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        TypeAdapter(Optimizer).validate_python({"lr": 0.1, **settings})
