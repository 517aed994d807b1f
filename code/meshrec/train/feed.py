"""From the store's NumPy batches to a rank's device, past the last check of the ids."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.data import batches
from meshrec.data.hots import expand


@dataclass(frozen=True)
class Batch:
    """A rank's samples on its device."""

    dense: torch.Tensor
    """[b, 13] float32."""
    ids: torch.Tensor
    """[b, H] int32: for each table the ids of its hots."""
    labels: torch.Tensor
    """[b] float32."""


class Feed:
    """Checks ids against the tables and moves batches to the device.

    The kernels don't check: an id past its table's end would read or write another table's memory.
    """

    def __init__(
        self,
        table_rows: list[int],
        hots: list[int],
        device: torch.device,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Feed a device.

        Args:
            table_rows: rows of each table.
            hots: ids that a sample has in each table.
            device: where batches go.
            order: [b] in which a training batch's samples are taken; as they come when left out.
        """
        self._rows = np.array(table_rows, dtype=np.int32)
        self._table_rows = table_rows
        self._hots = hots
        self._device = device
        self._order = order

    def __call__(self, batch: batches.Batch) -> Batch:
        """A rank's training samples as tensors on its device.

        Raises:
            IndexError: an id is no row of its table; names table, id and rows.
        """
        return self._move(batch if self._order is None else _taken(batch, self._order))

    def in_order(self, batch: batches.Batch) -> Batch:
        """A rank's evaluation samples, as they come.

        Raises:
            IndexError: as for training samples.
        """
        return self._move(batch)

    def _move(self, batch: batches.Batch) -> Batch:
        wrong = (batch.sparse < 0) | (batch.sparse >= self._rows)
        if wrong.any():
            sample, table = map(int, np.argwhere(wrong)[0])
            raise IndexError(
                f"table {table} has {self._rows[table]} rows, sample {sample} of the batch asks for row "
                f"{batch.sparse[sample, table]}: the store doesn't fit the experiment, prepare it again"
            )
        ids = expand(batch.sparse, self._hots, self._table_rows)
        return Batch(*(self._on_device(part) for part in (batch.dense, ids, batch.labels)))

    def _on_device(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)  # the host goes on while it travels


def _taken(batch: batches.Batch, order: NDArray[np.int64]) -> batches.Batch:
    return batches.Batch(batch.dense[order], batch.sparse[order], batch.labels[order])
