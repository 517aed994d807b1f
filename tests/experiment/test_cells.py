import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshrec.experiment import blocks, dataset_id, load_experiment
from meshrec.experiment.cells import Block, cells_of, samples_per_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def smoke():
    return load_experiment(ROOT / "experiments" / "smoke.yaml")


def changed(experiment, **parts):
    """The experiment with parts replaced; not validated again."""
    return experiment.model_copy(update=parts)


def test_blocks_are_seeds_by_ranks_and_hold_every_cell_once(smoke):
    listed = blocks(smoke)
    assert [block.name for block in listed] == [f"{ranks}-{seed}" for seed in (0, 1, 2) for ranks in (1, 2, 4)]
    for block in listed:
        expected = {"1d.plain.strong", "1d.scaled.strong"}
        if block.ranks > 1:
            expected |= {"2d.plain.strong", "2d.scaled.strong"}
        assert sorted(cell.name for cell in block.cells) == sorted(expected)


def test_the_order_is_a_shuffle_that_differs_between_blocks_and_is_always_the_same(smoke):
    many = [Block(smoke, 4, seed) for seed in range(200)]
    orders = [tuple(cell.name for cell in block.cells) for block in many]
    assert orders == [tuple(cell.name for cell in Block(smoke, 4, seed).cells) for seed in range(200)]
    assert len(set(orders)) > 20  # of 24
    first = [order[0] for order in orders]
    assert all(30 < first.count(cell) < 70 for cell in set(first))  # each of four is first in about 50 of 200


def test_the_order_does_not_depend_on_pythons_hash_seed(smoke):
    program = (
        "from meshrec.experiment import blocks, load_experiment\n"
        "print([c.name + c.settings_hash for b in blocks(load_experiment('experiments/smoke.yaml')) for c in b.cells])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert printed == {f"{[cell.name + cell.settings_hash for block in blocks(smoke) for cell in block.cells]}\n"}


def test_an_optimizer_may_be_crossed_with_some_layouts_only():
    experiment = load_experiment(ROOT / "experiments" / "kaggle_sample.yaml")
    assert {cell.layout for cell in cells_of(experiment, 4, 0) if cell.optimizer == "plain_root2"} == {"2d"}
    assert {cell.layout for cell in cells_of(experiment, 4, 0) if cell.optimizer == "plain"} == {"1d", "2d", "exact"}


def test_mesh_and_batch_of_a_cell(smoke):
    cells = {cell.name: cell for cell in cells_of(smoke, 4, 0)}
    assert (cells["1d.plain.strong"].layout_level.replicas, cells["1d.plain.strong"].shards) == (1, 4)
    assert (cells["2d.plain.strong"].layout_level.replicas, cells["2d.plain.strong"].shards) == (2, 2)
    weak = changed(smoke, scaling={"weak": type(smoke.scaling["strong"])(rank_batch=100)})
    assert [next(cells_of(weak, ranks, 0)).global_batch for ranks in (1, 2, 4)] == [100, 200, 400]


def test_samples_per_run_is_the_largest_number_that_all_batches_divide(smoke):
    level = type(smoke.scaling["strong"])
    mixed = changed(smoke, scaling={"a": level(global_batch=12), "b": level(rank_batch=9)})  # 12; 9, 18, 36
    assert samples_per_run(mixed, 107) == 72
    assert samples_per_run(mixed, 36) == 36
    with pytest.raises(ValueError, match="35 training samples are fewer than 36"):
        samples_per_run(mixed, 35)


def test_settings_hash_ignores_labels_and_the_analysis(smoke):
    hashes = [cell.settings_hash for cell in cells_of(smoke, 4, 0)]
    renamed = changed(
        smoke,
        name="other",
        title="other",
        question="other",
        layouts={f"x{label}": layout for label, layout in smoke.layouts.items()},
        optimizers={f"x{label}": optimizer for label, optimizer in smoke.optimizers.items()},
        analysis=smoke.analysis.model_copy(update={"confidence": 0.9, "margins": {}}),
    )
    assert [cell.settings_hash for cell in cells_of(renamed, 4, 0)] == hashes
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    "change",
    [
        lambda e: {"dataset": e.dataset.model_copy(update={"seed": 1})},
        lambda e: {"model": e.model.model_copy(update={"top_mlp": [8, 1]})},
        lambda e: {"training": e.training.model_copy(update={"warmup_steps": 6})},
        lambda e: {"training": e.training.model_copy(update={"kernel": "torch"})},
        lambda e: {"training": e.training.model_copy(update={"execution": "virtual"})},
        lambda e: {"training": e.training.model_copy(update={"pipeline": "sequential"})},
        lambda e: {"model": e.model.model_copy(update={"hots": 2})},
        lambda e: {"layouts": {"1d": e.layouts["1d"].model_copy(update={"tables": {3: "replicated"}})}},
        lambda e: {"layouts": {"1d": e.layouts["1d"].model_copy(update={"memory_limit": 10**9})}},
        lambda e: {"scaling": {"strong": type(e.scaling["strong"])(global_batch=4096)}},
        lambda e: {"layouts": {"1d": e.layouts["1d"].model_copy(update={"sharding": "row-wise"})}},
        lambda e: {"optimizers": {"plain": e.optimizers["plain"].model_copy(update={"eps": 1e-7})}},
    ],
)
def test_settings_hash_covers_everything_that_a_run_depends_on(smoke, change):
    first, other = (next(cells_of(experiment, 4, 0)) for experiment in (smoke, changed(smoke, **change(smoke))))
    assert first.settings_hash != other.settings_hash
    assert {first.settings_hash} != {next(cells_of(smoke, 4, 1)).settings_hash, next(cells_of(smoke, 2, 0)).settings_hash}


@pytest.mark.parametrize("training", [{"checkpoint_every": 7}, {"checkpoint_every": 7, "keep_checkpoints": True}], ids=str)
def test_settings_hash_ignores_checkpoints(smoke, training):
    """A run that is checkpointed is the same run: to ask for checkpoints once it was killed makes no other one of it."""
    other = changed(smoke, training=smoke.training.model_copy(update=training))
    assert [cell.settings_hash for cell in cells_of(other, 4, 0)] == [cell.settings_hash for cell in cells_of(smoke, 4, 0)]
    assert [cell.factors for cell in cells_of(other, 4, 0)] == [cell.factors for cell in cells_of(smoke, 4, 0)]


REPLICATION = ("sync", "sync_every", "sync_moments", "sync_rows", "sync_overlap", "rank_order", "replica_storage")


def test_factors_say_every_level_and_what_has_none(smoke):
    one, two = (
        next(cell for cell in cells_of(smoke, 4, 0) if cell.name == f"{name}.strong") for name in ("1d.plain", "2d.scaled")
    )
    assert two.factors == {
        "dataset": "synthetic",
        "layout": "2d",
        "replicas": 2,
        "rank_order": "replicas-adjacent",
        "sharding": "table-wise",
        "memory_limit": None,
        "sync": "weights",
        "sync_every": 1,
        "sync_moments": "averaged",
        "sync_rows": "touched",
        "sync_overlap": False,
        "replica_storage": "replicated",
        "optimizer": "scaled",
        "optimizer_kind": "moment_scaled_rowwise_adagrad",
        "lr": 0.02,
        "eps": 1e-8,
        "eps_placement": "outside",
        "moment_scale": 2,
        "beta": None,
        "scaling": "strong",
        "global_batch": 2048,
        "execution": "ranks",
    }
    assert {name: one.factors[name] for name in REPLICATION} == dict.fromkeys(REPLICATION)
    assert one.factors["moment_scale"] is None


def test_execution_is_a_factor(smoke):
    virtual = changed(smoke, training=smoke.training.model_copy(update={"execution": "virtual"}))
    assert {cell.factors["execution"] for cell in cells_of(virtual, 4, 0)} == {"virtual"}


def test_a_layout_of_one_replica_ignores_what_has_no_effect_on_it(smoke):
    one = changed(
        smoke, layouts={"1d": smoke.layouts["1d"].model_copy(update={"sync_every": 9, "rank_order": "shards-adjacent"})}
    )
    for setting in ({"sync_moments": "local"}, {"sync_rows": "whole"}, {"sync_overlap": True}, {"replica_storage": "sharded"}):
        same = changed(smoke, layouts={"1d": smoke.layouts["1d"].model_copy(update=setting)})
        assert next(cells_of(same, 4, 0)).settings_hash == next(cells_of(smoke, 4, 0)).settings_hash
    assert next(cells_of(one, 4, 0)).settings_hash == next(cells_of(smoke, 4, 0)).settings_hash
    two = changed(smoke, layouts={"2d": smoke.layouts["2d"].model_copy(update={"sync_every": 9})})
    assert next(cells_of(two, 4, 0)).settings_hash not in {cell.settings_hash for cell in cells_of(smoke, 4, 0)}


def test_dataset_id_names_the_kind_and_changes_with_every_setting(smoke):
    kaggle = load_experiment(ROOT / "experiments" / "kaggle_sample.yaml").dataset
    ids = [dataset_id(smoke.dataset), dataset_id(kaggle)]
    ids += [dataset_id(smoke.dataset.model_copy(update={key: 7})) for key in ("table_rows", "seed", "eval_samples", "strength")]
    ids += [dataset_id(kaggle.model_copy(update={key: "x"})) for key in ("path", "variant")]
    assert len(set(ids)) == len(ids)
    assert [name.split("-")[0] for name in ids] == ["synthetic", "criteo", *["synthetic"] * 4, *["criteo"] * 2]
