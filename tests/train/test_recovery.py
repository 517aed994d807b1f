"""A block that is killed, or one of whose ranks is, goes on where it was, and ends as if nothing had happened."""

import signal
import subprocess
import time
from pathlib import Path

from meshrec.experiment import Block, Experiment
from meshrec.experiment.record import read_record
from meshrec.train.block import train_block
from support.blocks import assert_same_run, one_cell, sabotage_command, sabotaged, stamps
from support.checkout import THIS_CHECKOUT
from support.experiments import OPTIMIZERS, small_experiment


def test_a_killed_block_goes_on_where_it_was(experiment: Experiment, store: Path, tmp_path: Path):
    out = tmp_path / "out"
    launcher = subprocess.Popen(sabotage_command("nothing", experiment, store, tmp_path), env=THIS_CHECKOUT)
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


def test_a_cell_whose_rank_is_killed_is_tried_again_and_then_stays_failed(experiment: Experiment, store: Path, tmp_path: Path):
    """Once may be an accident; twice is the cell's own, as when it needs more memory than there is."""
    few = small_experiment(2, {"1d": {}, "2d": {"replicas": 2}}, {"plain": OPTIMIZERS["plain"]})
    arguments = ("kill rank 1 in 2d.plain", few, store, tmp_path)
    first = sabotaged(*arguments)
    assert first.returncode != 0
    assert "BlockError" in first.stderr
    assert "2d.plain.strong: rank 1 died by SIGKILL" in first.stderr
    assert not (tmp_path / "out" / "block.json").exists()
    before = stamps(tmp_path / "out")
    assert len(before) == 2
    second = sabotaged(*arguments)
    assert second.stdout.strip() == "failed cells: 1", second.stderr
    after = stamps(tmp_path / "out")
    assert {name for name in after if after[name] != before[name]} == {"2d.plain.strong.json"}
    reason = read_record(tmp_path / "out" / "2d.plain.strong.json").reason
    assert reason
    assert reason.startswith("launch ended: rank 1 died by SIGKILL")


def test_a_cell_killed_between_checkpoints_goes_on_at_the_last_one_and_ends_as_if_undisturbed(
    experiment: Experiment, store: Path, results: Path, tmp_path: Path
):
    """Checkpoints after steps 5 and 10, killed in step 12 of 32. In the second launch the very first step would be deadly."""
    cell = one_cell(experiment, "2d", checkpoint_every=5)
    first = sabotaged("kill rank 1 in 2d.plain's 12th step", cell, store, tmp_path)
    assert "2d.plain.strong: rank 1 died by SIGKILL" in first.stderr
    checkpoints = tmp_path / "out" / "2d.plain.strong.checkpoint"
    assert [path.name for path in checkpoints.iterdir()] == ["step-10"]
    second = sabotaged("kill rank 1 in 2d.plain", cell, store, tmp_path)
    assert second.stdout.strip() == "failed cells: 0", second.stderr
    name = "2d.plain.strong.json"
    assert_same_run(read_record(tmp_path / "out" / name), read_record(results / "2-0" / name))
    assert not checkpoints.exists()


def test_writing_checkpoints_sends_nothing_that_a_step_sends(store: Path, tmp_path: Path):
    """Shards that are stored in parts are gathered for a checkpoint, and nobody counts it. The last one stays if asked."""
    layout = {"replicas": 2, "sync_rows": "whole", "replica_storage": "sharded"}
    training = {"checkpoint_every": 20, "keep_checkpoints": True}
    experiment = small_experiment(2, {"2d": layout}, {"plain": OPTIMIZERS["plain"]}, training=training)
    assert train_block(experiment, 2, 0, store, tmp_path) == 0
    traffic = read_record(tmp_path / "2d.plain.strong.json").traffic
    assert traffic["storage_gather"].counted == traffic["storage_gather"].analytic > 0
    assert [path.name for path in (tmp_path / "2d.plain.strong.checkpoint").iterdir()] == ["step-60"]
