"""What each rank of a plan holds and is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.costs import Setting, cumulative, held_bytes, shard_seconds
from meshrec.embeddings.placement import Items, lower_bound
from meshrec.embeddings.plan import Plan, TableShard


@dataclass(frozen=True)
class Balance:
    """How near a plan's expected step is to the best placement of its own pieces."""

    seconds: NDArray[np.float64]
    """[N] of a step, for the shards of each rank."""
    bound: float
    """Largest load that no placement of these shards is under, in seconds."""

    @property
    def gap(self) -> float:
        """Largest load over the bound, minus 1: the best placement is at most this far away."""
        return max(0.0, float(self.seconds.max()) / self.bound - 1) if self.bound else 0.0


@dataclass(frozen=True)
class PlanLoads:
    """Per rank [N], replicated tables included, and per table of a plan."""

    tables: NDArray[np.int64]
    """Shards held."""
    rows: NDArray[np.int64]
    memory: NDArray[np.int64]
    """Bytes of rows and optimizer state."""
    lookups: NDArray[np.float64]
    """Rows read for a sample of the group."""
    memory_of: NDArray[np.int64]
    """[N, F] bytes of each table's part."""
    lookups_of: NDArray[np.float64]
    """[N, F] rows of each table that are read for a sample of the group."""


def plan_loads(plan: Plan, frequencies: Sequence[NDArray[np.int64]] | None, state_bytes: int) -> PlanLoads:
    """Count what ranks hold. Without frequencies all rows of a table are taken to be asked for alike."""
    shape = plan.owners, len(plan.tables)
    held, of_rows, of_memory = (np.zeros(shape, np.int64) for _ in range(3))
    lookups = np.zeros(shape)
    for shard in plan.shards:
        held[shard.owner, shard.table] += 1
        of_rows[shard.owner, shard.table] += shard.rows
        of_memory[shard.owner, shard.table] += held_bytes(shard.rows, shard.width, state_bytes)
        lookups[shard.owner, shard.table] += shard.hots * _share(shard, frequencies)
    for table in plan.replicated:
        whole = plan.tables[table]
        held[:, table] += 1
        of_rows[:, table] += whole.rows
        of_memory[:, table] += held_bytes(whole.rows, whole.dim, state_bytes)
        lookups[:, table] += whole.hots / plan.owners
    return PlanLoads(held.sum(1), of_rows.sum(1), of_memory.sum(1), lookups.sum(1), of_memory, lookups)


def _share(shard: TableShard, frequencies: Sequence[NDArray[np.int64]] | None) -> float:
    if shard.rows == shard.table_rows:
        return 1.0
    counts = None if frequencies is None else frequencies[shard.table]
    if counts is None or not (total := int(counts.sum())):
        return shard.rows / shard.table_rows
    return int(counts[shard.start : shard.stop].sum()) / total


def plan_balance(plan: Plan, frequencies: Sequence[NDArray[np.int64]], state_bytes: int, batch: int) -> Balance:
    """Expected seconds of a step of `batch` samples of the group, and how little they could be."""
    at = Setting(plan.owners, batch, state_bytes)
    seconds = np.zeros(len(plan.shards))
    tables = np.array([shard.table for shard in plan.shards], np.int64)
    for table in np.unique(tables).tolist():
        places = np.flatnonzero(tables == table)
        of_table = cumulative(frequencies[table], plan.tables[table], batch)
        seconds[places] = shard_seconds([plan.shards[place] for place in places.tolist()], of_table, at)
    owners = np.array([shard.owner for shard in plan.shards], np.int64)
    items = Items(seconds, np.zeros(len(seconds), np.int64), tables)
    bound = lower_bound(items, np.zeros(plan.owners)) if len(items) else 0.0
    return Balance(np.bincount(owners, seconds, plan.owners).astype(np.float64), bound)
