"""A sharding plan in words: as tables, and in what the plans of several ranks differ."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.plan import Plan, TableShard
from meshrec.embeddings.plan_loads import Balance, PlanLoads, plan_balance, plan_loads

MOST_LINES = 64
"""Ranks that are listed one by one."""


def describe_plan(
    plan: Plan, frequencies: Sequence[NDArray[np.int64]] | None, optimizer_state_bytes: int, batch: int = 2048
) -> str:
    """The plan as aligned text: each table's sharding, and what each rank holds and is asked for.

    Args:
        plan: who holds what.
        frequencies: lookups by row; without them all rows of a table are taken to be asked for alike.
        optimizer_state_bytes: bytes of state a row.
        batch: samples of the group in a step, for the expected balance.
    """
    loads = plan_loads(plan, frequencies, optimizer_state_bytes)
    parts = [
        f"plan {plan.hash}: {len(plan.tables)} tables over {plan.owners} rank{'s'[: plan.owners > 1]}",
        _aligned([("table", "rows", "columns", "ids", "bytes", "sharding", "ranks"), *_of_tables(plan, optimizer_state_bytes)]),
        _aligned([("rank", "shards", "rows", "bytes", "lookups a sample", "share"), *_of_ranks(loads)]),
        *_balance_lines(loads, frequencies, plan, optimizer_state_bytes, batch),
    ]
    return "\n\n".join(parts)


def _of_tables(plan: Plan, state_bytes: int) -> Iterator[tuple[str, ...]]:
    by_table: dict[int, list[TableShard]] = {table: [] for table in range(len(plan.tables))}
    for shard in plan.shards:
        by_table[shard.table].append(shard)
    for table, shape in enumerate(plan.tables):
        shards = by_table[table]
        where = "all" if table in plan.replicated else _ranges(sorted(shard.owner for shard in shards))
        held = shape.rows * (4 * shape.dim + state_bytes)
        yield (str(table), f"{shape.rows:,}", str(shape.dim), str(shape.hots), f"{held:,}", _kind(shards), where)


def _kind(shards: list[TableShard]) -> str:
    if not shards:
        return "replicated"
    if len(shards) == 1:
        return "table-wise"
    if all(shard.width == shard.table_dim for shard in shards):
        return f"row-wise, {len(shards)}"
    return f"column-wise, {len(shards)}" if all(s.rows == s.table_rows for s in shards) else f"grid, {len(shards)}"


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers, neighbours as `first–last`."""
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(numbers), start=1) if b != a + 1), len(numbers)]
    runs = [(numbers[a], numbers[b - 1]) for a, b in pairwise(starts)]
    return " ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def _of_ranks(loads: PlanLoads) -> Iterator[tuple[str, ...]]:
    total = max(loads.lookups.sum(), 1e-300)
    columns = (loads.tables, loads.rows, loads.memory)
    for rank in range(min(len(loads.rows), MOST_LINES)):
        lookups = loads.lookups[rank]
        yield (str(rank), *(f"{column[rank]:,}" for column in columns), f"{lookups:.2f}", f"{lookups / total:.1%}")
    if len(loads.rows) > MOST_LINES:
        yield (f"… {len(loads.rows) - MOST_LINES} more", *[""] * 5)
    largest = (f"{_over_mean(column):.2f}" for column in (*columns, loads.lookups))
    yield ("max / mean", *largest, "")


def _over_mean(column: NDArray[np.float64] | NDArray[np.int64]) -> float:
    mean = float(column.mean())
    return float(column.max()) / mean if mean else 1.0


def _balance_lines(
    loads: PlanLoads, frequencies: Sequence[NDArray[np.int64]] | None, plan: Plan, state_bytes: int, batch: int
) -> Iterator[str]:
    if frequencies is None:
        if any(shard.rows < shard.table_rows for shard in plan.shards):
            yield "Lookups: as if all rows of a table were asked for alike; a store says how often they are."
        return
    if plan.shards:
        yield _balance_line(plan_balance(plan, frequencies, state_bytes, batch), batch)


def _balance_line(balance: Balance, batch: int) -> str:
    mean = float(balance.seconds.mean())
    return (
        f"Expected of {batch} samples of the group: {1e3 * balance.seconds.max():.2f} ms on the most loaded rank, "
        f"{balance.seconds.max() / mean:.3f} × the mean.\n"
        f"No placement of these shards is under {balance.bound / mean:.3f} × the mean: gap at most {balance.gap:.1%}."
    )


def _aligned(rows: list[tuple[str, ...]]) -> str:
    """Columns side by side, numbers to the right; the last column of words to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    words = [column for column, name in enumerate(rows[0]) if name in ("sharding", "ranks")]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in words else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


# --- between ranks ----------------------------------------------------------------------------------------------------


def differences(plans: Sequence[Plan]) -> str | None:
    """How the plans that ranks made differ from rank 0's, in words; None if all are equal.

    Args:
        plans: one for each rank of a launch.
    """
    groups: list[tuple[Plan, list[int]]] = []
    for rank, plan in enumerate(plans):
        same = next((ranks for known, ranks in groups if known == plan), None)
        if same is None:
            groups.append((plan, [rank]))
        else:
            same.append(rank)
    if len(groups) < 2:
        return None
    first, ranks = groups[0]
    name = f"rank{'s'[: len(ranks) > 1]} {_ranges(ranks)}"
    return "; ".join(
        f"rank{'s'[: len(others) > 1]} {_ranges(others)}: {_difference(plan, first, name)}" for plan, others in groups[1:]
    )


def _difference(plan: Plan, first: Plan, name: str) -> str:
    """The first thing in which a plan differs from the one of the ranks `name`."""
    if plan.owners != first.owners:
        return f"for {plan.owners} ranks of a group, {name} for {first.owners}"
    if len(plan.tables) != len(first.tables):
        return f"{len(plan.tables)} tables, {name} {len(first.tables)}"
    for table, (own, other) in enumerate(zip(plan.tables, first.tables, strict=True)):
        if own != other:
            return f"table {table} is {own}, {name} {other}"
    different = [table for table in range(len(plan.tables)) if _parts(plan, table) != _parts(first, table)]
    more = f" ({len(different)} tables differ)" if len(different) > 1 else ""
    return f"table {different[0]} is {_parts(plan, different[0])}, {name} {_parts(first, different[0])}{more}"


def _parts(plan: Plan, table: int) -> str:
    if table in plan.replicated:
        return "replicated"
    shards = sorted((s.start, s.left, s.stop, s.right, s.owner) for s in plan.shards if s.table == table)
    listed = [f"rows {a}–{b - 1} × columns {left}–{right - 1} on {owner}" for a, left, b, right, owner in shards]
    return ", ".join(listed)
