"""From the store's NumPy batches to a rank's device, past the last check of the ids."""

import torch

from meshrec.data import batches
from meshrec.train.trainer import Batch


def to_device(batch: batches.Batch, device: torch.device) -> Batch:
    """A rank's samples as tensors on its device."""
    return Batch(
        torch.from_numpy(batch.dense).to(device),
        torch.from_numpy(batch.sparse).to(device),
        torch.from_numpy(batch.labels).to(device),
    )
