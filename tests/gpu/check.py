"""Trains small cells on the GPU and compares them with the float64 model; then times and measures the reference step there."""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from meshrec.data.batches import Batch
from meshrec.experiment import Cell
from meshrec.measure.clock import PhaseClock
from meshrec.measure.memory import analytic_memory
from meshrec.mesh.device import device_of, synchronise
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.launch import launch
from meshrec.mesh.layout import MeshLayout
from meshrec.train.accounting import component_bytes
from meshrec.train.ahead import Prefetch
from meshrec.train.checkpoint import Progress, latest, resume, save
from meshrec.train.trainer import Trainer
from support.experiments import OPTIMIZERS, random_batches, small_cell
from support.ranks import own_parts, whole_state
from support.reference import simulate

STEPS, TOLERANCE = 20, 2e-5
TWO: dict[str, Any] = {"replicas": 2}
LAYOUTS: dict[str, dict[str, Any]] = {
    "1d": {},
    "2d": TWO,
    "2d K=3 overlapped": {**TWO, "sync_every": 3, "sync_overlap": True},
    "2d whole": {**TWO, "sync_rows": "whole"},
    "2d gradients": {**TWO, "sync": "gradients"},
    "2d lagged": {**TWO, "sync_moments": "lagged"},
    "2d replicated table": {**TWO, "tables": {0: "replicated"}},
}
MOMENTUM = {"kind": "momentum_rowwise_adagrad", "lr": 0.02, "beta": 0.8, "eps": 3e-3}


@dataclass(frozen=True)
class Outcome:
    """What a rank reports of a cell."""

    device: str
    backend: str
    weights: list[np.ndarray]
    """Of each table that it holds whole."""
    resumed_is_same: bool


def main() -> int:
    """Run all checks; the exit status is 0 if they pass."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--any-device", action="store_true", help="run without a GPU too")
    if not torch.cuda.is_available() and not options.parse_args().any_device:
        print("no GPU here: nothing was checked")
        return 1
    print(f"torch {torch.__version__}, {device_name()}")
    failures = [line for kernel in kernels() for line in check_kernel(kernel)]
    for kernel in kernels():
        print(launch(reference_step, 1, kernel, timeout=200, collective_timeout=60)[0])
    print("\n".join(failures) if failures else "all checks passed")
    return 1 if failures else 0


def device_name() -> str:
    """The first device in words."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"


def kernels() -> list[str]:
    """Kernels that are installed for the device."""
    try:
        version("fbgemm-gpu")  # its other build, fbgemm-gpu-cpu, has kernels for CPUs alone
    except PackageNotFoundError:
        return ["torch"]
    return ["torch", "fbgemm"]


def check_kernel(kernel: str) -> list[str]:
    """Failures of one kernel, in words."""
    failures = []
    processes = 2 if torch.cuda.device_count() >= 2 else 1
    execution = "ranks" if processes == 2 else "virtual"
    cases = [(name, cell_of(name, kernel, execution)) for name in LAYOUTS if kernel == "torch" or "lagged" not in name]
    with tempfile.TemporaryDirectory() as folder:
        cells = [cell for _, cell in cases]
        batches = random_batches(cells[0], STEPS)
        found = launch(train_all, processes, cells, batches, Path(folder), timeout=200, collective_timeout=60)[0]
    for (name, cell), outcome in zip(cases, found, strict=True):
        difference = compare(cell, batches, outcome)
        fine = difference < TOLERANCE and outcome.resumed_is_same
        print(
            f"{kernel:7} {name:20} {outcome.device}/{outcome.backend}: largest difference {difference:.1e}, "
            f"resumed {'to the bit' if outcome.resumed_is_same else 'DIFFERENTLY'}"
        )
        if not fine:
            failures.append(f"FAILED: {kernel}, {name}")
    return failures


def cell_of(name: str, kernel: str, execution: str) -> Cell:
    """A small cell; virtual replicas where there is one GPU."""
    optimizer = MOMENTUM if kernel == "torch" and name == "2d whole" else OPTIMIZERS["scaled"]
    training = {"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "kernel": kernel, "execution": execution}
    return small_cell(2, LAYOUTS[name], optimizer, training=training)


def compare(cell: Cell, batches: list[Batch], outcome: Outcome) -> float:
    """Largest difference of the tables from the float64 model's."""
    layout = cell.layout_level
    groups = MeshLayout(2, 1 if layout.sync == "gradients" else layout.replicas, layout.rank_order).sharding_groups()
    wanted = simulate(cell, batches, groups, layout.sync_every)
    return max(float(np.abs(found - table).max()) for found, table in zip(outcome.weights, wanted.tables, strict=True))


def train_all(cells: list[Cell], batches: list[Batch], folder: Path) -> list[Outcome]:
    """Every cell on this rank's device: trained, saved half-way, and resumed from there."""
    return [train(cell, batches, folder / str(index)) for index, cell in enumerate(cells)]


def train(cell: Cell, batches: list[Batch], folder: Path) -> Outcome:
    """Train a cell, and once more from its checkpoint."""
    first = trainer_of(cell)
    progress = progress_of(first)
    go_on(first, progress, batches, STEPS // 2)
    save(folder, first, progress, "data")
    go_on(first, progress, batches, STEPS)
    second = trainer_of(cell)
    again = progress_of(second)
    found = latest(folder)
    assert found is not None
    resume(found, second, again, "data")
    go_on(second, again, batches, STEPS)
    same = same_state(first, second)
    return Outcome(first.mesh.device.type, dist.get_backend(), whole_tables(first), same)


def trainer_of(cell: Cell) -> Trainer:
    """A trainer on this rank's device."""
    device = device_of(dist.get_rank(), dist.get_world_size())
    return Trainer(cell, MeshPool(device, timedelta(seconds=60)))


def progress_of(trainer: Trainer) -> Progress:
    """Nothing done yet."""
    return Progress(0, torch.zeros(STEPS, device=trainer.mesh.device), PhaseClock(STEPS))


def go_on(trainer: Trainer, progress: Progress, batches: list[Batch], until: int) -> None:
    """Train some more steps."""
    stages = Prefetch(trainer, own_parts(trainer, batches[progress.done : until]))
    while progress.done < until:
        with progress.clock.step():
            progress.losses[progress.done] = trainer.compute(stages.take(progress.clock), progress.clock, stages)
        progress.done += 1
    if until == STEPS:
        trainer.embeddings.finish()


def same_state(one: Trainer, other: Trainer) -> bool:
    """Whether two trainers hold the same, to the bit."""
    first, second = whole_state(one), whole_state(other)
    return all(np.array_equal(first[name], second[name]) for name in first)


def whole_tables(trainer: Trainer) -> list[np.ndarray]:
    """All tables of the first local replica; on ranks, of a group of one."""
    embeddings = trainer.embeddings
    tables = {shard.table: live.cpu().numpy() for shard, live in embeddings.held()}
    return [tables[table] for table in sorted(tables)]


def reference_step(kernel: str) -> str:
    """Speed and memory of the step of 26 tables × 100,000 × 16 at a batch of 8,192 on one device."""
    data = {"kind": "synthetic", "train_samples": 8192 * 4, "eval_samples": 512, "table_rows": 100_000}
    model = {"embedding_dim": 16, "bottom_mlp": [64, 16], "top_mlp": [256, 64, 1]}
    training = {"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "kernel": kernel}
    scaling = {"strong": {"global_batch": 8192}}
    cell = small_cell(1, {}, OPTIMIZERS["plain"], dataset=data, model=model, training=training, scaling=scaling)
    trainer, steps = trainer_of(cell), 30
    device = trainer.mesh.device
    clock = PhaseClock(steps)
    stages = Prefetch(trainer, own_parts(trainer, random_batches(cell, 4) * 8))
    for step in range(steps):
        if step == 5:
            synchronise(device)
            start = time.perf_counter()
        with clock.step():
            trainer.compute(stages.take(clock), clock, stages)
    synchronise(device)
    seconds = (time.perf_counter() - start) / (steps - 5)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    counted, formula = component_bytes(trainer), analytic_memory(trainer.shape(), dense_state=0)
    wrong = [name for name, size in formula.items() if counted[name] != size]
    return (
        f"{kernel:7} reference step: {8192 / seconds:,.0f} samples/s, {1000 * seconds:.2f} ms; "
        f"components {sum(counted.values()) / 2**20:.0f} MiB, peak allocated {peak / 2**20:.0f} MiB"
        + (f"; FORMULA DIFFERS for {wrong}" if wrong else "; each component as the formula says")
    )


if __name__ == "__main__":
    sys.exit(main())
