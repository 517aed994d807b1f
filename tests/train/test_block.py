"""A block resumes at the cell, records failures with their reason, and refuses what it can't pair."""

import fcntl
import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError
from meshrec.experiment import Block, Experiment
from meshrec.experiment.record import read_record, write_json
from meshrec.train.block import BlockError, train_block
from support.checkout import THIS_CHECKOUT
from support.experiments import small_experiment
from support.sabotage import PLANTED


@pytest.fixture
def finished(results: Path, tmp_path: Path) -> Path:
    """A copy of a finished block at two ranks."""
    return Path(shutil.copytree(results / "2-0", tmp_path / "2-0"))


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.strong.json")}


def test_a_finished_block_runs_nothing_again(experiment: Experiment, store: Path, finished: Path):
    before = stamps(finished)
    assert train_block(experiment, 2, 0, store, finished) == 0
    assert stamps(finished) == before


def test_only_missing_damaged_and_foreign_records_are_run_again(
    experiment: Experiment, store: Path, finished: Path, caplog: pytest.LogCaptureFixture
):
    before = stamps(finished)
    (finished / "1d.plain.strong.json").unlink()
    (finished / "2d.plain.strong.json").write_text('{"schema_version": 1, "experi')
    foreign = json.loads((finished / "2d.scaled.strong.json").read_text())
    write_json(finished / "2d.scaled.strong.json", foreign | {"settings_hash": "0"})
    elsewhere = json.loads((finished / "1d-rows.plain.strong.json").read_text())
    elsewhere["environment"]["device"] = "another"
    write_json(finished / "1d-rows.plain.strong.json", elsewhere)
    with caplog.at_level(logging.WARNING):
        assert train_block(experiment, 2, 0, store, finished) == 0
    after = stamps(finished)
    again = {"1d.plain.strong.json", "2d.plain.strong.json", "2d.scaled.strong.json", "1d-rows.plain.strong.json"}
    assert {name for name in after if after[name] != before.get(name)} == again
    assert "2d.plain.strong.json" in caplog.text


def test_a_rerun_finds_the_same_numbers(experiment: Experiment, store: Path, finished: Path, results: Path):
    (finished / "2d.scaled.strong.json").unlink()
    train_block(experiment, 2, 0, store, finished)
    one, other = (read_record(folder / "2d.scaled.strong.json") for folder in (finished, results / "2-0"))
    assert one.hashes == other.hashes
    assert one.metrics
    assert other.metrics
    assert (one.metrics.logloss, one.metrics.auc) == (other.metrics.logloss, other.metrics.auc)


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


def sabotaged(what: str, experiment_file: Path, store: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own whose ranks import a sabotage first."""
    command = [sys.executable, "-m", "support.sabotage", what, str(experiment_file), str(store), str(out)]
    return subprocess.run(command, env=THIS_CHECKOUT, capture_output=True, text=True, timeout=120, check=False)


def test_a_cell_that_raises_is_recorded_with_the_ranks_reason_and_the_others_finish(
    experiment: Experiment, store: Path, tmp_path: Path
):
    (tmp_path / "experiment.json").write_text(experiment.model_dump_json())
    done = sabotaged("raise in 2d.plain on rank 1", tmp_path / "experiment.json", store, tmp_path / "out")
    assert done.stdout.strip() == "failed cells: 1", done.stderr
    record = read_record(tmp_path / "out" / "2d.plain.strong.json")
    assert (record.status, record.reason) == ("failed", f"rank 1: RuntimeError: {PLANTED}")
    assert record.metrics is None
    for cell in Block(experiment, 2, 0).cells:
        if cell.name != "2d.plain.strong":
            assert read_record(tmp_path / "out" / f"{cell.name}.json").status == "ok"


def test_an_optimizer_swapped_behind_the_configs_back_is_caught(experiment: Experiment, store: Path, tmp_path: Path):
    (tmp_path / "experiment.json").write_text(experiment.model_dump_json())
    done = sabotaged("swap the optimizer", tmp_path / "experiment.json", store, tmp_path / "out")
    assert done.stdout.strip() == f"failed cells: {len(Block(experiment, 2, 0).cells)}", done.stderr
    reason = read_record(tmp_path / "out" / "1d.plain.strong.json").reason
    assert reason
    assert "optimizer: found 'EXACT_SGD', want 'EXACT_ROWWISE_ADAGRAD'" in reason


def reason_of(cell: str, sabotage: str, experiment: Experiment, store: Path, folder: Path) -> str:
    """Why a cell failed under a sabotage."""
    (folder / "experiment.json").write_text(experiment.model_dump_json())
    sabotaged(sabotage, folder / "experiment.json", store, folder / "out")
    record = read_record(folder / "out" / f"{cell}.strong.json")
    assert record.status == "failed"
    assert record.reason
    return record.reason


def test_a_learning_rate_changed_during_training_is_caught(experiment: Experiment, store: Path, tmp_path: Path):
    assert "lr: found 0.025" in reason_of("1d.plain", "halve the learning rate", experiment, store, tmp_path)


def test_other_initial_weights_on_one_replica_are_caught(experiment: Experiment, store: Path, tmp_path: Path):
    reason = reason_of("2d.plain", "other weights on rank 1", experiment, store, tmp_path)
    assert "replicas started from different weights" in reason


def test_a_killed_block_goes_on_where_it_was(experiment: Experiment, store: Path, tmp_path: Path):
    (tmp_path / "experiment.json").write_text(experiment.model_dump_json())
    out = tmp_path / "out"
    command = [sys.executable, "-m", "support.sabotage", "nothing", str(tmp_path / "experiment.json"), str(store), str(out)]
    launcher = subprocess.Popen(command, env=THIS_CHECKOUT)
    deadline = time.monotonic() + 60
    while not stamps(out) and time.monotonic() < deadline:
        time.sleep(0.01)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    before = stamps(out)
    assert before
    assert not (out / "block.json").exists()
    assert train_block(experiment, 2, 0, store, out) == 0
    assert {name: stamp for name, stamp in stamps(out).items() if name in before} == before
    assert len(stamps(out)) == len(Block(experiment, 2, 0).cells)


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


def test_a_cell_whose_rank_is_killed_is_tried_again_and_then_stays_failed(experiment: Experiment, store: Path, tmp_path: Path):
    """Once may be an accident; twice is the cell's own, as when it needs more memory than there is."""
    (tmp_path / "experiment.json").write_text(experiment.model_dump_json())
    arguments = ("kill rank 1 in 2d.plain", tmp_path / "experiment.json", store, tmp_path / "out")
    first = sabotaged(*arguments)
    assert first.returncode != 0
    assert "BlockError" in first.stderr
    assert "2d.plain.strong: rank 1 died by SIGKILL" in first.stderr
    assert not (tmp_path / "out" / "block.json").exists()
    before = stamps(tmp_path / "out")
    assert len(before) == len(Block(experiment, 2, 0).cells)
    second = sabotaged(*arguments)
    assert second.stdout.strip() == "failed cells: 1", second.stderr
    after = stamps(tmp_path / "out")
    assert {name for name in after if after[name] != before[name]} == {"2d.plain.strong.json"}
    reason = read_record(tmp_path / "out" / "2d.plain.strong.json").reason
    assert reason
    assert reason.startswith("launch ended: rank 1 died by SIGKILL")


def test_a_failed_cell_is_tried_again(experiment: Experiment, store: Path, finished: Path):
    record = json.loads((finished / "2d.plain.strong.json").read_text())
    write_json(finished / "2d.plain.strong.json", record | {"status": "failed", "reason": "rank 0: it rained"})
    before = stamps(finished)
    assert train_block(experiment, 2, 0, store, finished) == 0
    assert {name for name, stamp in stamps(finished).items() if stamp != before[name]} == {"2d.plain.strong.json"}


def test_records_of_other_data_are_run_again(experiment: Experiment, store: Path, finished: Path):
    record = json.loads((finished / "2d.plain.strong.json").read_text())
    record["hashes"]["data"] = "0" * 64
    write_json(finished / "2d.plain.strong.json", record)
    assert train_block(experiment, 2, 0, store, finished) == 0
    assert read_record(finished / "2d.plain.strong.json").hashes != record["hashes"]


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


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_sample_a_rank_trains_and_evaluates(store: Path, tmp_path: Path, ranks: int):
    layouts = {"1d": {}, "rows": {"sharding": "row-wise"}, "2d": {"replicas": 2}, "exact": {"replicas": 2, "sync": "gradients"}}
    experiment = small_experiment(
        ranks,
        layouts,
        {"sgd": {"kind": "sgd", "lr": 0.1}},
        scaling={"strong": {"global_batch": ranks}},
        dataset={"kind": "synthetic", "train_samples": 32, "eval_samples": 64, "table_rows": 50},
        training={"eval_batch": ranks},
    )
    prepare(experiment.dataset, tmp_path / "store")
    assert train_block(experiment, ranks, 0, tmp_path / "store", tmp_path / "out") == 0
