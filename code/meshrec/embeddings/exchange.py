"""The all-to-alls inside a sharding group: ids to the owners, pooled embeddings back, gradients to the owners.

Shapes are the same in every step, so each direction is one collective without a preceding exchange of sizes. A rank sends the
ids of a table to every owner of one of its shards; with row-wise shards each owner pools the ids in its own range, and the
sample's rank adds the owners' partial sums.

Notation: b samples a rank, N ranks in the group; C id columns and W numbers a sample for this rank's shards; H id columns and V
numbers a sample of all tables.
"""

import math
from itertools import accumulate

import torch

from meshrec.embeddings.plan import Plan, TableShard
from meshrec.mesh.collectives import Collectives, Pending


class Exchange:
    """Moves ids, embeddings and gradients between the ranks of a sharding group."""

    def __init__(self, plan: Plan, shard: int, collectives: Collectives) -> None:
        self._collectives = collectives
        device = collectives.mesh.device
        by_owner = [plan.of(owner) for owner in range(plan.owners)]
        self._ids = [sum(s.hots for s in shards) for shards in by_owner]
        self._widths = [sum(s.width for s in shards) for shards in by_owner]
        self._own_ids, self._own_width = self._ids[shard], self._widths[shard]
        self._id_columns = torch.tensor(id_columns(plan, list(plan.shards)), dtype=torch.int64, device=device)
        self._width = sum(shape.dim for shape in plan.tables)
        self._unit, units = _unit_columns(plan)
        self._units_of_owners = [torch.tensor(columns, dtype=torch.int64, device=device) for columns in units]
        flat = [column for columns in units for column in columns]
        self._every_column_once = len(set(flat)) == len(flat)
        self._all_columns = len(set(flat)) * self._unit == self._width
        self._in_place = flat == list(range(len(flat))) and self._all_columns and plan.owners == 1
        """Whether a sample's embeddings lie side by side as they are pooled."""
        self._buffer_bytes = 0

    def start_ids(self, ids: torch.Tensor) -> Pending:
        """Input exchange, begun.

        Args:
            ids: [b, H] int32 rows of this rank's samples.

        Returns:
            What `ids_of_group` takes, once it is there.
        """
        batch = ids.shape[0]
        outgoing = ids.t().index_select(0, self._id_columns).reshape(-1)
        pending = self._collectives.start_all_to_all(
            "input_exchange", outgoing, [count * batch for count in self._ids], [self._own_ids * batch] * len(self._ids)
        )
        self._note(outgoing, pending.result)
        return pending

    def ids_of_group(self, incoming: torch.Tensor, batch: int) -> torch.Tensor:
        """Input exchange, ended: [C, N·b] int32, for each id column of this rank the group's samples, rank by rank."""
        ranks = len(self._ids)
        by_rank = incoming.view(ranks, self._own_ids, batch)
        return by_rank.transpose(0, 1).reshape(self._own_ids, ranks * batch)

    def pooled_to_samples(self, pooled: torch.Tensor) -> torch.Tensor:
        """Output exchange.

        Args:
            pooled: [N·b, W] float32: this rank's shards, pooled for the group's samples.

        Returns:
            [b, V] float32: all tables, pooled for this rank's samples; zeros for tables that no rank owns.
        """
        if self._in_place:
            return pooled
        batch = pooled.shape[0] // len(self._widths)
        incoming = self._collectives.all_to_all(
            "output_exchange",
            pooled.reshape(-1),
            [batch * self._own_width] * len(self._widths),
            [batch * width for width in self._widths],
        )
        self._note(pooled, incoming)
        full = self._every_column_once and self._all_columns
        embeddings = pooled.new_empty(batch, self._width) if full else pooled.new_zeros(batch, self._width)
        by_unit = embeddings.view(batch, -1, self._unit)
        parts = torch.split(incoming, [batch * width for width in self._widths])
        for columns, part in zip(self._units_of_owners, parts, strict=True):
            part = part.view(batch, len(columns), self._unit)
            if self._every_column_once:
                by_unit.index_copy_(1, columns, part)
            else:
                by_unit.index_add_(1, columns, part)
        return embeddings

    def gradients_to_owners(self, gradients: torch.Tensor) -> torch.Tensor:
        """Gradient exchange.

        Args:
            gradients: [b, V] float32, of the mean loss over this rank's samples.

        Returns:
            [N·b, W] float32, of the mean loss over the *group's* samples: each rank's part divided by N.
        """
        if self._in_place:
            return gradients
        batch, ranks = gradients.shape[0], len(self._widths)
        by_unit = gradients.view(batch, -1, self._unit)
        outgoing = gradients.new_empty(batch * sum(self._widths))
        parts = torch.split(outgoing, [batch * width for width in self._widths])
        for columns, part in zip(self._units_of_owners, parts, strict=True):
            torch.index_select(by_unit, 1, columns, out=part.view(batch, len(columns), self._unit))
        if ranks > 1:
            outgoing.mul_(1.0 / ranks)
        incoming = self._collectives.all_to_all(
            "gradient_exchange",
            outgoing,
            [batch * width for width in self._widths],
            [batch * self._own_width] * ranks,
        )
        self._note(outgoing, incoming)
        return incoming.view(ranks * batch, self._own_width)

    @property
    def buffer_bytes(self) -> int:
        """Largest pair of send and receive buffers so far, in bytes."""
        return self._buffer_bytes

    def _note(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> None:
        if len(self._ids) > 1:  # a group of one exchanges nothing
            self._buffer_bytes = max(self._buffer_bytes, outgoing.nbytes + incoming.nbytes)


def id_columns(plan: Plan, shards: list[TableShard]) -> list[int]:
    """Columns of a batch's ids [b, H] that shards read, shard by shard."""
    first = [0, *accumulate(shape.hots for shape in plan.tables)]
    return [column for shard in shards for column in range(first[shard.table], first[shard.table] + shard.hots)]


def value_columns(plan: Plan, shards: list[TableShard]) -> list[int]:
    """Columns of a batch's embeddings [b, V] that shards fill, shard by shard."""
    first = [0, *accumulate(shape.dim for shape in plan.tables)]
    return [column for s in shards for column in range(first[s.table] + s.left, first[s.table] + s.right)]


def _unit_columns(plan: Plan) -> tuple[int, list[list[int]]]:
    """The widest unit in which all shards and tables can be moved, and the units of [b, V / unit] that each owner fills."""
    unit = math.gcd(*(shape.dim for shape in plan.tables), *(edge for s in plan.shards for edge in (s.left, s.right)))
    columns = [value_columns(plan, plan.of(owner)) for owner in range(plan.owners)]
    return unit, [[column // unit for column in of_owner[::unit]] for of_owner in columns]
