"""Which rank of a sharding group holds which rows and columns of which table."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np

from meshrec.embeddings.placement import Items, place
from meshrec.experiment.cells import hash_of


class PlanError(ValueError):
    """Tables can't be sharded as asked. Raised on every rank alike, before any collective."""


@dataclass(frozen=True)
class TableShape:
    """What a plan needs to know of a table."""

    rows: int
    dim: int
    """D: numbers a row."""
    hots: int = 1
    """Ids that a sample has in the table; their rows are summed."""


@dataclass(frozen=True)
class TableShard:
    """Rows [start, stop) × columns [left, right) of a table on one rank of the group."""

    owner: int
    """Shard coordinate n of the rank that holds it."""
    table: int
    start: int
    stop: int
    left: int
    right: int
    table_rows: int
    """Rows of the whole table."""
    table_dim: int
    """Columns of the whole table."""
    hots: int = 1
    """Ids that a sample has in the table."""

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.stop - self.start

    @property
    def width(self) -> int:
        """Columns held."""
        return self.right - self.left


@dataclass(frozen=True)
class Plan:
    """The shards of all tables over the N ranks of a group, and the tables that every rank of it holds whole.

    Shards are ordered by owner, then width, table, row and column: what a rank sends of one width lies together.
    """

    tables: tuple[TableShape, ...]
    owners: int
    """N."""
    shards: tuple[TableShard, ...]
    replicated: tuple[int, ...] = ()
    """Tables that are data parallel in the group: every rank holds them whole and looks up its own samples."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", tuple(sorted(self.shards, key=_order)))
        object.__setattr__(self, "replicated", tuple(sorted(self.replicated)))
        _assert_owners(self)
        by_table: dict[int, list[TableShard]] = {table: [] for table in range(len(self.tables))}
        for shard in self.shards:
            by_table.setdefault(shard.table, []).append(shard)
        for table, shards in by_table.items():
            _assert_complete(self, table, shards)

    @cached_property
    def _by_owner(self) -> dict[int, list[TableShard]]:
        return {owner: list(shards) for owner, shards in groupby(self.shards, key=lambda shard: shard.owner)}

    def of(self, owner: int) -> list[TableShard]:
        """Shards that one rank of the group holds, apart from replicated tables."""
        return list(self._by_owner.get(owner, []))

    def whole(self, owner: int) -> list[TableShard]:
        """The replicated tables as one rank holds them."""
        shards = (whole_table(owner, table, self.tables[table]) for table in self.replicated)
        return sorted(shards, key=_order)

    def rows_held(self, owner: int) -> int:
        """Rows on one rank, replicated tables included."""
        return sum(shard.rows for shard in (*self.of(owner), *self.whole(owner)))

    @cached_property
    def hash(self) -> str:
        """Short hash of who holds what."""
        return hash_of({"shards": [asdict(shard) for shard in self.shards], "replicated": self.replicated})


def table_wise(tables: Sequence[TableShape], owners: int) -> Plan:
    """Whole tables, so that the ranks' numbers of ids differ by little and rows are balanced within that.

    Raises:
        PlanError: a rank would hold nothing.
    """
    if owners > len(tables):
        raise PlanError(f"{len(tables)} tables can't be sharded table-wise over {owners} ranks; use row-wise or more replicas")
    chosen = place(whole_items(tables, range(len(tables)), 0), np.zeros(owners, np.int64), np.zeros(owners, np.int64), None)
    assert chosen is not None
    return Plan(tuple(tables), owners, tuple(whole_table(o, t, tables[t]) for t, o in enumerate(chosen.tolist())))


def whole_items(tables: Sequence[TableShape], which: Sequence[int], state_bytes: int) -> Items:
    """Whole tables to place: lookups follow the ids that a sample has, and rows decide between equally loaded ranks."""
    more = sum(shape.rows for shape in tables) + 1  # than the rows of any rank: one id outweighs them
    cost = [tables[table].hots * more + tables[table].rows for table in which]
    held = [tables[table].rows * (4 * tables[table].dim + state_bytes) for table in which]
    return Items(np.array(cost, np.int64), np.array(held, np.int64), np.array(which, np.int64))


def row_wise(tables: Sequence[TableShape], owners: int) -> Plan:
    """Every table's rows split evenly over all ranks.

    Raises:
        PlanError: a table has fewer rows than there are ranks.
    """
    return Plan(tuple(tables), owners, tuple(s for t, shape in enumerate(tables) for s in split_rows(t, shape, range(owners))))


def column_wise(tables: Sequence[TableShape], owners: int) -> Plan:
    """Every table's columns split evenly over all ranks.

    Raises:
        PlanError: a table's columns aren't divisible into so many shards of whole quadruples.
    """
    return Plan(
        tuple(tables), owners, tuple(s for t, shape in enumerate(tables) for s in split_columns(t, shape, range(owners)))
    )


def split_rows(table: int, shape: TableShape, owners: Sequence[int], cuts: Sequence[int] | None = None) -> Iterator[TableShard]:
    """A table's rows over some ranks, evenly or cut at given rows [len(owners) − 1].

    Raises:
        PlanError: fewer rows than ranks.
    """
    count = len(owners)
    if shape.rows < count:
        raise PlanError(f"table {table} has {shape.rows} rows, fewer than the {count} ranks to split them over; use table-wise")
    edges = [0, *(cuts if cuts is not None else (shape.rows * i // count for i in range(1, count))), shape.rows]
    for owner, (start, stop) in zip(owners, pairwise(edges), strict=True):
        yield TableShard(owner, table, start, stop, 0, shape.dim, shape.rows, shape.dim, shape.hots)


def split_columns(table: int, shape: TableShape, owners: Sequence[int]) -> Iterator[TableShard]:
    """A table's columns over some ranks, evenly.

    Raises:
        PlanError: the shards would not be equally wide, or not a multiple of 4 wide, as fbgemm's CPU kernels want.
    """
    width, rest = divmod(shape.dim, len(owners))
    if rest or width % 4:
        raise PlanError(
            f"table {table} has {shape.dim} columns: they can't be split over {len(owners)} ranks into equal shards of a "
            "multiple of 4 columns; use table-wise or row-wise, or another embedding_dim"
        )
    for index, owner in enumerate(owners):
        left = index * width
        yield TableShard(owner, table, 0, shape.rows, left, left + width, shape.rows, shape.dim, shape.hots)


def whole_table(owner: int, table: int, shape: TableShape) -> TableShard:
    """A whole table on one rank."""
    return TableShard(owner, table, 0, shape.rows, 0, shape.dim, shape.rows, shape.dim, shape.hots)


def _order(shard: TableShard) -> tuple[int, int, int, int, int]:
    return shard.owner, shard.width, shard.table, shard.start, shard.left


def _assert_owners(plan: Plan) -> None:
    idle = sorted(set(range(plan.owners)) - {shard.owner for shard in plan.shards})
    wrong = sorted({shard.owner for shard in plan.shards} - set(range(plan.owners)))
    if wrong or (idle and plan.shards):
        raise PlanError(f"a plan for {plan.owners} ranks gives nothing to ranks {idle} and something to unknown ranks {wrong}")


def _assert_complete(plan: Plan, table: int, shards: list[TableShard]) -> None:
    """Every number of the table is held exactly once in the group, or whole by every rank."""
    if not 0 <= table < len(plan.tables):
        raise PlanError(f"table {table}: sharded, but there are {len(plan.tables)} tables")
    shape = plan.tables[table]
    if table in plan.replicated:
        if shards:
            raise PlanError(f"table {table}: both replicated and sharded")
        return
    volume = sum(shard.rows * shard.width for shard in shards)
    outside = any(not (0 <= s.start < s.stop <= shape.rows and 0 <= s.left < s.right <= shape.dim) for s in shards)
    wrong = any((s.table_rows, s.table_dim, s.hots) != (shape.rows, shape.dim, shape.hots) for s in shards)
    if outside or wrong or volume != shape.rows * shape.dim or _overlap(shards):
        parts = sorted((s.start, s.stop, s.left, s.right) for s in shards)
        raise PlanError(
            f"table {table}: shards (rows from, to, columns from, to) {parts[:9]}{'…' * (len(parts) > 9)} don't cover "
            f"{shape.rows} rows × {shape.dim} columns exactly once"
        )
    if len({(s.owner, s.start, s.stop) for s in shards}) < len(shards):  # partial squares are added over ranks, not within one
        raise PlanError(f"table {table}: a rank holds the same rows in two shards of columns; give it them as one")


def _overlap(shards: list[TableShard]) -> bool:
    """Whether two rectangles of a table share a number: columns in use, kept while going down the rows."""
    ends = [(shard.stop, 0, shard.left, shard.right) for shard in shards]  # a shard ends before the next one begins
    used: list[tuple[int, int]] = []
    for _, begins, left, right in sorted(ends + [(shard.start, 1, shard.left, shard.right) for shard in shards]):
        where = bisect(used, (left, right))
        if not begins:
            used.remove((left, right))
        elif (where and used[where - 1][1] > left) or (where < len(used) and used[where][0] < right):
            return True
        else:
            used.insert(where, (left, right))
    return False
