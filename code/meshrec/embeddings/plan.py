"""Which rank of a sharding group holds which rows of which table."""

from dataclasses import asdict, dataclass
from itertools import pairwise

from meshrec.experiment.cells import hash_of
from meshrec.experiment.schema import Sharding


class PlanError(ValueError):
    """Tables can't be sharded as asked. Raised on every rank alike, before any collective."""


@dataclass(frozen=True)
class TableShard:
    """Rows [start, stop) of a table on one rank of the group."""

    owner: int
    """Shard coordinate n of the rank that holds it."""
    table: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.stop - self.start


@dataclass(frozen=True)
class Plan:
    """The shards of all tables over the N ranks of a group, ordered by owner, then table, then row."""

    table_rows: tuple[int, ...]
    owners: int
    """N."""
    shards: tuple[TableShard, ...]

    def __post_init__(self) -> None:
        _assert_complete(self)

    def of(self, owner: int) -> list[TableShard]:
        """Shards that one rank of the group holds."""
        return [shard for shard in self.shards if shard.owner == owner]

    def counts(self) -> list[int]:
        """Shards that each rank holds."""
        return [len(self.of(owner)) for owner in range(self.owners)]

    @property
    def hash(self) -> str:
        """Short hash of who holds what."""
        return hash_of([asdict(shard) for shard in self.shards])


def make_plan(table_rows: list[int], owners: int, sharding: Sharding) -> Plan:
    """Shard tables over the N ranks of a group.

    Args:
        table_rows: rows of each table.
        owners: N.
        sharding: whole tables, so that the ranks' numbers of tables differ by one at most and rows are balanced within that; or
            every table's rows split evenly over all ranks.

    Raises:
        PlanError: a rank would hold nothing.
    """
    shards = _table_wise(table_rows, owners) if sharding == "table-wise" else _row_wise(table_rows, owners)
    return Plan(tuple(table_rows), owners, tuple(sorted(shards, key=lambda s: (s.owner, s.table, s.start))))


def _table_wise(table_rows: list[int], owners: int) -> list[TableShard]:
    if owners > len(table_rows):
        raise PlanError(
            f"{len(table_rows)} tables can't be sharded table-wise over {owners} ranks; use row-wise or more replicas"
        )
    shards: list[TableShard] = []
    load = [(0, 0)] * owners  # (tables, rows): lookups are the same for every table, memory is not
    for table in sorted(range(len(table_rows)), key=lambda t: -table_rows[t]):
        owner = min(range(owners), key=lambda o: load[o])
        shards.append(TableShard(owner, table, 0, table_rows[table]))
        load[owner] = (load[owner][0] + 1, load[owner][1] + table_rows[table])
    return shards


def _row_wise(table_rows: list[int], owners: int) -> list[TableShard]:
    for table, rows in enumerate(table_rows):
        if rows < owners:
            raise PlanError(f"table {table} has {rows} rows, fewer than the {owners} ranks to split them over; use table-wise")
    return [
        TableShard(owner, table, rows * owner // owners, rows * (owner + 1) // owners)
        for table, rows in enumerate(table_rows)
        for owner in range(owners)
    ]


def _assert_complete(plan: Plan) -> None:
    """Every row of every table is held exactly once."""
    for table, rows in enumerate(plan.table_rows):
        parts = sorted((shard.start, shard.stop) for shard in plan.shards if shard.table == table)
        edges = [0, *(stop for _, stop in parts)]
        if [start for start, _ in parts] != edges[:-1] or edges[-1] != rows or any(a >= b for a, b in pairwise(edges)):
            raise PlanError(f"table {table}: shards {parts} don't cover rows 0 to {rows} exactly once")
