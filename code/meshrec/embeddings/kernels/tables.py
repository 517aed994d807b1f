"""What a kernel offers: the rows of one rank's shards in one flat buffer, their lookup and their update."""

from abc import ABC, abstractmethod
from typing import Any

import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.plan import PlanError, TableShard

LARGEST_ROW = 2**31 - 1
"""Row numbers travel between twins as 32-bit integers."""


class ShardTables(ABC):
    """Rows of one rank's shards, shard by shard in the plan's order. D numbers a row, S shards, B bags a shard."""

    def __init__(self, shards: list[TableShard], dim: int, optimizer: KernelOptimizer, device: torch.device) -> None:
        if sum(shard.rows for shard in shards) > LARGEST_ROW:
            raise PlanError(
                f"{sum(shard.rows for shard in shards)} rows on one rank, want at most {LARGEST_ROW}: use more shards"
            )
        self.shards = shards
        self.dim = dim
        self.has_moments = optimizer.has_moments
        self.first_rows = torch.tensor([0, *(shard.rows for shard in shards[:-1])], device=device).cumsum(0)
        """[S] int64, where each shard begins in the flat buffer."""

    @abstractmethod
    def weights(self) -> torch.Tensor:
        """[rows, D] float32: the live weights of all shards, one below the other."""

    @abstractmethod
    def moments(self) -> torch.Tensor:
        """[rows] float32: the live second moments; of SGD, which has none, an empty tensor."""

    @abstractmethod
    def lookup(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Sum the rows of every bag.

        Args:
            indices: [total] int64 rows within their shard, shard-major.
            offsets: [S·B + 1] int64, where each of the B bags of each of the S shards begins.

        Returns:
            [B, S·D] float32. Its backward updates the rows, repeated ones by the sum of their gradients.
        """

    @abstractmethod
    def apply(self, rows: torch.Tensor, gradients: torch.Tensor) -> None:
        """Update distinct rows by their summed gradients: the update of `lookup`'s backward without a lookup's samples.

        Args:
            rows: [n] int64, ascending rows of the flat buffer.
            gradients: [n, D] float32.
        """

    @abstractmethod
    def live(self) -> dict[str, Any]:
        """What the kernel itself says it runs: class, optimizer, learning rate, ε, dtype, device."""
