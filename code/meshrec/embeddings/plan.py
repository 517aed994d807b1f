"""Which rank of a sharding group holds which rows and columns of which table."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

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
        for table in range(len(self.tables)):
            _assert_complete(self, table)

    def of(self, owner: int) -> list[TableShard]:
        """Shards that one rank of the group holds, apart from replicated tables."""
        return [shard for shard in self.shards if shard.owner == owner]

    def whole(self, owner: int) -> list[TableShard]:
        """The replicated tables as one rank holds them."""
        shards = (_whole_table(owner, table, self.tables[table]) for table in self.replicated)
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
    shards: list[TableShard] = []
    load = [(0, 0)] * owners  # (ids, rows): lookups follow the ids a sample has, memory the rows
    for table in sorted(range(len(tables)), key=lambda t: (-tables[t].hots, -tables[t].rows)):
        owner = min(range(owners), key=lambda o: load[o])
        shards.append(_whole_table(owner, table, tables[table]))
        load[owner] = (load[owner][0] + tables[table].hots, load[owner][1] + tables[table].rows)
    return Plan(tuple(tables), owners, tuple(shards))


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


def _whole_table(owner: int, table: int, shape: TableShape) -> TableShard:
    return TableShard(owner, table, 0, shape.rows, 0, shape.dim, shape.rows, shape.dim, shape.hots)


def _order(shard: TableShard) -> tuple[int, int, int, int, int]:
    return shard.owner, shard.width, shard.table, shard.start, shard.left


def _assert_owners(plan: Plan) -> None:
    idle = sorted(set(range(plan.owners)) - {shard.owner for shard in plan.shards})
    wrong = sorted({shard.owner for shard in plan.shards} - set(range(plan.owners)))
    if wrong or (idle and plan.shards):
        raise PlanError(f"a plan for {plan.owners} ranks gives nothing to ranks {idle} and something to unknown ranks {wrong}")


def _assert_complete(plan: Plan, table: int) -> None:
    """Every number of the table is held exactly once in the group, or whole by every rank."""
    shape = plan.tables[table]
    shards = [shard for shard in plan.shards if shard.table == table]
    if table in plan.replicated:
        if shards:
            raise PlanError(f"table {table}: both replicated and sharded")
        return
    volume = sum(shard.rows * shard.width for shard in shards)
    overlap = any(_overlap(a, b) for i, a in enumerate(shards) for b in shards[:i])
    outside = any(not (0 <= s.start < s.stop <= shape.rows and 0 <= s.left < s.right <= shape.dim) for s in shards)
    wrong = any((s.table_rows, s.table_dim, s.hots) != (shape.rows, shape.dim, shape.hots) for s in shards)
    if outside or wrong or overlap or volume != shape.rows * shape.dim:
        parts = sorted((s.start, s.stop, s.left, s.right) for s in shards)
        raise PlanError(
            f"table {table}: shards (rows from, to, columns from, to) {parts} don't cover {shape.rows} rows × {shape.dim} "
            "columns exactly once"
        )


def _overlap(a: TableShard, b: TableShard) -> bool:
    return a.start < b.stop and b.start < a.stop and a.left < b.right and b.left < a.right
