"""What the compiled loops write beside rows and states, and tensors as they see them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard

_WORD = 64
"""Bits."""


class Scratch:
    """Arrays that are kept from call to call, as large as the largest shard and the largest batch so far want them."""

    def __init__(self, shards: list[TableShard], dim: int, optimizer: RowOptimizer) -> None:
        self._shards = shards
        self._dim = dim
        self.statistics = optimizer.kind == "density_scaled_rowwise_adagrad"
        """Whether sums come with hits and squares."""
        largest = max(shard.rows for shard in shards)
        words = -(-largest // _WORD)
        self.marks = (np.zeros(words, np.uint64), np.zeros(-(-words // _WORD), np.uint64), np.empty(largest, np.int32))
        """A bit for each row of a shard, a bit for each word of those, and the number of each row that was marked."""
        self._samples = -1
        self.fit(0)

    def fit(self, samples: int) -> None:
        """Make room for so many samples."""
        if samples <= self._samples:
            return
        self._samples = samples
        distinct = [min(shard.rows, shard.hots * samples) for shard in self._shards]
        self.rows: NDArray[np.int64] = np.empty(sum(distinct), np.int64)
        """Distinct rows of all shards."""
        room = max(distinct)
        counted = room if self.statistics else 0
        self.sums = (np.empty((room, self._dim), np.float32), *(np.empty(counted, np.float32) for _ in range(2)))
        """Of one shard's distinct rows: gradients [n, D], hits [n] and squares [n], or [0] where nobody wants them."""


def array(tensor: torch.Tensor) -> NDArray[Any]:
    """The same numbers, C-contiguous.

    Not by `tensor.numpy()`: PyTorch never resizes a storage again that it has shown to NumPy so.
    """
    return np.from_dlpack(tensor.detach().contiguous())
