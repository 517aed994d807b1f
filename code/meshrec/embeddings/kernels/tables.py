"""What a kernel offers: equally wide rows of one rank's shards in one flat buffer, their lookup and their update."""

from abc import ABC, abstractmethod
from typing import Any

import torch

from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import PlanError, TableShard
from meshrec.embeddings.rows import RowGradients

LARGEST_ROW = 2**31 - 1
"""Row numbers travel between twins as 32-bit integers."""


class ShardTables(ABC):
    """Rows of shards, shard by shard. D numbers a row, S shards, C = Σ hots id columns, B bags (samples) of each shard."""

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> None:
        """Allocate rows and their optimizer state; weights are to be written before use.

        Raises:
            PlanError: more rows than a 32-bit integer counts.
        """
        if sum(shard.rows for shard in shards) > LARGEST_ROW:
            raise PlanError(
                f"{sum(shard.rows for shard in shards)} rows on one rank, want at most {LARGEST_ROW}: use more shards"
            )
        self.shards = shards
        self.dim = shards[0].width
        self.optimizer = optimizer
        self.device = device
        self.rows = sum(shard.rows for shard in shards)
        self.columns = sum(shard.hots for shard in shards)
        """C."""
        self.first_rows = torch.tensor([0, *(shard.rows for shard in shards[:-1])], device=device).cumsum(0)
        """[S] int64, where each shard begins in the flat buffer."""
        self.steps = 0
        """Updates so far: what the density-scaled optimizer divides hits by."""

    @abstractmethod
    def weights(self) -> torch.Tensor:
        """[rows, D] float32: the live weights of all shards, one below the other."""

    @abstractmethod
    def states(self) -> dict[str, torch.Tensor]:
        """Live optimizer state by name: [rows] or [rows, width] float32; see `RowOptimizer.state_widths`."""

    @abstractmethod
    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        """Sum the rows of every bag.

        Args:
            ids: [C, B] int32 rows of the *tables*, a column of the batch for each hot of each shard. Of a shard that holds
                part of its table's rows, ids of other rows add nothing.

        Returns:
            [B, S·D] float32.
        """

    @abstractmethod
    def update(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Update the rows of a lookup, repeated ones once by the sum of their gradients.

        Args:
            ids: [C, B] int32, as in `lookup`.
            gradients: [B, S·D] float32, of the pooled rows.
        """

    @abstractmethod
    def sum(self, ids: torch.Tensor, gradients: torch.Tensor) -> RowGradients:
        """The first half of `update`: gradients by distinct row of the flat buffer."""

    @abstractmethod
    def apply(self, summed: RowGradients, mean_squares: torch.Tensor | None = None) -> None:
        """The second half of `update`: change distinct rows by their summed gradients.

        Args:
            summed: of rows in this buffer.
            mean_squares: [n] float32, mean of the gradient's squares over the whole row of the table, where the shards hold
                only some columns of it.
        """

    @abstractmethod
    def touched(self, ids: torch.Tensor) -> torch.Tensor:
        """Distinct rows of the flat buffer that ids [C, B] ask for: [n] int64, ascending."""

    @abstractmethod
    def live(self) -> dict[str, Any]:
        """What the kernel itself says it runs: class, optimizer, learning rate, ε, dtype, device."""

    def end_average(self, rows: torch.Tensor | None) -> None:
        """Replicas are one again: what lags takes over the present moments, of some rows or of all."""
        states = self.states()
        if "lagged_moments" in states:
            index = slice(None) if rows is None else rows
            states["lagged_moments"][index] = states["moments"][index]
