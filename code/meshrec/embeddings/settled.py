"""What is settled before any table is placed on one rank, and what a finished plan has to keep to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.costs import held_bytes
from meshrec.embeddings.plan import Plan, PlanError, TableShape, TableShard, split_columns, split_rows


@dataclass(frozen=True)
class Settled:
    """Tables that are split over all ranks or held by all of them, as the layout says."""

    tables: tuple[TableShape, ...]
    owners: int
    state_bytes: int
    shards: tuple[TableShard, ...]
    """Of tables that are split over all ranks."""
    replicated: tuple[int, ...]

    def memory(self) -> NDArray[np.int64]:
        """[N] bytes."""
        everywhere = sum(held_bytes(self.tables[t].rows, self.tables[t].dim, self.state_bytes) for t in self.replicated)
        held = np.full(self.owners, everywhere, np.int64)
        for shard in self.shards:
            held[shard.owner] += held_bytes(shard.rows, shard.width, self.state_bytes)
        return held

    def plan(self, shards: Sequence[TableShard], replicated: Sequence[int] = ()) -> Plan:
        """The plan with further shards and replicated tables."""
        return Plan(self.tables, self.owners, (*self.shards, *shards), (*self.replicated, *replicated))


def settle(tables: Sequence[TableShape], owners: int, kinds: Sequence[str], state_bytes: int) -> Settled:
    """Split tables of kinds `row-wise` and `column-wise` over all ranks, and set those aside that are `replicated`.

    Raises:
        PlanError: a table can't be split so.
    """
    shards: list[TableShard] = []
    for table, kind in enumerate(kinds):
        if kind == "row-wise":
            shards += split_rows(table, tables[table], range(owners))
        elif kind == "column-wise":
            shards += split_columns(table, tables[table], range(owners))
    replicated = tuple(table for table, kind in enumerate(kinds) if kind == "replicated")
    return Settled(tuple(tables), owners, state_bytes, tuple(shards), replicated)


def assert_within(plan: Plan, state_bytes: int, limit: int | None) -> None:
    """A plan that was made for little memory is within the limit, or none like it is known."""
    if limit is None:
        return
    held = [sum(held_bytes(s.rows, s.width, state_bytes) for s in (*plan.of(o), *plan.whole(o))) for o in range(plan.owners)]
    if max(held) <= limit:
        return
    worst = max(range(plan.owners), key=lambda owner: held[owner])
    largest = max((*plan.of(worst), *plan.whole(worst)), key=lambda s: s.rows * (4 * s.width + state_bytes))
    size = held_bytes(largest.rows, largest.width, state_bytes)
    part = f"table {largest.table}'s part"
    alone = largest.rows == largest.table_rows and size > limit
    raise PlanError(
        f"memory_limit is {limit} bytes a rank, but rank {worst} of {plan.owners} would hold {max(held)}, of which "
        f"{part} {'alone is too large: it takes' if alone else 'takes'} {size}. The smallest limit known to work "
        f"with this sharding is {max(held)}: raise it, split large tables by rows, or use fewer replicas"
    )
