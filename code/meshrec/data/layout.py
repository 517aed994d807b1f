"""Refuses text that isn't in Criteo's labelled layout as a whole, by its first lines, with a message that says what it is."""

import re

from meshrec.data.columns import DataError
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

FIELDS = 1 + DENSE_FEATURES + CATEGORICAL_FEATURES
SNIFFED_LINES = 20
BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


class CriteoError(DataError):
    """Text that can't be read as Criteo's. The message names the file and says what to do."""


def refuse_other_layouts(name: str, head: bytes) -> None:
    """Look at the first lines of the text. One odd line among them is a bad row, not another layout.

    Raises:
        CriteoError: byte-order mark, commas, header, index column or unlabelled rows.
    """
    if head.startswith(BYTE_ORDER_MARKS):
        raise CriteoError(f"{name}: line 1: starts with a byte-order mark; save the text as plain ASCII without one")
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:SNIFFED_LINES] if line.strip()]
    separator = b"," if lines and lines[0].count(b"\t") == 0 and lines[0].count(b",") >= FIELDS - 2 else b"\t"
    table = [line.split(separator) for line in lines]
    header = bool(table) and is_header(table[0])
    found = [
        "fields separated by commas (replace them by tabs)" if separator == b"," else "",
        "a header line (remove it)" if header else "",
        *_columns(table[1:] if header and len(table) > 1 else table),
    ]
    if any(found):
        raise CriteoError(
            f"{name}: line 1: found {'; '.join(filter(None, found))}. Want Criteo's labelled layout without header: "
            f"{FIELDS} tab-separated fields: label, {DENSE_FEATURES} integers, {CATEGORICAL_FEATURES} hexadecimal categories"
        )


def is_header(fields: list[bytes]) -> bool:
    """Whether a line names its columns: words at the start and no integer anywhere."""
    words = len(fields) >= FIELDS - 1 and any(re.search(rb"[A-Za-z]", field) for field in fields[:2])
    return words and not any(re.fullmatch(rb"-?\d+(\.0)?", field) for field in fields)


def _columns(table: list[list[bytes]]) -> list[str]:
    """What the number of columns says, where all lines agree."""
    if table and all(len(fields) == FIELDS + 1 for fields in table):
        return [f"{FIELDS + 1} columns; is the first an index? (remove it)"]
    if table and all(len(fields) == FIELDS - 1 and re.fullmatch(rb"[0-9A-Fa-f]{8}", fields[13]) for fields in table):
        return [f"{FIELDS - 1} columns that look unlabelled (hex in column 14); only labelled rows can be trained on"]
    return []
