"""Row-wise second moments of tables whose columns are split: the mean of the squares over the whole row, not over a shard.

A row's moment would else depend on how its table is sharded. Owners of a table's column shards all receive the same ids, so
that their lists of distinct rows agree: one all-reduce of the partial sums over the group brings the whole row's.
"""

from itertools import accumulate, pairwise
from typing import Self

import torch

from meshrec.embeddings.local import RankTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import Plan, TableShard
from meshrec.embeddings.rows import RowGradients
from meshrec.mesh.collectives import Collectives


class ColumnSquares:
    """Completes mean squares over the column shards of a group."""

    def __init__(self, local: RankTables, plan: Plan, collectives: Collectives) -> None:
        self._local = local
        self._collectives = collectives
        self._split = sorted({(_key(shard), shard.hots) for shard in plan.shards if is_split(shard)})

    @classmethod
    def of(cls, local: RankTables, plan: Plan, optimizer: RowOptimizer, collectives: Collectives) -> Self | None:
        """What completes the squares; None where no table's columns are split, or the optimizer has no moments."""
        if optimizer.has_moments and any(map(is_split, plan.shards)):
            return cls(local, plan, collectives)
        return None

    def of_rows(self, summed: list[RowGradients], samples: int) -> list[torch.Tensor | None]:
        """Mean squares [n] over the table's whole rows, kernel by kernel; collective over the sharding group.

        Args:
            summed: of each kernel.
            samples: from which the gradients come: no table has more distinct rows than samples times hots.
        """
        sums = [part.gradients.square().sum(dim=1) for part in summed]
        first = list(accumulate((self._room(key, hots, samples) for key, hots in self._split), initial=0))
        first_of = {key: start for (key, _), start in zip(self._split, first[:-1], strict=True)}
        shared = sums[0].new_zeros(first[-1])
        views = [
            (own, shared[first_of[_key(shard)] : first_of[_key(shard)] + own.numel()])
            for shard, own in self._shards(summed, sums)
            if is_split(shard)
        ]
        for own, place in views:
            place.copy_(own)
        self._collectives.all_reduce_sum("column_squares", shared, "shard")
        for own, place in views:
            own.copy_(place)
        for shard, own in self._shards(summed, sums):
            own.div_(shard.table_dim)
        return list(sums)

    def numbers(self, samples: int) -> int:
        """float32 numbers that an all-reduce moves."""
        return sum(self._room(key, hots, samples) for key, hots in self._split)

    def _shards(self, summed: list[RowGradients], sums: list[torch.Tensor]) -> list[tuple[TableShard, torch.Tensor]]:
        """Each shard with its part of the sums, as a view."""
        parts = []
        for tables, of_kernel, values in zip(self._local.kernels, summed, sums, strict=True):
            edges = torch.searchsorted(of_kernel.rows, tables.first_rows).tolist()
            spans = pairwise([*edges, of_kernel.rows.numel()])
            parts += [(shard, values[start:stop]) for shard, (start, stop) in zip(tables.shards, spans, strict=True)]
        return parts

    def _room(self, key: tuple[int, int, int], hots: int, samples: int) -> int:
        return min(key[2] - key[1], hots * samples)


def is_split(shard: TableShard) -> bool:
    """Whether the shard holds only some of its table's columns."""
    return shard.width < shard.table_dim


def _key(shard: TableShard) -> tuple[int, int, int]:
    return shard.table, shard.start, shard.stop
