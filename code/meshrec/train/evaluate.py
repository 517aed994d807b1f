"""Quality on the whole evaluation set, the same whatever the number of ranks."""

import numpy as np
import torch
import torch.distributed as dist

from meshrec.data.batches import EvaluationBatches
from meshrec.data.store import Split
from meshrec.measure.quality import Quality, quality
from meshrec.train.trainer import Trainer


def evaluate(trainer: Trainer, split: Split, batch: int) -> Quality:
    """Predict every evaluation row on exactly one rank, gather the logits in row order and compute the metrics.

    Collective over all ranks; the result is the same on every rank.
    """
    mesh = trainer.mesh
    with trainer.ledger.closed():
        parts = EvaluationBatches(split, batch, mesh.rank, mesh.layout.ranks)
        logits = [trainer.predict(trainer.feed(part)).cpu() for part in parts]
    gathered: list[np.ndarray] = [np.empty(0)] * mesh.layout.ranks
    dist.all_gather_object(gathered, torch.cat(logits).numpy())
    return quality(parts.in_row_order(gathered), np.asarray(split.labels))
