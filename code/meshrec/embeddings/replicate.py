"""Keeps the M twins of a shard together: two ways, one interface.

`weights` is S1's way: after the update, twins average weights and second moments. Only rows that some twin touched since the
last average travel; the others are equal on all twins, so that the result is that of averaging whole shards.

`gradients` is the exact control: before the update, twins exchange the summed gradients of the rows that they touched and apply
the same global mean. 2D then computes what 1D computes, so that only the layout is left to compare.
"""

from dataclasses import dataclass

import torch

from meshrec.embeddings.kernels import ShardTables
from meshrec.embeddings.rows import RowGradients, sum_by_row
from meshrec.mesh.collectives import Collectives


@dataclass(frozen=True)
class SyncSize:
    """What one synchronisation moved, the same on all twins."""

    longest: int
    """Largest number of rows that one twin touched."""
    union: int
    """Rows that any twin touched."""


class TwinRows:
    """Exchange of row numbers between twins whose lists differ in length: what both ways begin with."""

    def __init__(self, collectives: Collectives) -> None:
        self.collectives = collectives
        self.twins = collectives.mesh.size("replicate")

    def longest(self, count: int, device: torch.device) -> int:
        """Largest count of all twins; collective."""
        largest = torch.tensor([count], device=device)
        self.collectives.all_reduce_max("sync_counts", largest, "replicate")
        return int(largest)

    def gather(self, rows: torch.Tensor, longest: int) -> torch.Tensor:
        """Rows [n] int64 of all twins as [M, longest] int64, padded with −1: gloo gathers only equal sizes."""
        padded = torch.nn.functional.pad(rows.int(), (0, longest - rows.numel()), value=-1)
        return self.collectives.all_gather("sync_rows", padded, "replicate").long()


class ReplicaAverage:
    """Remembers the rows that this rank touched, and averages them with its twins."""

    def __init__(self, tables: ShardTables, collectives: Collectives) -> None:
        self._tables = tables
        self._collectives = collectives
        self._twin_rows = TwinRows(collectives)
        self._touched: list[torch.Tensor] = []
        self.sizes: list[SyncSize] = []

    def touch(self, rows: torch.Tensor) -> None:
        """Note rows [n] of the flat buffer that an update has changed; repeats are allowed."""
        self._touched.append(torch.unique(rows))

    def average(self) -> None:
        """Average weights and moments over the twins; collective over the replica group. Afterwards twins are bit-equal."""
        if not self._touched:
            return
        own = self._touched[0] if len(self._touched) == 1 else torch.unique(torch.cat(self._touched))
        self._touched.clear()
        longest = self._twin_rows.longest(own.numel(), own.device)
        union = torch.unique(self._twin_rows.gather(own, longest))
        union = union[union >= 0]
        self._average_rows(union)
        self.sizes.append(SyncSize(longest, union.numel()))

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest average's buffers: padded row lists of all twins, and the rows themselves."""
        row = 4 * (self._tables.dim + (1 if self._tables.moments().numel() else 0))
        return max((4 * self._twin_rows.twins * size.longest + row * size.union for size in self.sizes), default=0)

    def _average_rows(self, rows: torch.Tensor) -> None:
        weights, moments = self._tables.weights(), self._tables.moments()
        values = weights.index_select(0, rows)
        if moments.numel():
            values = torch.cat([values, moments.index_select(0, rows)[:, None]], dim=1)
        self._collectives.all_reduce_sum("sync_average", values, "replicate")
        values /= self._twin_rows.twins
        weights.index_copy_(0, rows, values[:, : self._tables.dim])
        if moments.numel():
            moments.index_copy_(0, rows, values[:, -1])


class TwinGradients:
    """Merges the gradients that the twins have for their rows."""

    def __init__(self, dim: int, collectives: Collectives) -> None:
        self._dim = dim
        self._collectives = collectives
        self._twin_rows = TwinRows(collectives)
        self.sizes: list[SyncSize] = []

    def merge(self, own: RowGradients) -> RowGradients:
        """Mean over the twins of the gradients of every row that any of them touched; collective over the replica group.

        Args:
            own: gradients of the group's mean loss.

        Returns:
            Gradients of the global mean loss, bit-equal on all twins.
        """
        count = own.rows.numel()
        longest = self._twin_rows.longest(count, own.rows.device)
        rows = self._twin_rows.gather(own.rows, longest)
        padded = torch.nn.functional.pad(own.gradients, (0, 0, 0, longest - count))
        gathered = self._collectives.all_gather("sync_gradients", padded.reshape(-1), "replicate")
        held = rows.view(-1) >= 0
        merged = sum_by_row(rows.view(-1)[held], gathered.view(-1, self._dim)[held])
        self.sizes.append(SyncSize(longest, merged.rows.numel()))
        return RowGradients(merged.rows, merged.gradients / self._twin_rows.twins)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest merge's buffers: padded rows and gradients of all twins."""
        return max((4 * (1 + self._dim) * self._twin_rows.twins * size.longest for size in self.sizes), default=0)
