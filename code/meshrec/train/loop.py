"""One pass over the training samples, from the start or from a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from meshrec.data.batches import RankBatches, sample_order
from meshrec.data.store import Store
from meshrec.experiment.cells import samples_per_run
from meshrec.measure.clock import PhaseClock
from meshrec.mesh.device import synchronise
from meshrec.train.ahead import Prefetch
from meshrec.train.checkpoint import Progress, latest, resume, save
from meshrec.train.evaluate import RunDiverged
from meshrec.train.trainer import Trainer

CHECK_EVERY = 16
"""Steps between two looks at the losses."""


@dataclass(frozen=True)
class Trained:
    """What is left of a pass besides the model."""

    losses: NDArray[np.float32]
    """[steps] global mean loss."""
    clock: PhaseClock
    order_digest: int
    resumed_at: int
    """Steps that an earlier launch did."""


def train(trainer: Trainer, store: Store, checkpoints: Path) -> Trained:
    """Train on every sample of the experiment's pass, in the seed's order.

    Args:
        trainer: the model.
        store: the data.
        checkpoints: folder of this cell's; the last one there is taken up.

    Raises:
        RunDiverged: a loss is no number; on every rank alike.
        CheckpointError: the checkpoint found is damaged or of another run.
    """
    cell, mesh = trainer.cell, trainer.mesh
    order = sample_order(len(store.train), cell.seed)[: samples_per_run(cell.experiment, len(store.train))]
    batches = RankBatches(store.train, order, cell.global_batch, mesh.rank, mesh.layout.ranks)
    steps = len(batches)
    progress = Progress(0, torch.zeros(steps, device=mesh.device), PhaseClock(steps, lambda: synchronise(mesh.device)))
    found = latest(checkpoints)
    if found is not None:
        resume(found, trainer, progress, store.manifest.data_hash)
    resumed_at = progress.done
    stages = Prefetch(trainer, batches.served_from(resumed_at))
    dist.barrier()
    while progress.done < steps:
        _step(trainer, stages, progress)
        if progress.done % CHECK_EVERY == 0 or progress.done == steps:
            _check_finite(progress)
        if _is_due(trainer, progress.done, steps):
            save(checkpoints, trainer, progress, store.manifest.data_hash)
    return Trained(progress.losses.cpu().numpy(), progress.clock, batches.order_digest, resumed_at)


def _step(trainer: Trainer, stages: Prefetch, progress: Progress) -> None:
    clock, steps = progress.clock, progress.losses.numel()
    prefetches = trainer.cell.experiment.training.pipeline == "prefetch"
    # no batch may be under way when a checkpoint is written: what it has sent would count twice
    ahead = stages if prefetches and not _is_due(trainer, progress.done + 1, steps) else None
    with clock.step():
        progress.losses[progress.done] = trainer.compute(stages.take(clock), clock, ahead)
        progress.done += 1
        if progress.done == steps:
            with clock.phase("replica_sync"):
                trainer.embeddings.finish()


def _is_due(trainer: Trainer, done: int, steps: int) -> bool:
    """Whether a checkpoint follows so many steps."""
    every = trainer.cell.experiment.training.checkpoint_every
    return every is not None and done % every == 0 and done < steps


def _check_finite(progress: Progress) -> None:
    first = max(0, progress.done - CHECK_EVERY)
    recent = progress.losses[first : progress.done]
    bad = (~torch.isfinite(recent)).nonzero()
    if bad.numel():
        step = first + int(bad[0])
        raise RunDiverged(
            f"training loss is {float(progress.losses[step])} in step {step} of {progress.losses.numel()}: diverged"
        )
