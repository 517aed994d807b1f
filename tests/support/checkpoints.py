"""What checkpoint tests do on ranks. In a module of its own, since ranks import the functions that they run by name."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from meshrec.data.batches import Batch
from meshrec.experiment import Cell
from meshrec.measure.clock import PhaseClock
from meshrec.train.ahead import Prefetch
from meshrec.train.checkpoint import CheckpointError, Progress, latest, load_model, resume, save
from support.ranks import own_parts, trainer_of, whole_state

STEPS, AT = 12, 7
"""Steps of a run, and how many come before its checkpoint."""


def progress_of(trainer: Any) -> Progress:
    return Progress(0, torch.zeros(STEPS), PhaseClock(STEPS))


def train_and_save(cells: list[Cell], batches: list[Batch], folders: list[Path]) -> list[Any]:
    """Save after some steps and go on; what came out."""
    states = []
    for cell, folder in zip(cells, folders, strict=True):
        trainer = trainer_of(cell)
        progress = progress_of(trainer)
        stages = Prefetch(trainer, own_parts(trainer, batches))
        train(trainer, progress, stages, AT)
        save(folder, trainer, progress, "data")
        train(trainer, progress, stages, STEPS)
        states.append(finished(trainer, progress))
    return states


def train(trainer: Any, progress: Progress, stages: Prefetch, until: int) -> None:
    for _ in range(progress.done, until):
        with progress.clock.step():
            ahead = stages if progress.done + 1 < until else None
            progress.losses[progress.done] = trainer.compute(stages.take(progress.clock), progress.clock, ahead)
        progress.done += 1


def resume_and_train(cells: list[Cell], batches: list[Batch], folders: list[Path]) -> list[Any]:
    states = []
    for cell, folder in zip(cells, folders, strict=True):
        trainer = trainer_of(cell)
        progress = progress_of(trainer)
        resume(latest(folder), trainer, progress, "data")
        assert progress.done == AT
        train(trainer, progress, Prefetch(trainer, own_parts(trainer, batches[AT:])), STEPS)
        states.append(finished(trainer, progress))
    return states


def finished(trainer: Any, progress: Progress) -> dict[str, Any]:
    trainer.embeddings.finish()
    sizes = list(trainer.embeddings.sync_sizes)
    traffic = {name: (entry.calls, entry.sent_bytes) for name, entry in trainer.ledger.entries.items()}
    if trainer.embeddings.storage:
        trainer.embeddings.storage.gather()
    return {"losses": progress.losses.numpy(), "sizes": sizes, "traffic": traffic, **whole_state(trainer)}


def predict_from(cells: list[Cell], batch: Batch, paths: list[Path]) -> list[np.ndarray]:
    """This rank's logits of its part of a batch, from each checkpoint in each mesh."""
    logits = []
    for cell, path in zip(cells, paths, strict=True):
        trainer = trainer_of(cell)
        load_model(path, trainer)
        part = next(own_parts(trainer, [batch]))
        logits.append(trainer.predict(trainer.feed.in_order(part)).numpy())
    return logits


def attempts(cells: list[Cell], paths: list[Path], data: list[str]) -> list[str]:
    """What each attempt to resume is told; the same on every rank."""
    told = []
    for cell, path, of_data in zip(cells, paths, data, strict=True):
        trainer = trainer_of(cell)
        try:
            resume(path, trainer, progress_of(trainer), of_data)
        except CheckpointError as error:
            told.append(str(error))
        else:
            told.append("resumed")
    return told
