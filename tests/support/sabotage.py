"""Trains a block at two ranks whose engine is tampered with: `python -m support.sabotage WHAT EXPERIMENT STORE OUT`."""

import dataclasses
import functools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from meshrec.embeddings.kernels import FbgemmTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.experiment import Experiment
from meshrec.train import block, worker
from meshrec.train.trainer import Trainer

PLANTED = "planted by the test"


def main() -> None:
    what, experiment, store, out = sys.argv[1:]
    block.work_off = functools.partial(work_off_sabotaged, what)  # type: ignore[assignment]
    failed = block.train_block(Experiment.model_validate_json(Path(experiment).read_text()), 2, 0, Path(store), Path(out))
    print("failed cells:", failed)


def work_off_sabotaged(what: str, work: worker.Work) -> None:
    """On each rank: tamper, then work."""
    sabotages = {
        "raise in 2d.plain on rank 1": raise_in_a_cell,
        "swap the optimizer": swap_the_optimizer,
        "halve the learning rate": halve_the_learning_rate,
        "other weights on rank 1": other_weights_on_rank_1,
        "kill rank 1 in 2d.plain": kill_in_a_cell,
        "kill rank 1 in 2d.plain's 12th step": functools.partial(kill_in_a_cell, 12),
        "nothing": lambda: None,
    }
    sabotages[what]()
    worker.work_off(work)


def raise_in_a_cell() -> None:
    compute = Trainer.compute

    def raising(self: Trainer, *args: Any) -> Any:
        if self.cell.name.startswith("2d.plain") and dist.get_rank() == 1:
            raise RuntimeError(PLANTED)
        return compute(self, *args)

    Trainer.compute = raising  # type: ignore[method-assign]


def kill_in_a_cell(step: int = 1) -> None:
    """Kill rank 1 in a step, counted from 1 whether in this launch or before."""
    compute = Trainer.compute

    def killing(self: Trainer, *args: Any) -> Any:
        if self.cell.name.startswith("2d.plain") and dist.get_rank() == 1 and args[0].arrived.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(self, *args)

    Trainer.compute = killing  # type: ignore[method-assign]


def swap_the_optimizer() -> None:
    original = FbgemmTables.__init__

    def swapped(self: FbgemmTables, shards: Any, optimizer: RowOptimizer, device: Any) -> None:
        original(self, shards, dataclasses.replace(optimizer, kind="sgd"), device)

    FbgemmTables.__init__ = swapped  # type: ignore[method-assign]


def halve_the_learning_rate() -> None:
    compute = Trainer.compute

    def halving(self: Trainer, *args: Any) -> Any:
        self.embeddings.kernels()[0]._module.learning_rate_tensor.fill_(0.025)  # type: ignore[attr-defined]
        return compute(self, *args)

    Trainer.compute = halving  # type: ignore[method-assign]


def other_weights_on_rank_1() -> None:
    original = Trainer.__init__

    def other(self: Trainer, *args: Any) -> None:
        original(self, *args)
        if dist.get_rank() == 1:
            self.embeddings.kernels()[0].weights()[0] += 1

    Trainer.__init__ = other  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
