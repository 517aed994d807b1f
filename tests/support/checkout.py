"""Real Snakemake in a checkout of its own: this project's workflow and code, a small experiment, and nothing else."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THIS_CHECKOUT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "code"), str(ROOT / "tests")])}
"""Environment of a process that is to import the code and the test support beside this file, whatever is installed."""
TINY = """\
name: tiny
title: A tiny experiment
question: Does the pipeline run?
dataset: {kind: synthetic, train_samples: 4096, eval_samples: 1024, table_rows: 100, strength: 1.5}
model: {embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [16, 1]}
ranks: [1, 2]
seeds: [0, 1]
scaling:
  strong: {global_batch: 256}
layouts:
  1d: {replicas: 1}
  2d: {replicas: 2, ranks: [2]}
optimizers:
  plain: {kind: rowwise_adagrad, lr: 0.05}
  scaled: {kind: moment_scaled_rowwise_adagrad, lr: 0.05, moment_scale: 2}
analysis:
  factorial: {layouts: [1d, 2d], optimizers: [plain, scaled]}
  margins: {ne: 0.01}
  confirmatory:
    - {comparison: layout, metric: ne}
"""


@dataclass(frozen=True)
class Checkout:
    """A folder in which the commands of the README work as they stand."""

    folder: Path

    def start(self, *arguments, **environment):
        """Start Snakemake in a process group of its own."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MESHREC_REAL_DATA")}
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.folder,
            env=inherited | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments, **environment):
        """Run Snakemake to its end. Returns its status and all that it printed."""
        process = self.start(*arguments, **environment)
        output, _ = process.communicate(timeout=280)
        return process.returncode, output

    def run(self, *arguments):
        """Run as `./reproduce` does; what it printed if it succeeded, else the test fails."""
        local = ["--cores", "2", "--resources", "exclusive=1", "--rerun-triggers", "mtime", "input", "--rerun-incomplete"]
        status, output = self.snakemake(*arguments, *local, "--show-failed-logs")
        assert status == 0, output
        return output

    def experiment(self, name, text):
        """Write an experiment file."""
        folder = self.folder / "experiments"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text)


def checkout_in(folder):
    """The project's code and workflow, linked into a new folder whose name has a space."""
    folder = folder / "a checkout"
    folder.mkdir()
    for name in ("Snakefile", "code", "environment.yml", "slurm"):
        (folder / name).symlink_to(ROOT / name)
    return Checkout(folder)
