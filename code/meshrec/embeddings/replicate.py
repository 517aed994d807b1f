"""Keeps the M twins of a shard together: two ways.

`weights` is S1's way: after the update, twins average weights and optimizer state. Rows that no twin touched since the last
average are equal on all twins, so that averaging the touched ones alone gives the same result as averaging whole shards.

`gradients` is the exact control: before the update, twins exchange the summed gradients of the rows that they touched and apply
the same global mean. 2D then computes what 1D computes, so that only the layout is left to compare.

In both, twins first tell each other which rows they touch. That follows from the ids alone, so that it can run ahead of the
step. A list has room for all that a twin could touch: no exchange of lengths comes before it.

Twins are on M ranks, one each, or all on one: then `local` has M of them.
"""

from dataclasses import dataclass

import torch

from meshrec.embeddings.local import RankTables
from meshrec.embeddings.packing import averaged_states, pack, unpack
from meshrec.embeddings.rows import RowGradients, sum_by_row
from meshrec.experiment.factors import Layout
from meshrec.mesh.collectives import Collectives, Pending

WHOLE_ABOVE = 0.3
"""Share of rows, touched by any twin, above which `auto` averages whole shards: picking rows out and putting them back then
costs more than the untouched rows' way over the wire. Between two ranks of one machine both ways took equally long at a share
between 0.19 and 0.36 (`tests/benchmarks/sync_rows.py`); over a slow network it is larger."""


@dataclass(frozen=True)
class SyncSize:
    """What one synchronisation moved, the same on all twins."""

    listed: int
    """Room for row numbers in a twin's list; 0 without a list."""
    numbers: int
    """float32 numbers that were averaged, or room for gradients in a twin's list."""


class TwinRows:
    """Which rows each twin touches."""

    def __init__(self, local: list[RankTables], collectives: Collectives) -> None:
        self._local = local
        self._collectives = collectives

    def announce(self, own: list[torch.Tensor], room: int) -> Pending:
        """Begin to tell the twins the distinct rows [n] of each local one, of which there can be `room`."""
        # one rank has all twins: the same list form, without a collective
        padded = [torch.nn.functional.pad(rows.int(), (0, room - rows.numel()), value=-1) for rows in own]
        return self._collectives.start_all_gather("sync_rows", torch.cat(padded), "replicate")

    @property
    def twins(self) -> int:
        """M."""
        return len(self._local) * self._collectives.mesh.size("replicate")

    def room(self, lookups: int) -> int:
        """Rows that a twin can have touched by so many lookups."""
        return min(lookups, self._local[0].rows)


@dataclass(frozen=True)
class Touched:
    """What a step changes."""

    rows: list[torch.Tensor]
    """[local twins] distinct rows [n]; empty where nobody needs to know."""
    lookups: int


@dataclass
class Average:
    """An average under way."""

    rows: torch.Tensor | None
    """[n] rows that it covers; None: whole shards."""
    packed: torch.Tensor | None
    pending: list[Pending]


class ReplicaAverage:
    """Averages the rows that some twin touched since the last average, or whole shards."""

    def __init__(self, local: list[RankTables], layout: Layout, collectives: Collectives) -> None:
        self._local = local
        self._layout = layout
        self._collectives = collectives
        self._twin_rows = TwinRows(local, collectives)
        self.with_states = layout.sync_moments != "local"
        self.touched: dict[int, Touched] = {}
        """By step, what awaits an average."""
        self._under_way: Average | None = None
        self.sizes: list[SyncSize] = []

    @property
    def lists_rows(self) -> bool:
        """Whether twins need to know each other's rows."""
        return self._layout.sync_rows != "whole"

    def touch(self, step: int, rows: list[torch.Tensor], lookups: int) -> None:
        """Note the distinct rows [n] of each local twin that a step changes, by so many lookups of each."""
        self.touched[step] = Touched(rows, lookups)

    def announce(self, last: int) -> Pending | None:
        """Begin to tell twins all rows touched since the average before step `last`, which is to end in an average."""
        if not self.lists_rows:
            return None
        steps = [self.touched[step] for step in sorted(self.touched) if self._last_averaged(last) < step <= last]
        parts = zip(*(touched.rows for touched in steps), strict=True)
        own = [of_steps[0] if len(of_steps) == 1 else torch.unique(torch.cat(of_steps)) for of_steps in parts]
        return self._twin_rows.announce(own, self._twin_rows.room(sum(touched.lookups for touched in steps)))

    def _last_averaged(self, step: int) -> int:
        return (step - 1) // self._layout.sync_every * self._layout.sync_every

    def average(self, announced: Pending | None, last: int) -> None:
        """Average over the twins what has been touched up to step `last`; collective over the replica group.

        Afterwards, or after `settle` if the layout overlaps the average with the next step, twins are bit-equal.
        """
        self.settle()
        self.touched = {step: touched for step, touched in self.touched.items() if step > last}
        rows = self._union(announced)
        self._under_way = self._start_whole() if rows is None else self._start_rows(rows)
        listed = announced.wait().numel() // self._twin_rows.twins if announced else 0
        self.sizes.append(SyncSize(listed, sum(pending.result.numel() for pending in self._under_way.pending)))
        if not self._layout.sync_overlap:
            self.settle()

    def finish(self) -> None:
        """Average what is left over since the last average."""
        if self.touched:
            last = max(self.touched)
            self.average(self.announce(last), last)
        self.settle()

    def settle(self) -> None:
        """Wait for an average under way and take it over."""
        average, self._under_way = self._under_way, None
        if average is None:
            return
        for pending in average.pending:
            pending.wait().div_(self._twin_rows.twins)
        if average.packed is None:
            self._take_over_whole(average)
        else:
            self._take_over_rows(average)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest average's buffers: row lists of all twins, and the rows themselves, unless averaged in place."""
        in_place = 0 if self.lists_rows else 4
        return max((4 * (self._twin_rows.twins * s.listed + s.numbers) - in_place * s.numbers for s in self.sizes), default=0)

    def _union(self, announced: Pending | None) -> torch.Tensor | None:
        """[n] int64 rows to average, ascending; None for whole shards."""
        if announced is None:
            return None
        union = torch.unique(announced.wait()).long()
        union = union[1:] if union.numel() and union[0] < 0 else union  # −1 fills the lists up
        dense = union.numel() > WHOLE_ABOVE * self._local[0].rows
        return None if self._layout.sync_rows == "auto" and dense else union

    def _start_rows(self, rows: torch.Tensor) -> Average:
        packed = pack(self._local[0].blocks(rows), self.with_states)
        for twin in self._local[1:]:
            packed += pack(twin.blocks(rows), self.with_states)
        return Average(rows, packed, [self._collectives.start_all_reduce_sum("sync_average", packed, "replicate")])

    def _take_over_rows(self, average: Average) -> None:
        assert average.rows is not None
        assert average.packed is not None
        for twin in self._local:
            unpack(twin.blocks(average.rows), self.with_states, average.packed)
            for block in twin.blocks(average.rows):
                block.tables.end_average(block.rows)

    def _start_whole(self) -> Average:
        first, *others = (self._whole(twin) for twin in self._local)
        for other in others:
            for total, tensor in zip(first, other, strict=True):
                total += tensor
        started = [self._collectives.start_all_reduce_sum("sync_average", tensor, "replicate") for tensor in first]
        return Average(None, None, started)

    def _take_over_whole(self, average: Average) -> None:
        for twin in self._local:
            if twin is not self._local[0]:
                for tensor, pending in zip(self._whole(twin), average.pending, strict=True):
                    tensor.copy_(pending.result)
            for tables in twin.kernels:
                tables.end_average(None)

    def _whole(self, twin: RankTables) -> list[torch.Tensor]:
        """Live buffers that a whole average covers."""
        by_kernel = (
            [tables.weights(), *(averaged_states(tables.states()) if self.with_states else [])] for tables in twin.kernels
        )
        return [tensor for tensors in by_kernel for tensor in tensors]


class TwinGradients:
    """Merges the gradients that the twins have for their rows."""

    def __init__(self, local: list[RankTables], collectives: Collectives) -> None:
        self._local = local
        self._collectives = collectives
        self._twin_rows = TwinRows(local, collectives)
        self.sizes: list[SyncSize] = []

    def announce(self, rows: list[torch.Tensor], lookups: int) -> Pending:
        """Begin to tell the twins the distinct rows [n] of each local one that a step is about to change."""
        return self._twin_rows.announce(rows, self._twin_rows.room(lookups))

    def merge(self, announced: Pending, own: list[list[RowGradients]]) -> list[RowGradients]:
        """Mean over the twins of the gradients of every row that any of them touched; collective over the replica group.

        Args:
            announced: what `announce` returned.
            own: [local twins][kernels] gradients of the group's mean loss.

        Returns:
            [kernels] gradients of the global mean loss, bit-equal on all twins.
        """
        lists = announced.wait().view(self._twin_rows.twins, -1)
        merged, first, room = [], 0, 0
        for kernel, tables in enumerate(self._local[0].kernels):
            here = (lists >= first) & (lists < first + tables.rows)
            longest = int(here.sum(dim=1).max())
            gathered = self._gather([gradients[kernel] for gradients in own], longest, tables.dim)
            filled = torch.arange(longest, device=lists.device) < here.sum(dim=1, keepdim=True)
            total = sum_by_row(lists[here].long() - first, gathered[filled])
            merged.append(RowGradients(total.rows, total.gradients / self._twin_rows.twins))
            first, room = first + tables.rows, room + longest * tables.dim
        self.sizes.append(SyncSize(lists.shape[1], room))
        return merged

    def _gather(self, own: list[RowGradients], longest: int, dim: int) -> torch.Tensor:
        """[M, longest, D] gradients of all twins, padded."""
        padded = [torch.nn.functional.pad(part.gradients, (0, 0, 0, longest - part.rows.numel())) for part in own]
        gathered = self._collectives.all_gather("sync_gradients", torch.cat(padded).reshape(-1), "replicate")
        return gathered.view(self._twin_rows.twins, longest, dim)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the largest merge's buffers: padded rows and gradients of all twins."""
        return max((4 * self._twin_rows.twins * (size.listed + size.numbers) for size in self.sizes), default=0)
