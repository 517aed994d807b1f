"""From the store's NumPy batches to a rank's device, past the last check of the ids."""

from dataclasses import dataclass

import numpy as np
import torch

from meshrec.data import batches


@dataclass(frozen=True)
class Batch:
    """A rank's samples on its device."""

    dense: torch.Tensor
    """[b, 13] float32."""
    ids: torch.Tensor
    """[b, 26] int32."""
    labels: torch.Tensor
    """[b] float32."""


class Feed:
    """Checks ids against the tables and moves batches to the device.

    The kernels don't check: an id past its table's end would read or write another table's memory.
    """

    def __init__(self, table_rows: list[int], device: torch.device) -> None:
        self._rows = np.array(table_rows, dtype=np.int32)
        self._device = device

    def __call__(self, batch: batches.Batch) -> Batch:
        """A rank's samples as tensors on its device.

        Raises:
            IndexError: an id is no row of its table; names table, id and rows.
        """
        wrong = (batch.sparse < 0) | (batch.sparse >= self._rows)
        if wrong.any():
            sample, table = map(int, np.argwhere(wrong)[0])
            raise IndexError(
                f"table {table} has {self._rows[table]} rows, sample {sample} of the batch asks for row "
                f"{batch.sparse[sample, table]}: the store doesn't fit the experiment, prepare it again"
            )
        return Batch(*(torch.from_numpy(part).to(self._device) for part in (batch.dense, batch.sparse, batch.labels)))
