"""Quality on the whole evaluation set, the same whatever the number of ranks."""

import numpy as np
import torch
import torch.distributed as dist

from meshrec.data.batches import EvaluationBatches
from meshrec.data.store import Split
from meshrec.measure.quality import Quality, quality
from meshrec.train.trainer import Trainer


class RunDiverged(RuntimeError):
    """Losses or predictions are no longer numbers. Every rank finds this at the same point, since all see the same ones."""


def evaluate(trainer: Trainer, split: Split, batch: int) -> Quality:
    """Predict every evaluation row on exactly one rank, gather the logits in row order and compute the metrics.

    Collective over all ranks; the result is the same on every rank.

    Raises:
        RunDiverged: a prediction is no number.
    """
    mesh = trainer.mesh
    with trainer.ledger.closed():
        parts = EvaluationBatches(split, batch, mesh.rank, mesh.layout.ranks)
        logits = [trainer.predict(trainer.feed.in_order(part)).cpu() for part in parts]
    gathered: list[np.ndarray] = [np.empty(0)] * mesh.layout.ranks
    dist.all_gather_object(gathered, torch.cat(logits).numpy())
    predicted = parts.in_row_order(gathered)
    wrong = np.count_nonzero(~np.isfinite(predicted))
    if wrong:
        raise RunDiverged(f"{wrong} of {predicted.size} predictions are no numbers: diverged")
    return quality(predicted, np.asarray(split.labels))
