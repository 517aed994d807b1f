"""Byte parser for Criteo text, compiled by numba: every line is judged by itself and strictly.

A good line has 40 tab-separated fields: a label that is exactly `0` or `1`, 13 fields that are empty or an integer of at most
18 digits with an optional minus sign, and 26 fields that are empty or exactly 8 hexadecimal digits of either case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

FIELDS = 1 + DENSE_FEATURES + CATEGORICAL_FEATURES
MISSING_COUNT = np.iinfo(np.int64).min
MISSING_CATEGORY = -1
MOST_DIGITS = 18
"""Digits of an integer that always fit into int64."""
REASONS = ("good", "columns", "unlabelled", "label", "integer", "category")
"""What a line's code means: `good`, or why it is rejected."""
GOOD, COLUMNS, UNLABELLED, LABEL, INTEGER, CATEGORY = range(6)
TAB, NEWLINE, RETURN, MINUS, ZERO = 9, 10, 13, 45, 48


@dataclass(frozen=True)
class ParsedLines:
    """n lines, bad ones included: their values mean nothing."""

    labels: NDArray[np.float32]
    """[n]"""
    counts: NDArray[np.int64]
    """[n, 13], `MISSING_COUNT` where empty."""
    categories: NDArray[np.int64]
    """[n, 26] of 0 … 2³² − 1, `MISSING_CATEGORY` where empty."""
    codes: NDArray[np.uint8]
    """[n], index into `REASONS`."""
    fields: NDArray[np.int64]
    """[n], where a field is bad, its index 0 … 39; where the number of columns is wrong, that number."""
    ends: NDArray[np.int64]
    """[n], index of the first byte after each line, its line end included."""


def parse_lines(text: bytes) -> ParsedLines:
    """Parse whole lines; the last one may lack its line end. A line ends in `\\n` or `\\r\\n`, and nothing else is stripped."""
    buffer = np.frombuffer(text, np.uint8)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and len(text) > 0)
    parsed = ParsedLines(
        labels=np.zeros(lines, np.float32),
        counts=np.empty((lines, DENSE_FEATURES), np.int64),
        categories=np.empty((lines, CATEGORICAL_FEATURES), np.int64),
        codes=np.zeros(lines, np.uint8),
        fields=np.zeros(lines, np.int64),
        ends=np.zeros(lines, np.int64),
    )
    _parse(buffer, parsed.labels, parsed.counts, parsed.categories, parsed.codes, parsed.fields, parsed.ends)
    return parsed


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, and keep the machine code on disk where there is a folder that can be written."""
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # no cache folder, as in a read-only installation
        return numba.njit(function)  # type: ignore[no-any-return]


@_compiled
def _hex_digit(byte: int) -> int:
    """Value of a hexadecimal digit, or −1."""
    if 48 <= byte <= 57:
        return byte - 48
    lower = byte | 32
    if 97 <= lower <= 102:
        return lower - 87
    return -1


@_compiled
def _category(buffer: NDArray[np.uint8], start: int, end: int) -> np.int64 | int:
    """Unsigned value of 8 hexadecimal digits as int64, `MISSING_CATEGORY` for none, −2 for anything else."""
    if end == start:
        return MISSING_CATEGORY
    if end - start != 8:
        return -2
    value = np.int64(0)
    for position in range(start, end):
        digit = _hex_digit(buffer[position])
        if digit < 0:
            return -2
        value = value * 16 + digit
    return value


@_compiled
def _integer(buffer: NDArray[np.uint8], start: int, end: int) -> tuple[bool, np.int64 | int]:
    """Whether the bytes are an integer or nothing, and the value."""
    if end == start:
        return True, MISSING_COUNT
    negative = buffer[start] == MINUS
    first = start + 1 if negative else start
    if not 1 <= end - first <= MOST_DIGITS:
        return False, 0
    value = np.int64(0)
    for position in range(first, end):
        digit = np.int64(buffer[position]) - ZERO
        if not 0 <= digit <= 9:
            return False, 0
        value = value * 10 + digit
    return True, -value if negative else value


@_compiled
def _columns(buffer: NDArray[np.uint8], start: int, tabs: NDArray[np.int64]) -> tuple[int, int, int]:
    """Find one line's tabs, its number of columns, the end of its text, and the start of the next line."""
    columns, position = 1, start
    while position < buffer.size and buffer[position] != NEWLINE:
        if buffer[position] == TAB:
            if columns < FIELDS:
                tabs[columns - 1] = position
            columns += 1
        position += 1
    end = position - 1 if position > start and buffer[position - 1] == RETURN else position
    return columns, end, min(position + 1, buffer.size)


@_compiled
def _parse(
    buffer: NDArray[np.uint8],
    labels: NDArray[np.float32],
    counts: NDArray[np.int64],
    categories: NDArray[np.int64],
    codes: NDArray[np.uint8],
    fields: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Fill the outputs, line by line."""
    tabs = np.empty(FIELDS, np.int64)
    start = 0
    for line in range(len(codes)):
        columns, end, following = _columns(buffer, start, tabs)
        ends[line] = following
        if columns != FIELDS:
            # a labelled row has its first category in field 15, an unlabelled one in field 14
            hex_early = columns == FIELDS - 1 and _category(buffer, tabs[12] + 1, tabs[13]) >= 0
            codes[line], fields[line] = UNLABELLED if hex_early else COLUMNS, columns
        else:
            tabs[FIELDS - 1] = end
            codes[line], fields[line] = _row(buffer, start, tabs, labels[line : line + 1], counts[line], categories[line])
        start = following


@_compiled
def _row(
    buffer: NDArray[np.uint8],
    start: int,
    ends: NDArray[np.int64],
    label: NDArray[np.float32],
    counts: NDArray[np.int64],
    categories: NDArray[np.int64],
) -> tuple[int, int]:
    """Parse a line of 40 fields, which end at `ends`. Returns its code and the field that is bad."""
    if ends[0] - start != 1 or not 0 <= np.int64(buffer[start]) - ZERO <= 1:
        return LABEL, 0
    label[0] = buffer[start] - ZERO
    for field in range(1, 1 + DENSE_FEATURES):
        good, counts[field - 1] = _integer(buffer, ends[field - 1] + 1, ends[field])
        if not good:
            return INTEGER, field
    for field in range(1 + DENSE_FEATURES, FIELDS):
        value = _category(buffer, ends[field - 1] + 1, ends[field])
        if value < MISSING_CATEGORY:
            return CATEGORY, field
        categories[field - 1 - DENSE_FEATURES] = value
    return GOOD, 0
