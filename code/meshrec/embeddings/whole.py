"""Tables small enough for every rank of a group to hold them whole: data parallel in the group, without any exchange of ids.

Each rank looks up its own samples and all apply the group's mean gradient, which one all-reduce of the dense sums brings. So
the group computes what it computes with the table on one of its ranks, and 2D depends on M alone, not on what is replicated.
"""

import torch

from meshrec.embeddings.exchange import id_columns, value_columns
from meshrec.embeddings.kernels import ShardTables
from meshrec.embeddings.local import RankTables
from meshrec.embeddings.packing import averaged_states
from meshrec.embeddings.plan import Plan
from meshrec.embeddings.rows import RowGradients
from meshrec.experiment.factors import Layout
from meshrec.measure.ledger import Dimension
from meshrec.mesh.collectives import Collectives


class WholeTables:
    """The replicated tables of each local twin."""

    def __init__(self, twins: list[RankTables], plan: Plan, layout: Layout, collectives: Collectives) -> None:
        device, shards = collectives.mesh.device, plan.whole(0)
        self.twins = twins
        self._collectives = collectives
        self._ids = torch.tensor(id_columns(plan, shards), dtype=torch.int64, device=device)
        self._values = torch.tensor(value_columns(plan, shards), dtype=torch.int64, device=device)
        self._exact = layout.replicas > 1 and layout.sync == "gradients"
        self._replicas = layout.replicas
        self._with_states = layout.sync_moments != "local"

    def ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Of this rank's ids [b, H] those of the replicated tables: [C, b]."""
        return ids.t().index_select(0, self._ids)

    def fill(self, embeddings: torch.Tensor, ids: torch.Tensor, twins: int) -> None:
        """Pool rows for this rank's samples, the local twins' one after the other, into embeddings [b, V]."""
        pooled = [twin.lookup(part) for twin, part in zip(self.twins[:twins], ids.chunk(twins, dim=1), strict=True)]
        embeddings.index_copy_(1, self._values, torch.cat(pooled))

    def update(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Apply the group's mean gradient (with `sync: gradients`, the global mean).

        Args:
            ids: [C, b] int32, as looked up.
            gradients: [b, V] float32, of the mean loss over this rank's samples.
        """
        own = gradients.index_select(1, self._values)
        count = len(self.twins)
        parts = zip(self.twins, ids.chunk(count, dim=1), own.chunk(count), strict=True)
        sums = [_dense_sums(twin, part, gradient * count) for twin, part, gradient in parts]
        if self._exact:
            total = sums[0] if count == 1 else torch.stack(sums).sum(dim=0)
            sums = [self._mean(total, count)] * count
        else:
            sums = [self._mean(part, 1) for part in sums]
        for twin, summed in zip(self.twins, sums, strict=True):
            _apply(twin, summed)

    def average(self) -> None:
        """Average over the replicas: over all ranks at once, so that a group's ranks stay bit-equal too."""
        copies = len(self.twins) * self._collectives.mesh.size("world")
        live = [[tensor for tables in twin.kernels for tensor in self._live(tables)] for twin in self.twins]
        flat = torch.stack([torch.cat([tensor.reshape(-1) for tensor in tensors]) for tensors in live]).sum(dim=0)
        self._collectives.all_reduce_sum("replicated_average", flat, "world")
        flat /= copies
        for twin, tensors in zip(self.twins, live, strict=True):
            for tensor, mean in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(mean.view_as(tensor))
            for tables in twin.kernels:
                tables.end_average(None)

    def _live(self, tables: ShardTables) -> list[torch.Tensor]:
        return [tables.weights(), *(averaged_states(tables.states()) if self._with_states else [])]

    def _mean(self, sums: torch.Tensor, local: int) -> torch.Tensor:
        """Sums [rows of all tables, …] of the group's mean loss, or with `sync: gradients` of the global mean loss."""
        dimension: Dimension = "world" if self._exact else "shard"
        self._collectives.all_reduce_sum("replicated_gradients", sums, dimension)
        return sums / (local * self._collectives.mesh.size(dimension))


def _dense_sums(twin: RankTables, ids: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Sums of gradients by row, [numbers] flat: of each kernel [rows, D + 1], the last column being the row's hits."""
    parts = zip(twin.kernels, twin.split_ids(ids), twin.split_gradients(gradients), strict=True)
    return torch.cat([_dense_sum(tables, part, gradient).reshape(-1) for tables, part, gradient in parts])


def _dense_sum(tables: ShardTables, ids: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    summed = tables.sum(ids, gradients)
    dense = gradients.new_zeros(tables.rows, tables.dim + 1)
    dense[summed.rows, :-1] = summed.gradients
    dense[summed.rows, -1] = 1.0
    return dense


def _apply(twin: RankTables, sums: torch.Tensor) -> None:
    sizes = [tables.rows * (tables.dim + 1) for tables in twin.kernels]
    for tables, part in zip(twin.kernels, torch.split(sums, sizes), strict=True):
        dense = part.view(tables.rows, tables.dim + 1)
        rows = dense[:, -1].nonzero()[:, 0]
        if rows.numel():
            tables.apply(RowGradients(rows, dense[rows, :-1].contiguous()))
