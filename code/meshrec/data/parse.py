"""Byte parser for Criteo text, compiled by numba: every line is judged by itself and strictly.

A good line has 40 tab-separated fields: a label that is exactly `0` or `1`, 13 fields that are empty or an integer of at most
18 digits with an optional minus sign, and 26 fields that are empty or exactly 8 hexadecimal digits of either case. A `Layout`
says which of Criteo's variants is read instead.

Nearly all lines are read in one go by `_fast`. A line in which it meets anything unusual is read again by `_careful`, which
knows the variants and the reasons; tests compare the two.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from meshrec.data.columns import MISSING_DENSE, Rows
from meshrec.data.layout import Layout
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

FEATURES = DENSE_FEATURES + CATEGORICAL_FEATURES
MOST_DIGITS = 18
"""Digits of an integer that always fit into int64."""
REASONS = ("good", "columns", "unlabelled", "label", "integer", "category")
"""What a line's code means: `good`, or why it is rejected."""
GOOD, COLUMNS, UNLABELLED, LABEL, INTEGER, CATEGORY = range(6)
LONGEST_ROW = 640
"""More bytes than a row that `_fast` accepts can have: 64 of index, 2 of label, 13 · 20 of integers, 26 · 9 of categories."""
Tables = tuple[NDArray[np.uint32], NDArray[np.float32]]
"""Rows − 1 of each table, [26] (0 to keep the categories' values), and the transforms of small counts."""
Columns = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32], NDArray[np.uint64]]
"""Labels, dense, sparse and `gone`: of all rows, or of one."""
NEWLINE, RETURN, MINUS, DOT, ZERO = 10, 13, 45, 46, 48
TABULATED = 1 << 16
"""Counts whose transform is looked up: nearly all."""


@dataclass(frozen=True)
class ParsedLines:
    """What some whole lines of text hold."""

    rows: Rows
    """The good rows; see `parse_lines` for their sparse column."""
    gone: NDArray[np.uint64]
    """[good rows], bit f set where feature f (13 integers, then 26 categories) is missing."""
    missing: NDArray[np.int64]
    """[39], rows in which each feature is missing."""
    lines: int
    bad: NDArray[np.int64]
    """[bad lines, 4]: index of the line, where it starts, its code, and its bad field (or the number of its columns)."""


class RowArrays:
    """Memory for the rows of a chunk, to be used again and again: fresh memory costs a fifth of the parser's time."""

    def __init__(self) -> None:
        self._columns: Columns | None = None

    def columns(self, rows: int) -> "Columns":
        """Arrays of at least so many rows; what an earlier call returned is theirs."""
        if self._columns is None or len(self._columns[0]) < rows:
            rows += rows // 8  # chunks differ a little, and memory that isn't touched costs nothing
            dense, sparse = np.empty((rows, DENSE_FEATURES), np.float32), np.empty((rows, CATEGORICAL_FEATURES), np.int32)
            self._columns = np.empty(rows, np.float32), dense, sparse, np.empty(rows, np.uint64)
        return self._columns


def parse_lines(
    text: bytes | bytearray | memoryview,
    layout: Layout,
    table_rows: NDArray[np.int64] | None,
    most_bad: int | None = None,
    arrays: RowArrays | None = None,
) -> ParsedLines:
    """Parse whole lines; the last one may lack its line end. A line ends in `\\n` or `\\r\\n`, and nothing else is stripped.

    Args:
        text: lines.
        layout: their columns.
        table_rows: [26], rows of the tables that categories are hashed into: the sparse column then holds table rows. None
            leaves the categories' values there, 0 … 2³² − 1, as the bits of int32.
        most_bad: bad lines that are described; one more is still in `bad`, and those after it are not.
        arrays: memory for the result, which is then good until they are used again.
    """
    buffer = np.frombuffer(text, np.uint8)
    out = (arrays or RowArrays()).columns(buffer.size // _shortest_row(layout) + 1)
    bad = np.empty((min(buffer.size, buffer.size if most_bad is None else most_bad + 1), 4), np.int64)
    ids = np.zeros(CATEGORICAL_FEATURES, np.uint32) if table_rows is None else (table_rows - 1).astype(np.uint32)
    good, lines, failed = _parse(buffer, layout.parameters, (ids, _LOGS), out, bad)
    labels, dense, sparse, gone = out[0][:good], out[1][:good], out[2][:good], out[3][:good]
    if not layout.labelled:
        labels[:] = np.nan
    return ParsedLines(Rows(labels, dense, sparse), gone, _count_bits(gone), lines, bad[:failed].copy())


def _shortest_row(layout: Layout) -> int:
    """Bytes of a row whose fields are all empty, without label but with its line end."""
    return DENSE_FEATURES + 1 if layout.pad else FEATURES


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile free of the interpreter's lock, and keep the machine code on disk where there is a folder that can be written."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no cache folder, as in a read-only installation
        return numba.njit(nogil=True)(function)


def _hexadecimal() -> NDArray[np.int64]:
    """Byte → value of the hexadecimal digit, or −1."""
    values = np.full(256, -1, np.int64)
    for value, digit in enumerate("0123456789abcdef"):
        values[[ord(digit), ord(digit.upper())]] = value
    return values


_HEX = _hexadecimal()
_LOGS = np.array([math.log1p(count) for count in range(TABULATED)], np.float32)
"""float32 of log1p, computed as `_transformed` computes it."""


@_compiled
def _count_bits(gone: NDArray[np.uint64]) -> NDArray[np.int64]:
    counts = np.zeros(FEATURES, np.int64)
    for row in range(len(gone)):
        bits, feature = gone[row], 0
        while bits:
            counts[feature] += np.int64(bits & np.uint64(1))
            bits >>= np.uint64(1)
            feature += 1
    return counts


@_compiled
def _transformed(count: np.int64 | int, logs: NDArray[np.float32]) -> np.float32:
    """The float32 of log1p(max(count, 0))."""
    if count <= 0:
        return np.float32(0)
    # float64 until the end: log1p of a float32 would round large counts twice
    log: np.float32 = logs[count] if count < TABULATED else np.float32(math.log1p(np.float64(count)))
    return log


@_compiled
def _category(buffer: NDArray[np.uint8], start: int) -> np.int64 | int:
    """Unsigned value of the 8 hexadecimal digits at `start`; negative if they are none."""
    value, bad = np.int64(0), np.int64(0)
    for position in range(start, start + 8):
        digit = _HEX[buffer[position]]
        bad |= digit
        value = (value << 4) | digit
    return value if bad >= 0 else np.int64(-1)


@_compiled
def _row_of(value: np.int64 | int, ids: np.uint32) -> np.int32:
    """Table row of a category, or its bits where no table is given."""
    return np.int32(np.uint32(value)) if ids == 0 else np.int32(1 + np.uint32(value) % ids)


@_compiled
def _fast(  # noqa: PLR0912 - one pass over the bytes, left at the first one that is unusual
    buffer: NDArray[np.uint8],
    start: int,
    layout: tuple[int, int, int, int, int],
    tables: Tables,
    out: Columns,
    row: int,
) -> int:
    """Parse a line of which LONGEST_ROW bytes are there. Returns where the next one starts; 0 if there is anything unusual."""
    separator, index, labelled = layout[0], layout[1], layout[2]
    ids, logs = tables
    label, dense, sparse, gone = out
    position, missing, one = start, np.uint64(0), np.uint64(1)
    if index:
        while buffer[position] != separator:
            if buffer[position] == NEWLINE or position - start >= 63:
                return 0
            position += 1
        position += 1
    if labelled:
        value = np.int64(buffer[position]) - ZERO
        if not 0 <= value <= 1 or buffer[position + 1] != separator:
            return 0
        label[row] = value
        position += 2
    for feature in range(DENSE_FEATURES):
        if buffer[position] == separator:
            dense[row, feature] = MISSING_DENSE
            missing |= one << np.uint64(feature)
        else:
            negative = buffer[position] == MINUS
            position += negative
            first, value = position, np.int64(0)
            digit = np.int64(buffer[position]) - ZERO
            while 0 <= digit <= 9 and position - first <= MOST_DIGITS:
                value = value * 10 + digit
                position += 1
                digit = np.int64(buffer[position]) - ZERO
            if not 1 <= position - first <= MOST_DIGITS or buffer[position] != separator:
                return 0
            dense[row, feature] = _transformed(-value if negative else value, logs)
        position += 1
    for feature in range(CATEGORICAL_FEATURES):
        last = feature == CATEGORICAL_FEATURES - 1
        byte = buffer[position]
        if byte == separator or (last and byte in (NEWLINE, RETURN)):
            sparse[row, feature] = 0
            missing |= one << np.uint64(DENSE_FEATURES + feature)
        else:
            value = _category(buffer, position)
            if value < 0:
                return 0
            sparse[row, feature] = _row_of(value, ids[feature])
            position += 8
        if not last:
            if buffer[position] != separator:
                return 0
            position += 1
    gone[row] = missing
    position += buffer[position] == RETURN
    return position + 1 if buffer[position] == NEWLINE else 0


@_compiled
def _integer(buffer: NDArray[np.uint8], start: int, end: int, floats: int) -> tuple[bool, np.int64 | int]:
    """Whether the bytes are an integer, and its value; with `floats`, zeros may follow a decimal point."""
    first = start + 1 if buffer[start] == MINUS else start
    position, value = first, np.int64(0)
    while position < end and ZERO <= buffer[position] <= ZERO + 9 and position - first <= MOST_DIGITS:
        value = value * 10 + np.int64(buffer[position]) - ZERO
        position += 1
    good = 1 <= position - first <= MOST_DIGITS
    if floats and position + 1 < end and buffer[position] == DOT:
        position += 1
        while position < end and buffer[position] == ZERO:
            position += 1
    return good and position == end, -value if first > start else value


@_compiled
def _columns(buffer: NDArray[np.uint8], start: int, separator: int, ends: NDArray[np.int64]) -> tuple[int, int]:
    """Find where one line's fields end, and return their number and the start of the next line."""
    columns, position = 0, start
    while position < buffer.size and buffer[position] != NEWLINE:
        if buffer[position] == separator:
            if columns < len(ends):
                ends[columns] = position
            columns += 1
        position += 1
    end = position - 1 if position > start and buffer[position - 1] == RETURN else position
    for column in range(columns, len(ends)):  # fields that aren't there are empty
        ends[column] = end
    return columns + 1, min(position + 1, buffer.size)


@_compiled
def _careful(
    buffer: NDArray[np.uint8],
    start: int,
    layout: tuple[int, int, int, int, int],
    tables: Tables,
    out: Columns,
    row: int,
) -> tuple[int, int, int]:
    """Parse a line field by field. Returns its code, the field that is bad (or its columns), and the start of the next line."""
    separator, index, labelled, floats, pad = layout
    label, _, _, gone = out
    features = index + labelled  # the first feature's field
    ends = np.empty(features + FEATURES, np.int64)
    columns, following = _columns(buffer, start, separator, ends)
    if columns < len(ends):
        # a labelled row has its first category in field 15, an unlabelled one in field 14, where there is an integer else
        begin, end = ends[features + 11] + 1, ends[features + 12]
        if labelled and (pad or columns == len(ends) - 1) and end - begin == 8 and _category(buffer, begin) >= 0:
            return UNLABELLED, columns, following
    # a row without C1 has lost more than its tail
    if columns > len(ends) or (columns < len(ends) and not (pad and columns > features + DENSE_FEATURES)):
        return COLUMNS, columns, following
    if labelled:
        begin = ends[0] + 1 if index else start
        if ends[index] - begin != 1 or not ZERO <= buffer[begin] <= ZERO + 1:
            return LABEL, index, following
        label[row] = buffer[begin] - ZERO
    code, field, gone[row] = _features(buffer, start, ends, features, floats, tables, out, row)
    return code, field, following


@_compiled
def _features(
    buffer: NDArray[np.uint8],
    start: int,
    ends: NDArray[np.int64],
    first: int,
    floats: int,
    tables: Tables,
    out: Columns,
    row: int,
) -> tuple[int, int, np.uint64]:
    """Parse the features from field `first` on. Returns the line's code, the bad field and the missing features."""
    ids, logs = tables
    _, dense, sparse, _ = out
    missing, one = np.uint64(0), np.uint64(1)
    for feature in range(FEATURES):
        field = first + feature
        begin, end = (ends[field - 1] + 1 if field else start), ends[field]
        category = feature - DENSE_FEATURES
        if begin >= end:
            missing |= one << np.uint64(feature)
            if category < 0:
                dense[row, feature] = MISSING_DENSE
            else:
                sparse[row, category] = 0
        elif category < 0:
            good, count = _integer(buffer, begin, end, floats)
            if not good:
                return INTEGER, field, missing
            dense[row, feature] = _transformed(count, logs)
        else:
            value = _category(buffer, begin) if end - begin == 8 else np.int64(-1)
            if value < 0:
                return CATEGORY, field, missing
            sparse[row, category] = _row_of(value, ids[category])
    return GOOD, 0, missing


@_compiled
def _parse(
    buffer: NDArray[np.uint8],
    layout: tuple[int, int, int, int, int],
    tables: Tables,
    out: Columns,
    bad: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Fill the outputs, line by line. Returns the numbers of good rows, of lines, and of bad lines that were described."""
    start, row, line, failed = 0, 0, 0, 0
    while start < buffer.size:
        following = 0
        if start + LONGEST_ROW <= buffer.size:
            following = _fast(buffer, start, layout, tables, out, row)
        if following == 0:
            code, field, following = _careful(buffer, start, layout, tables, out, row)
        else:
            code, field = GOOD, 0
        if code == GOOD:
            row += 1
        elif failed < len(bad):
            bad[failed, 0], bad[failed, 1], bad[failed, 2], bad[failed, 3] = line, start, code, field
            failed += 1
        start = following
        line += 1
    return row, line, failed
