"""Keeps the M twins of a shard together: the average of weights and second moments over the replicas (S1's way).

Only rows that some twin touched since the last average travel. The others are equal on all twins, so that the result is that of
averaging whole shards.
"""

from dataclasses import dataclass

import torch

from meshrec.embeddings.tables import ShardTables
from meshrec.mesh.collectives import Collectives


@dataclass(frozen=True)
class SyncSize:
    """What one average moved, the same on all twins."""

    longest: int
    """Largest number of rows that one twin touched."""
    union: int
    """Rows that any twin touched."""


class ReplicaAverage:
    """Remembers the rows that this rank touched, and averages them with its twins."""

    def __init__(self, tables: ShardTables, collectives: Collectives) -> None:
        self._tables = tables
        self._collectives = collectives
        self._twins = collectives.mesh.size("replicate")
        self._touched: list[torch.Tensor] = []
        self.sizes: list[SyncSize] = []

    def touch(self, rows: torch.Tensor) -> None:
        """Note rows [n] of the flat buffer that the coming update will change; repeats are allowed."""
        if self._twins > 1:
            self._touched.append(rows)

    def average(self) -> None:
        """Average weights and moments over the twins; collective over the replica group. Afterwards twins are bit-equal."""
        if self._twins == 1 or not self._touched:
            return
        rows, longest = self._union(torch.unique(torch.cat(self._touched)).int())
        self._touched.clear()
        self._average_rows(rows)
        self.sizes.append(SyncSize(longest, rows.numel()))

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest average's buffers: padded row lists of all twins, and the rows themselves."""
        moment = 1 if self._tables.moments().numel() else 0
        return max((4 * self._twins * s.longest + 4 * (self._tables.dim + moment) * s.union for s in self.sizes), default=0)

    def _union(self, own: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Sorted rows that any twin touched [union] int64, and the longest twin's number of rows."""
        count = torch.tensor([own.numel()], device=own.device)
        self._collectives.all_reduce_max("sync_counts", count, "replicate")
        longest = int(count)
        # Padded with its own last row, which adds nothing to the union: gloo gathers only equal sizes.
        padding = own[-1:].expand(longest - own.numel()) if own.numel() else own.new_zeros(longest)
        gathered = self._collectives.all_gather("sync_rows", torch.cat([own, padding]), "replicate")
        return torch.unique(gathered).long(), longest

    def _average_rows(self, rows: torch.Tensor) -> None:
        weights, moments = self._tables.weights(), self._tables.moments()
        values = weights.index_select(0, rows)
        if moments.numel():
            values = torch.cat([values, moments.index_select(0, rows)[:, None]], dim=1)
        self._collectives.all_reduce_sum("sync_average", values, "replicate")
        values /= self._twins
        weights.index_copy_(0, rows, values[:, : self._tables.dim])
        if moments.numel():
            moments.index_copy_(0, rows, values[:, -1])
