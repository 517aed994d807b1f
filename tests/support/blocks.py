"""What tests of whole blocks share: records of a folder, runs that are the same, and blocks that are tampered with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from meshrec.experiment import Experiment
from meshrec.experiment.record import RunRecord, write_json
from support.checkout import THIS_CHECKOUT

TIMES = {"step_seconds", "samples_per_second"}
PEAKS = {"peak_rss", "peak_allocated"}


def stamps(folder: Path) -> dict[str, int]:
    """When each record was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.strong.json")}


def assert_same_run(one: RunRecord, other: RunRecord) -> None:
    """Equal but for when and how fast."""
    assert one.metrics
    assert other.metrics
    assert one.metrics.model_dump(exclude=TIMES) == other.metrics.model_dump(exclude=TIMES)
    for field in ("settings_hash", "factors", "hashes", "live", "traffic", "data", "status"):
        assert getattr(one, field) == getattr(other, field), field
    of_one, of_other = ({name: run.memory[name] for name in run.memory.keys() - PEAKS} for run in (one, other))
    assert of_one == of_other


def change(path: Path, changes: dict[str, Any]) -> None:
    """Write a record with other fields."""
    write_json(path, json.loads(path.read_text()) | changes)


def one_cell(experiment: Experiment, layout: str, optimizer: str = "plain", **training: Any) -> Experiment:
    """The experiment with this cell alone, which is the same run."""
    return experiment.model_copy(
        update={
            "layouts": {layout: experiment.layouts[layout]},
            "optimizers": {optimizer: experiment.optimizers[optimizer].model_copy(update={"layouts": None})},
            "training": experiment.training.model_copy(update=training),
        }
    )


def sabotaged(what: str, experiment: Experiment, store: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Train into `out` of a folder, in a process of its own whose ranks import a sabotage first."""
    command = sabotage_command(what, experiment, store, folder)
    return subprocess.run(command, env=THIS_CHECKOUT, capture_output=True, text=True, timeout=120, check=False)


def sabotage_command(what: str, experiment: Experiment, store: Path, folder: Path) -> list[str]:
    """The command that does so."""
    (folder / "experiment.json").write_text(experiment.model_dump_json())
    return [sys.executable, "-m", "support.sabotage", what, str(folder / "experiment.json"), str(store), str(folder / "out")]
