"""A sharding balanced over the ranks of a group by measured access frequencies.

Each table has some forms (`forms`), which cost what `costs` expects of them. For a wished load of the largest rank, each table
takes the form that costs the mean rank least, plus what its largest piece has beyond the wish; `placement` puts the pieces on
ranks. Of some wishes, with and without replicated tables, the one whose most loaded rank has the shortest step is kept. Then
the tables of that rank change their form one at a time as long as that helps. Where no such plan has room, rows are laid out by
memory alone (`contiguous`), and pieces moved and swapped within it.

`placement` states what bound this has; `plan_loads.Balance` says how far a plan is at most from the best placement of its own
pieces. No bound is known for the choice of forms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.contiguous import filled
from meshrec.embeddings.costs import (
    ALL_REDUCE_SECONDS,
    Setting,
    arrival_seconds,
    cumulative,
    held_bytes,
    row_seconds,
    shard_seconds,
)
from meshrec.embeddings.forms import Allowed, Form, replicated, splits, whole
from meshrec.embeddings.placement import Items, improve, place
from meshrec.embeddings.plan import Plan, TableShape, TableShard, split_columns, split_rows
from meshrec.embeddings.settled import Settled, assert_within

Frequencies = Sequence[NDArray[np.int64]]
"""Of each table [rows]: how often training samples ask for each row."""

WISHES = [0.0, *(2.0 ** (half / 2) for half in range(-5, 5))]
"""Wished loads of the largest rank, as multiples of the mean load with whole tables."""

MOST_CHANGES = 16
"""Tables that change their form after the wishes; none in groups of more than 64 ranks, where wishes do as well."""


@dataclass(frozen=True)
class Placed:
    """A form for each table, and a rank for each piece."""

    forms: list[Form]
    items: Items
    chosen: NDArray[np.int64]
    load: NDArray[np.float64]
    """[N] seconds of a step before the pieces."""
    used: NDArray[np.int64]
    """[N] bytes before the pieces."""

    @property
    def loads(self) -> NDArray[np.float64]:
        """[N] seconds of a step."""
        totals: NDArray[np.float64] = self.load + np.bincount(self.chosen, self.items.cost, len(self.load))
        return totals

    def improved(self, limit: int | None) -> "Placed":
        """With pieces moved and swapped."""
        return replace(self, chosen=improve(self.items, self.chosen, self.load, self.used, limit))

    @property
    def tables_of_most_loaded(self) -> list[int]:
        """Tables with a piece on the most loaded rank."""
        return sorted(set(self.items.table[self.chosen == self.loads.argmax()].tolist()))


def planned(settled: Settled, kinds: Sequence[str], counts: Frequencies, at: Setting, allowed: Allowed) -> Plan:
    """Shard the tables of kind `planned`, and place those of kind `table-wise`, beside those that are settled.

    Raises:
        PlanError: not within the memory limit, or fewer rows than ranks.
    """
    load = _settled_seconds(settled, counts, at)
    options = _options(settled.tables, kinds, counts, at, allowed)
    best: Placed | None = None
    for forms in _choices(options, at.ranks):
        found = _placed(forms, load, settled, allowed.limit)
        if found and (best is None or found.loads.max() < best.loads.max()):
            best = found
    if best is None:
        return _by_memory(settled, kinds, counts, at, load, allowed.limit)
    best = best.improved(allowed.limit)
    if at.ranks <= 64:
        best = _changed(best, options, load, settled, allowed.limit)
    names = [form.table for form in best.forms if form.kind == "replicated"]
    return settled.plan(list(_shards(best.forms, best.chosen, settled.tables)), names)


def _by_memory(
    settled: Settled, kinds: Sequence[str], counts: Frequencies, at: Setting, load: NDArray[np.float64], limit: int | None
) -> Plan:
    """The plan that needs least memory, with pieces moved and swapped as far as the limit allows."""
    shards = list(filled(settled.tables, kinds, settled.memory(), at.state_bytes))
    assert_within(settled.plan(shards), at.state_bytes, limit)
    seconds = [np.zeros(0)]
    for table, of_table in groupby(shards, key=lambda shard: shard.table):
        seconds.append(shard_seconds(list(of_table), cumulative(counts[table], settled.tables[table], at.batch), at))
    items = Items(
        np.concatenate(seconds),
        np.array([held_bytes(shard.rows, shard.width, at.state_bytes) for shard in shards], np.int64),
        np.array([shard.table for shard in shards], np.int64),
    )
    owners = improve(items, np.array([shard.owner for shard in shards], np.int64), load, settled.memory(), limit)
    return settled.plan([replace(shard, owner=owner) for shard, owner in zip(shards, owners.tolist(), strict=True)])


def _changed(
    best: Placed, options: dict[int, list[Form]], load: NDArray[np.float64], settled: Settled, limit: int | None
) -> Placed:
    """Change one table of the most loaded rank at a time, to the form after which loads, largest first, are least."""
    for _ in range(MOST_CHANGES):
        tried = [
            placed.improved(limit)
            for table in best.tables_of_most_loaded
            for form in options.get(table, [])
            if (placed := _placed([form if f.table == table else f for f in best.forms], load, settled, limit))
        ]
        better = min(tried, key=_descending, default=best)
        if _descending(better) >= _descending(best):
            break
        best = better
    return best


def _descending(placed: Placed) -> list[float]:
    """Loads, largest first, in nanoseconds: less is rounding."""
    loads: list[float] = np.sort((placed.loads * 1e9).round())[::-1].tolist()
    return loads


def _settled_seconds(settled: Settled, counts: Frequencies, at: Setting) -> NDArray[np.float64]:
    """[N] seconds of a step for what is settled beforehand, as far as ranks differ in it."""
    load = np.zeros(settled.owners)
    for table in sorted({shard.table for shard in settled.shards}):
        of_table = cumulative(counts[table], settled.tables[table], at.batch)
        for shard in (shard for shard in settled.shards if shard.table == table):
            hits, changed = (part[[shard.stop]] - part[[shard.start]] for part in (of_table.hits, of_table.changed))
            load[shard.owner] += row_seconds(hits, changed, shard.width, at)[0]
    return load


def _options(
    tables: Sequence[TableShape], kinds: Sequence[str], counts: Frequencies, at: Setting, allowed: Allowed
) -> dict[int, list[Form]]:
    """Forms of each table, whole first. No more pieces than eighths of a mean load: smaller ones only add traffic."""
    rough = {t: _rough_seconds(tables[t], at) for t, kind in enumerate(kinds) if kind in ("planned", "table-wise")}
    eighth = sum(rough.values()) / at.ranks / 8
    options: dict[int, list[Form]] = {}
    for table, seconds in rough.items():
        shape, of_table = tables[table], cumulative(counts[table], tables[table], at.batch)
        most = min(at.ranks, shape.rows, int(seconds / eighth) + 1)
        options[table] = [whole(table, shape, of_table, at)]
        if kinds[table] == "planned":
            options[table] += splits(table, shape, of_table, at, allowed, most)
        if kinds[table] == "planned" and allowed.replicas:
            options[table].append(replicated(table, shape, of_table, at))
    return options


def _rough_seconds(shape: TableShape, at: Setting) -> float:
    hits = np.array([float(at.batch * shape.hots)])
    return arrival_seconds(shape, shape.dim, False, at) + float(row_seconds(hits, hits * 0, shape.dim, at)[0])


def _choices(options: dict[int, list[Form]], ranks: int) -> Iterator[list[Form]]:
    """For each wish, with and without replicated tables, the best form of each table."""
    mean = sum(float(forms[0].seconds.sum()) for forms in options.values()) / ranks
    for wish in WISHES:
        for without in ("replicated", ""):
            yield [
                min((f for f in forms if f.kind != without), key=lambda form: form.score(wish * mean, ranks))
                for forms in options.values()
            ]


def _placed(forms: list[Form], load: NDArray[np.float64], settled: Settled, limit: int | None) -> Placed | None:
    """The forms' pieces on ranks; None if memory or a rank without anything forbids it."""
    everywhere = sum(form.everywhere for form in forms)
    if any(form.kind == "replicated" for form in forms) and not settled.replicated:
        everywhere += ALL_REDUCE_SECONDS
    used = settled.memory() + sum(form.memory_everywhere for form in forms)
    items = Items(
        np.concatenate([np.zeros(0), *(form.seconds for form in forms)]),
        np.concatenate([np.zeros(0, np.int64), *(form.memory for form in forms)]),
        np.repeat(np.array([form.table for form in forms], np.int64), [len(form.seconds) for form in forms]),
    )
    if limit is not None and used.max() > limit:
        return None
    chosen = place(items, load + everywhere, used, limit)
    if chosen is None:
        return None
    if len(items) and not settled.shards and len(np.unique(chosen)) < settled.owners:
        return None
    return Placed(forms, items, chosen, load + everywhere, used)


def _shards(forms: list[Form], owners: NDArray[np.int64], tables: Sequence[TableShape]) -> Iterator[TableShard]:
    first = 0
    for form in forms:
        last = first + len(form.seconds)
        ranks, shape = owners[first:last].tolist(), tables[form.table]
        if form.kind == "column-wise":
            yield from split_columns(form.table, shape, ranks)
        elif form.kind != "replicated":
            yield from split_rows(form.table, shape, ranks, form.cuts)
        first = last
