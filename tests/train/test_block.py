"""A block resumes at the cell, records failures with their reason, and refuses what it can't pair."""

import fcntl
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError, open_store
from meshrec.experiment import Block, Experiment
from meshrec.experiment.record import read_record, write_json
from meshrec.train.block import BlockError, is_recorded, train_block
from support.blocks import assert_same_run, change, one_cell, sabotaged, stamps
from support.experiments import small_experiment
from support.sabotage import PLANTED


@pytest.fixture
def finished(results: Path, tmp_path: Path) -> Path:
    """A copy of a finished block at two ranks."""
    return Path(shutil.copytree(results / "2-0", tmp_path / "2-0"))


def test_a_finished_block_runs_nothing_again(experiment: Experiment, store: Path, finished: Path):
    before = stamps(finished)
    assert train_block(experiment, 2, 0, store, finished) == 0
    assert stamps(finished) == before


DAMAGED = '{"schema_version": 1, "experi'


def test_only_missing_damaged_and_failed_cells_are_run_again_and_find_the_same_numbers(
    experiment: Experiment, store: Path, finished: Path, results: Path, caplog: pytest.LogCaptureFixture
):
    before = stamps(finished)
    (finished / "1d.plain.strong.json").unlink()
    (finished / "2d.plain.strong.json").write_text(DAMAGED)
    change(finished / "2d.scaled.strong.json", {"status": "failed", "reason": "rank 0: it rained"})
    with caplog.at_level(logging.WARNING):
        assert train_block(experiment, 2, 0, store, finished) == 0
    after = stamps(finished)
    again = {"1d.plain.strong.json", "2d.plain.strong.json", "2d.scaled.strong.json"}
    assert {name for name in after if after[name] != before.get(name)} == again
    assert "2d.plain.strong.json" in caplog.text
    for name in again:
        assert_same_run(read_record(finished / name), read_record(results / "2-0" / name))


@pytest.mark.parametrize(
    "changes",
    [
        {"settings_hash": "0"},
        {"status": "failed"},
        {"hashes": {"init": "0", "order": "0", "plan": "0", "data": "0" * 64}},
        {"hashes": None},
        {"environment": {"device": "another"}},
    ],
    ids=str,
)
def test_a_record_of_something_else_is_none(experiment: Experiment, store: Path, finished: Path, changes: dict[str, Any]):
    cell, data = next(cell for cell in Block(experiment, 2, 0).cells if cell.name == "2d.plain.strong"), open_store(store)
    assert is_recorded(cell, data, finished)
    change(finished / "2d.plain.strong.json", changes)
    assert not is_recorded(cell, data, finished)


def test_a_diverged_cell_is_a_failed_record_and_the_others_finish(store: Path, tmp_path: Path):
    optimizers = {"wild": {"kind": "sgd", "lr": 1e30}, "sgd": {"kind": "sgd", "lr": 0.1}}
    experiment = small_experiment(2, {"1d": {}}, optimizers)
    assert train_block(experiment, 2, 0, store, tmp_path) == 1
    wild, calm = (read_record(tmp_path / f"1d.{name}.strong.json") for name in optimizers)
    assert (wild.status, calm.status) == ("failed", "ok")
    assert wild.reason
    assert "training loss is" in wild.reason
    assert "diverged" in wild.reason
    assert json.loads((tmp_path / "block.json").read_text())["status"]["1d.wild.strong"] == "failed"


def test_a_cell_that_raises_is_recorded_with_the_ranks_reason_and_the_others_finish(
    experiment: Experiment, store: Path, tmp_path: Path
):
    done = sabotaged("raise in 2d.plain on rank 1", experiment, store, tmp_path)
    assert done.stdout.strip() == "failed cells: 1", done.stderr
    record = read_record(tmp_path / "out" / "2d.plain.strong.json")
    assert (record.status, record.reason) == ("failed", f"rank 1: RuntimeError: {PLANTED}")
    assert record.metrics is None
    for cell in Block(experiment, 2, 0).cells:
        if cell.name != "2d.plain.strong":
            assert read_record(tmp_path / "out" / f"{cell.name}.json").status == "ok"


def test_an_optimizer_swapped_behind_the_configs_back_is_caught(experiment: Experiment, store: Path, tmp_path: Path):
    reason = reason_of("1d", "swap the optimizer", experiment, store, tmp_path)
    assert "optimizer: found 'EXACT_SGD', want 'EXACT_ROWWISE_ADAGRAD'" in reason


def reason_of(layout: str, sabotage: str, experiment: Experiment, store: Path, folder: Path) -> str:
    """Why the plain cell of a layout failed under a sabotage."""
    done = sabotaged(sabotage, one_cell(experiment, layout), store, folder)
    assert done.stdout.strip() == "failed cells: 1", done.stderr
    record = read_record(folder / "out" / f"{layout}.plain.strong.json")
    assert record.status == "failed"
    assert record.reason
    return record.reason


def test_a_learning_rate_changed_during_training_is_caught(experiment: Experiment, store: Path, tmp_path: Path):
    assert "lr: found 0.025" in reason_of("1d", "halve the learning rate", experiment, store, tmp_path)


def test_other_initial_weights_on_one_replica_are_caught(experiment: Experiment, store: Path, tmp_path: Path):
    reason = reason_of("2d", "other weights on rank 1", experiment, store, tmp_path)
    assert "replicas started from different weights" in reason


@pytest.mark.parametrize("name", ["init", "order"])
def test_records_that_are_no_pair_close_no_block(experiment: Experiment, store: Path, finished: Path, name: str):
    record = json.loads((finished / "1d.plain.strong.json").read_text())
    record["hashes"][name] = "0" * 16
    write_json(finished / "1d.plain.strong.json", record)
    (finished / "block.json").unlink()
    with pytest.raises(BlockError, match=f"differ in their {name} hash"):
        train_block(experiment, 2, 0, store, finished)
    assert not (finished / "block.json").exists()


def test_the_wrong_store_is_refused(experiment: Experiment, tmp_path: Path):
    other = experiment.dataset.model_copy(update={"seed": 7})
    prepare(other, tmp_path / "store")
    with pytest.raises(BlockError, match="holds another data set"):
        train_block(experiment, 2, 0, tmp_path / "store", tmp_path / "out")


@pytest.mark.parametrize(("ranks", "seed"), [(3, 0), (2, 9)])
def test_a_block_that_does_not_exist_is_refused(experiment: Experiment, store: Path, tmp_path: Path, ranks: int, seed: int):
    with pytest.raises(BlockError, match="has no block with"):
        train_block(experiment, ranks, seed, store, tmp_path)


def test_damaged_columns_are_refused(experiment: Experiment, store: Path, tmp_path: Path):
    damaged = Path(shutil.copytree(store, tmp_path / "store"))
    labels = (damaged / "label.npy").read_bytes()
    (damaged / "label.npy").write_bytes(labels[:-4] + bytes([labels[-4] ^ 1, *labels[-3:]]))
    with pytest.raises(StoreError, match=r"label\.npy"):
        train_block(experiment, 2, 0, damaged, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_evaluation_set_of_one_class_is_refused_before_training(tmp_path: Path):
    dataset = {"kind": "synthetic", "train_samples": 4096, "eval_samples": 1, "table_rows": 100}
    experiment = small_experiment(2, {"1d": {}}, {"sgd": {"kind": "sgd", "lr": 0.1}}, dataset=dataset)
    prepare(experiment.dataset, tmp_path / "store")
    with pytest.raises(BlockError, match=r"all 1 evaluation labels are [01], and metrics need clicks and non-clicks"):
        train_block(experiment, 2, 0, tmp_path / "store", tmp_path / "out")


def test_a_second_launch_into_a_folder_is_refused(experiment: Experiment, store: Path, finished: Path):
    with (finished / ".lock").open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(BlockError, match="another launch works in this folder"):
            train_block(experiment, 2, 0, store, finished)


def test_a_folder_in_a_records_place_is_refused_before_any_run(experiment: Experiment, store: Path, finished: Path):
    (finished / "2d.plain.strong.json").unlink()
    (finished / "2d.plain.strong.json").mkdir()
    with pytest.raises(BlockError, match=r"2d\.plain\.strong\.json: is no file"):
        train_block(experiment, 2, 0, store, finished)


def test_leftover_steps_are_averaged_before_evaluation_and_their_cost_is_counted(store: Path, tmp_path: Path):
    """K = 3 and 32 steps: ten averages in between, one at the end, all inside the timed steps."""
    layouts = {"2d": {"replicas": 2, "sync_every": 3}}
    experiment = small_experiment(2, layouts, {"sgd": {"kind": "sgd", "lr": 0.1}}, scaling={"strong": {"global_batch": 128}})
    assert train_block(experiment, 2, 0, store, tmp_path) == 0
    record = read_record(tmp_path / "2d.sgd.strong.json")
    assert record.metrics
    assert record.traffic["sync_average"].calls == 11 / record.metrics.steps


def test_one_sample_a_rank_trains_and_evaluates(tmp_path: Path):
    layouts = {
        "1d": {},
        "rows": {"sharding": "row-wise"},
        "planned": {"sharding": "planned"},
        "2d": {"replicas": 2},
        "copies": {"replicas": 4},
        "exact": {"replicas": 2, "sync": "gradients"},
    }
    experiment = small_experiment(
        4,
        layouts,
        {"sgd": {"kind": "sgd", "lr": 0.1}},
        scaling={"strong": {"global_batch": 4}},
        dataset={"kind": "synthetic", "train_samples": 32, "eval_samples": 64, "table_rows": 50},
        training={"eval_batch": 4},
    )
    prepare(experiment.dataset, tmp_path / "store")
    assert train_block(experiment, 4, 0, tmp_path / "store", tmp_path / "out") == 0
