"""The all-to-alls inside a sharding group: ids to the owners, pooled embeddings back, gradients to the owners.

Shapes are the same in every step, so each direction is one collective without a preceding exchange of sizes. A rank sends the
ids of a table to every owner of one of its shards; with row-wise shards each owner pools the ids in its own range, and the
sample's rank adds the owners' partial sums.

Notation: b samples a rank, N ranks in the group, F tables, S shards on this rank, D numbers a row.
"""

import torch

from meshrec.embeddings.plan import Plan
from meshrec.mesh.collectives import Collectives


class Exchange:
    """Moves ids, embeddings and gradients between the ranks of a sharding group."""

    def __init__(self, plan: Plan, shard: int, dim: int, collectives: Collectives) -> None:
        device = collectives.mesh.device
        self._collectives = collectives
        self._counts = plan.counts()
        self._own = self._counts[shard]
        self._dim = dim
        self._tables = torch.tensor([s.table for s in plan.shards], device=device)
        self._tables_of_owners = torch.split(self._tables, self._counts)
        self._features = len(plan.table_rows)
        self._every_table_once = len(plan.shards) == self._features
        self._buffer_bytes = 0

    def ids_to_owners(self, ids: torch.Tensor) -> torch.Tensor:
        """Input exchange.

        Args:
            ids: [b, F] int32 rows of this rank's samples.

        Returns:
            [S, N·b] int32: for each shard of this rank the ids of the group's samples, rank by rank.
        """
        batch = ids.shape[0]
        outgoing = ids.t().index_select(0, self._tables).reshape(-1)
        incoming = self._collectives.all_to_all(
            "input_exchange", outgoing, [count * batch for count in self._counts], [self._own * batch] * len(self._counts)
        )
        self._note(outgoing, incoming)
        by_rank = incoming.view(len(self._counts), self._own, batch)
        return by_rank.transpose(0, 1).reshape(self._own, -1)

    def pooled_to_samples(self, pooled: torch.Tensor) -> torch.Tensor:
        """Output exchange.

        Args:
            pooled: [N·b, S·D] float32: this rank's shards, pooled for the group's samples.

        Returns:
            [b, F, D] float32: all tables, pooled for this rank's samples.
        """
        batch = pooled.shape[0] // len(self._counts)
        incoming = self._collectives.all_to_all(
            "output_exchange",
            pooled.reshape(-1),
            [batch * self._own * self._dim] * len(self._counts),
            [batch * count * self._dim for count in self._counts],
        )
        self._note(pooled, incoming)
        parts = torch.split(incoming, [batch * count * self._dim for count in self._counts])
        shape = (batch, self._features, self._dim)
        embeddings = pooled.new_empty(shape) if self._every_table_once else pooled.new_zeros(shape)
        for tables, part in zip(self._tables_of_owners, parts, strict=True):
            part = part.view(batch, len(tables), self._dim)
            if self._every_table_once:
                embeddings.index_copy_(1, tables, part)
            else:
                embeddings.index_add_(1, tables, part)
        return embeddings

    def gradients_to_owners(self, gradients: torch.Tensor) -> torch.Tensor:
        """Gradient exchange.

        Args:
            gradients: [b, F, D] float32, of the mean loss over this rank's samples.

        Returns:
            [N·b, S·D] float32, of the mean loss over the *group's* samples: each rank's part divided by N.
        """
        batch, ranks = gradients.shape[0], len(self._counts)
        parts = [gradients.index_select(1, tables).reshape(-1) for tables in self._tables_of_owners]
        outgoing = torch.cat(parts)
        if ranks > 1:
            outgoing.mul_(1.0 / ranks)
        incoming = self._collectives.all_to_all(
            "gradient_exchange",
            outgoing,
            [batch * count * self._dim for count in self._counts],
            [batch * self._own * self._dim] * ranks,
        )
        self._note(outgoing, incoming)
        return incoming.view(ranks * batch, self._own * self._dim)

    @property
    def buffer_bytes(self) -> int:
        """Largest pair of send and receive buffers so far, in bytes."""
        return self._buffer_bytes

    def _note(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> None:
        if incoming.data_ptr() != outgoing.data_ptr():  # a group of one exchanges nothing
            self._buffer_bytes = max(self._buffer_bytes, outgoing.nbytes + incoming.nbytes)
