"""Lines of a text file as they are: whole, numbered, decoded, and refused where they are no text."""

import re
from collections.abc import Iterator

from meshrec.data.columns import DataError
from meshrec.data.source import OpenSource

READ_BYTES = 1 << 20
LONGEST_LINE = 64 << 20
"""Bytes. A user with millions of items fits."""
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LONGEST_SHOWN = 60
CONTROL = re.compile("[\x00-\x1f\x7f]")
TIME = re.compile(r"(-?[0-9]{1,18})(?:\.0*)?")


class SequenceError(DataError):
    """A file that can't be read as sequences. The message names the file and says what to do."""


class BadLine(Exception):
    """A line that is no event: the kind of reason, the field, what was found, and what was wanted."""

    def __init__(self, reason: str, field: str, found: str, wanted: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field
        self.found = found
        self.wanted = wanted


def shown(text: str) -> str:
    """Part of a text for a message: short, and in printable characters only."""
    return ascii(text[:LONGEST_SHOWN]) + ("…" if len(text) > LONGEST_SHOWN else "")


def lines_of(source: OpenSource) -> Iterator[bytes]:
    r"""Lines without their ends, `\n` or `\r\n`; without a UTF-8 byte-order mark before the first one.

    Raises:
        SequenceError: UTF-16, or a line is absurdly long.
        DataError: the file is damaged or ends early.
    """
    buffer, rest, first = memoryview(bytearray(READ_BYTES)), bytearray(), True
    while size := source.readinto(buffer):
        rest += buffer[:size]
        if first and size >= len(UTF8_MARK):
            first = False
            if rest.startswith(UTF16_MARKS):
                raise SequenceError(f"{source.path}: line 1: starts with a UTF-16 byte-order mark; save the text as UTF-8")
            if rest.startswith(UTF8_MARK):
                del rest[: len(UTF8_MARK)]
        *whole, last = rest.split(b"\n")
        yield from (bytes(line.removesuffix(b"\r")) for line in whole)
        rest = bytearray(last)
        if len(rest) > LONGEST_LINE:
            raise SequenceError(
                f"{source.path}: a line is longer than {LONGEST_LINE} bytes, so this is no text; check the file"
            )
    if rest:
        yield bytes(rest.removesuffix(b"\r"))


def decoded(line: bytes) -> str:
    """A line's text.

    Raises:
        BadLine: it is blank or no UTF-8.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        bad = line[error.start : error.start + 10].decode("latin-1")
        raise BadLine("encoding", "row", f"{shown(bad)} at byte {error.start + 1}", "want UTF-8") from None
    if not text.strip():
        raise BadLine("blank", "row", "blank line", "want an event")
    return text


def check_id(text: str, field: str) -> str:
    """An id as it is, if it is one: any text but blank, with blanks around it or with control characters in it.

    Raises:
        BadLine: it isn't.
    """
    if not text.strip():
        raise BadLine("id", field, shown(text), "want an id")
    if text != text.strip():
        raise BadLine("id", field, shown(text), "want an id without blanks around it")
    if CONTROL.search(text):
        raise BadLine("id", field, shown(text), "want an id without control characters")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can name half of a character
        raise BadLine("id", field, shown(text), "want an id of whole Unicode characters") from None
    return text


def parse_time(text: str, field: str) -> int:
    """A time in whatever unit the file has, kept as given.

    Raises:
        BadLine: no integer of at most 18 digits. `5.0` is one; `5.5` and `9.7e8` are not, since they may have been rounded.
    """
    match = TIME.fullmatch(text)
    if match is None:
        raise BadLine("time", field, shown(text), "want an integer of at most 18 digits")
    return int(match[1])
