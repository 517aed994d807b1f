"""Ways to shard one table, each with what it costs: whole, rows cut where hits balance, columns, or replicated."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.costs import (
    WIRE_BYTE_SECONDS,
    Cumulative,
    Setting,
    arrival_seconds,
    held_bytes,
    replicated_seconds,
    row_seconds,
    sample_seconds,
)
from meshrec.embeddings.plan import TableShape
from meshrec.experiment.factors import TableSharding

UNASKED_ROW_SECONDS = 1e-15
"""Of any row, so that rows that nobody asks for are spread too."""


@dataclass(frozen=True)
class Form:
    """One way to shard one table into k pieces; replicated has none."""

    table: int
    kind: TableSharding
    cuts: tuple[int, ...]
    """k − 1 rows at which a piece ends and the next begins; empty unless rows are split."""
    seconds: NDArray[np.float64]
    """[k] of a step, of each piece at its owner."""
    memory: NDArray[np.int64]
    """[k] bytes."""
    everywhere: float
    """Seconds of a step at every rank."""
    memory_everywhere: int = 0

    def score(self, target: float, ranks: int) -> float:
        """Seconds at the mean rank, and what the largest piece has beyond a wished load of the largest rank."""
        largest = float(self.seconds.max()) if len(self.seconds) else 0.0
        return float(self.seconds.sum()) / ranks + self.everywhere + max(0.0, largest - target)


@dataclass(frozen=True)
class Allowed:
    """Which forms a plan may use."""

    columns: bool
    replicas: bool
    limit: int | None
    """Bytes that a rank may hold."""


def whole(table: int, shape: TableShape, of_table: Cumulative, at: Setting) -> Form:
    """The table on one rank."""
    return _rows(table, shape, (), of_table, at)


def replicated(table: int, shape: TableShape, of_table: Cumulative, at: Setting) -> Form:
    """The table on every rank."""
    seconds = replicated_seconds(shape, float(of_table.hits[-1]), float(of_table.changed[-1]), at)
    memory = held_bytes(shape.rows, shape.dim, at.state_bytes)
    return Form(table, "replicated", (), np.zeros(0), np.zeros(0, np.int64), seconds, memory)


def splits(table: int, shape: TableShape, of_table: Cumulative, at: Setting, allowed: Allowed, most: int) -> list[Form]:
    """The table in 2, 4, 8, … up to `most` pieces (and N, if that is no more): rows, and columns where allowed."""
    counts = sorted({2**power for power in range(1, most.bit_length()) if 2**power <= most} | ({at.ranks} & {most}) - {1})
    most_rows = max(1, allowed.limit // held_bytes(2, shape.dim, at.state_bytes)) if allowed.limit else shape.rows
    work = row_seconds(of_table.hits, of_table.changed, shape.dim, at) + UNASKED_ROW_SECONDS * np.arange(shape.rows + 1)
    forms: list[Form] = []
    for count in counts:
        cuts = _cuts(work, count, most_rows)
        if cuts and len(cuts) < at.ranks and all(cuts != form.cuts for form in forms):
            forms.append(_rows(table, shape, cuts, of_table, at))
    widths = [shape.dim // count for count in range(2, most + 1) if shape.dim % (4 * count) == 0]
    return forms + [_columns(table, shape, width, of_table, at) for width in widths if allowed.columns]


def _rows(table: int, shape: TableShape, cuts: tuple[int, ...], of_table: Cumulative, at: Setting) -> Form:
    edges = np.array([0, *cuts, shape.rows])
    seconds = row_seconds(np.diff(of_table.hits[edges]), np.diff(of_table.changed[edges]), shape.dim, at)
    seconds = seconds + arrival_seconds(shape, shape.dim, bool(cuts), at)
    memory = np.diff(edges) * held_bytes(1, shape.dim, at.state_bytes)
    everywhere = (len(cuts) + 1) * sample_seconds(shape, shape.dim, at)
    return Form(table, "row-wise" if cuts else "table-wise", cuts, seconds, memory, everywhere)


def _columns(table: int, shape: TableShape, width: int, of_table: Cumulative, at: Setting) -> Form:
    count = shape.dim // width
    rows = row_seconds(of_table.hits[-1:], of_table.changed[-1:], width, at)
    seconds = np.repeat(rows + arrival_seconds(shape, width, False, at), count)
    memory = np.full(count, held_bytes(shape.rows, width, at.state_bytes))
    squares = 8 * min(shape.rows, shape.hots * at.batch) * at.sent if at.state_bytes else 0  # completed over the group
    everywhere = count * sample_seconds(shape, width, at) + squares * WIRE_BYTE_SECONDS
    return Form(table, "column-wise", (), seconds, memory, everywhere)


def _cuts(work: NDArray[np.float64], count: int, most_rows: int) -> tuple[int, ...]:
    """Rows at which `count` pieces of equal work end, fewer where one row has more, and more where they have too many rows.

    Args:
        work: [rows + 1] of the first r rows.
        count: pieces.
        most_rows: of a piece: half of what a rank may hold, so that pieces find room beside others.
    """
    rows = len(work) - 1
    wanted = work[-1] * np.arange(1, count) / count
    above = np.searchsorted(work, wanted)
    nearest = np.where(wanted - work[above - 1] < work[above] - wanted, above - 1, above)
    edges = np.unique([0, *np.clip(nearest, 1, rows - 1).tolist(), rows])
    return tuple(_within(edges, most_rows)[1:-1].tolist())


def _within(edges: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Edges with further ones between them, so that no piece has more than `most` rows."""
    between = [np.linspace(a, b, -(-(b - a) // most) + 1).round()[:-1] for a, b in pairwise(edges.tolist())]
    return np.concatenate([*between, edges[-1:]]).astype(np.int64)
