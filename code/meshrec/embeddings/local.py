"""The rows of one rank of a sharding group: a kernel for each width of rows, and one numbering of all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch

from meshrec.embeddings.kernels import ShardTables, make_tables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import Kernel


@dataclass(frozen=True)
class RowBlock:
    """Some rows of one kernel's tables."""

    tables: ShardTables
    rows: torch.Tensor
    """[n] int64 rows of its flat buffer, ascending."""


class RankTables:
    """Shards in as many kernels as they have widths, looked up and updated as one.

    Rows are numbered through, kernel by kernel: that is how twins name them to each other. C id columns, B samples, W numbers
    for each of them.
    """

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, kernel: Kernel, device: torch.device) -> None:
        """Allocate shards, which are ordered by width; weights are to be written before use."""
        self.kernels = [
            make_tables(kernel, list(of_width), optimizer, device)
            for _, of_width in groupby(shards, key=lambda shard: shard.width)
        ]
        self.rows = sum(tables.rows for tables in self.kernels)
        self._columns = [tables.columns for tables in self.kernels]
        self._widths = [len(tables.shards) * tables.dim for tables in self.kernels]
        self._device = device

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        """Pool rows: ids [C, B] int32 → [B, W] float32, shard by shard."""
        pooled = [tables.lookup(part) for tables, part in zip(self.kernels, self.split_ids(ids), strict=True)]
        return pooled[0] if len(pooled) == 1 else torch.cat([torch.empty(ids.shape[1], 0, device=self._device), *pooled], dim=1)

    def split_ids(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Ids [C, B], kernel by kernel."""
        return (ids,) if len(self.kernels) == 1 else torch.split(ids, self._columns)

    def split_gradients(self, gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients [B, W] of what `lookup` returned, kernel by kernel."""
        if len(self.kernels) == 1:
            return (gradients,)
        return tuple(part.contiguous() for part in torch.split(gradients, self._widths, dim=1))

    def touched(self, ids: torch.Tensor) -> torch.Tensor:
        """Distinct rows that ids [C, B] ask for: [n] int64, ascending."""
        parts, first = [torch.empty(0, dtype=torch.int64, device=self._device)], 0
        for tables, part in zip(self.kernels, self.split_ids(ids), strict=True):
            parts.append(tables.touched(part) + first if first else tables.touched(part))
            first += tables.rows
        return parts[1] if len(parts) == 2 else torch.cat(parts)

    def blocks(self, rows: torch.Tensor) -> Iterator[RowBlock]:
        """Ascending rows [n], kernel by kernel."""
        if len(self.kernels) == 1:
            yield RowBlock(self.kernels[0], rows)
            return
        first = 0
        for tables in self.kernels:
            edges = torch.tensor([first, first + tables.rows], device=rows.device)
            start, stop = torch.searchsorted(rows, edges).tolist()
            yield RowBlock(tables, rows[start:stop] - first)
            first += tables.rows
