"""Makes sharding plans: as a layout says table by table, or balanced by measured access frequencies (`planned`)."""

from collections.abc import Sequence

import numpy as np

from meshrec.embeddings.costs import Setting
from meshrec.embeddings.forms import Allowed
from meshrec.embeddings.placement import place, place_by_memory
from meshrec.embeddings.plan import Plan, PlanError, TableShape, whole_items, whole_table
from meshrec.embeddings.plan_text import describe_plan, differences
from meshrec.embeddings.planned import Frequencies, planned
from meshrec.embeddings.settled import Settled, assert_within, settle
from meshrec.experiment.factors import Layout

__all__ = ["describe_plan", "differences", "make_plan"]

DEFAULT_BATCH = 2048
"""Samples of a group in a step, where a plan isn't told."""


def make_plan(
    tables: Sequence[TableShape],
    owners: int,
    layout: Layout,
    optimizer_state_bytes: int,
    frequencies: Frequencies | None,
    *,
    batch: int = DEFAULT_BATCH,
    columns: bool = False,
    replicas: bool = True,
) -> Plan:
    """Shard tables over the ranks of a group.

    Args:
        tables: their shapes.
        owners: N, ranks of the group.
        layout: sharding, tables that are sharded otherwise, and bytes that a rank may hold.
        optimizer_state_bytes: bytes of state a row.
        frequencies: lookups by row; only a planned sharding reads them.
        batch: samples of the group in a step, for a planned sharding.
        columns: whether a planned sharding may split columns.
        replicas: whether a planned sharding may replicate tables.

    Raises:
        PlanError: the tables can't be sharded as asked, or not within the memory limit.
    """
    if unknown := sorted(table for table in layout.tables if table >= len(tables)):
        raise PlanError(f"tables {unknown} are to be sharded otherwise, but there are {len(tables)} tables, from 0 on")
    kinds = [layout.tables.get(table, layout.sharding) for table in range(len(tables))]
    settled = settle(tables, owners, kinds, optimizer_state_bytes)
    if layout.sharding != "planned":
        return _explicit(settled, [t for t, kind in enumerate(kinds) if kind == "table-wise"], layout.memory_limit)
    counts = _checked(frequencies, tables)
    averaged = 1 / layout.sync_every if layout.replicas > 1 and layout.sync == "weights" else 0.0
    setting = Setting(owners, batch, optimizer_state_bytes, averaged)
    allowed = Allowed(columns, replicas and owners > 1, layout.memory_limit)
    return planned(settled, kinds, counts, setting, allowed)


def _explicit(settled: Settled, which: list[int], limit: int | None) -> Plan:
    """Place the tables `which` whole: by ids and rows if memory allows it, else by memory."""
    if which and not settled.shards and len(which) < settled.owners:
        raise PlanError(
            f"{len(which)} tables can't be sharded table-wise over {settled.owners} ranks; use row-wise or more replicas"
        )
    items, used = whole_items(settled.tables, which, settled.state_bytes), settled.memory()
    more = sum(shape.rows for shape in settled.tables) + 1  # the unit of whole_items' costs
    load = np.zeros(settled.owners, np.int64)
    for shard in settled.shards:
        load[shard.owner] += shard.hots * more + shard.rows
    chosen = place(items, load, used, limit)
    if chosen is None:
        chosen = place_by_memory(items, used)
    plan = settled.plan([whole_table(o, t, settled.tables[t]) for t, o in zip(which, chosen.tolist(), strict=True)])
    assert_within(plan, settled.state_bytes, limit)
    return plan


def _checked(frequencies: Frequencies | None, tables: Sequence[TableShape]) -> Frequencies:
    if frequencies is None:
        raise PlanError("a planned sharding needs the training samples' access frequencies: name the store they are in")
    if len(frequencies) != len(tables):
        raise PlanError(f"access frequencies of {len(frequencies)} tables, want those of {len(tables)}")
    for table, (counts, shape) in enumerate(zip(frequencies, tables, strict=True)):
        if counts.shape != (shape.rows,) or counts.dtype != np.int64 or (counts < 0).any():
            raise PlanError(
                f"table {table}: access frequencies are {counts.dtype} {list(counts.shape)}, "
                f"want int64 [{shape.rows}], none negative"
            )
    return frequencies
