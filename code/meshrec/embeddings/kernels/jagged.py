"""From ids as they are exchanged to the jagged form that table-batched kernels read."""

from dataclasses import dataclass

import torch

from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard
from meshrec.embeddings.rows import RowGradients, sum_by_row


@dataclass(frozen=True)
class Jagged:
    """Bags of rows, shard-major."""

    rows: torch.Tensor
    """[total] int64 rows within their shard."""
    offsets: torch.Tensor
    """[S·B + 1] int64, where each bag begins."""


class Bags:
    """Turns ids [C, B] into bags. What depends on the shape alone is computed once."""

    def __init__(self, shards: list[TableShard], first_rows: torch.Tensor) -> None:
        self._hots = [shard.hots for shard in shards]
        self._device = first_rows.device
        self._starts = self._by_column([shard.start for shard in shards])
        self._rows = self._by_column([shard.rows for shard in shards])
        self._first = self._by_column(first_rows.tolist())
        self._all_held = all(shard.rows == shard.table_rows for shard in shards)
        self._one_hot = all(hots == 1 for hots in self._hots)
        self._batch = -1
        self._offsets = torch.empty(0)
        self._order = torch.empty(0)

    def __call__(self, ids: torch.Tensor) -> Jagged:
        """Bags of ids [C, B] int32 of the tables' rows; ids of rows that the shard doesn't hold are left out."""
        self._shape(ids.shape[1])
        local = self._bag_major(ids - self._starts)
        held = self._held(ids)
        if held is None:
            return Jagged(local.long(), self._offsets)
        before = torch.nn.functional.pad(held.cumsum(0), (1, 0))
        return Jagged(local[held].long(), before[self._offsets])

    def flat_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """[total] int64: the same bags' rows in the flat buffer."""
        self._shape(ids.shape[1])
        rows = self._bag_major(ids + (self._first - self._starts)).long()
        held = self._held(ids)
        return rows if held is None else rows[held]

    def bag_numbers(self, ids: torch.Tensor) -> torch.Tensor:
        """[total] int64: the bag of each row, shard-major."""
        self._shape(ids.shape[1])
        numbers = torch.arange(self._offsets.numel() - 1, device=self._device).repeat_interleave(self._offsets.diff())
        held = self._held(ids)
        return numbers if held is None else numbers[held]

    def _held(self, ids: torch.Tensor) -> torch.Tensor | None:
        """[C·B] bool, bag-major: which ids are of rows held here; None where all are."""
        if self._all_held:
            return None
        local = ids - self._starts
        return self._bag_major((local >= 0) & (local < self._rows))

    def _bag_major(self, by_column: torch.Tensor) -> torch.Tensor:
        """[C, B] as [C·B], the ids of a bag side by side."""
        flat = by_column.reshape(-1)
        return flat if self._one_hot else flat[self._order]

    def _by_column(self, by_shard: list[int]) -> torch.Tensor:
        """[C, 1] int32: a shard's number for each of its id columns."""
        repeated = [value for value, hots in zip(by_shard, self._hots, strict=True) for _ in range(hots)]
        return torch.tensor(repeated, dtype=torch.int32, device=self._device)[:, None]

    def _shape(self, batch: int) -> None:
        if batch == self._batch:
            return
        lengths = torch.tensor(self._hots, device=self._device).repeat_interleave(batch)
        self._offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        places = torch.arange(sum(self._hots) * batch, device=self._device).view(sum(self._hots), batch)
        self._order = torch.cat([block.t().flatten() for block in torch.split(places, self._hots)])
        self._batch = batch


class JaggedTables(ShardTables):
    """What kernels that read bags have in common."""

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> None:
        super().__init__(shards, optimizer, device)
        self._bags = Bags(shards, self.first_rows)

    def sum(self, ids: torch.Tensor, gradients: torch.Tensor) -> RowGradients:
        by_bag = gradients.view(ids.shape[1], len(self.shards), self.dim).transpose(0, 1).reshape(-1, self.dim)
        statistics = self.optimizer.kind == "density_scaled_rowwise_adagrad"
        return sum_by_row(self._bags.flat_rows(ids), by_bag[self._bags.bag_numbers(ids)], statistics)

    def touched(self, ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = torch.unique(self._bags.flat_rows(ids))
        return rows
