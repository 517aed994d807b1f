"""Reads a file into numbered events. Ids become numbers by the order of their first line; `arrange` gives them final ones."""

import logging
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshrec.data.layout import Layout
from meshrec.data.sequences.formats import Events, Parser, parser_of
from meshrec.data.sequences.text import BadLine, SequenceError, check_id, decoded, lines_of
from meshrec.data.source import PARQUET, OpenSource, open_source
from meshrec.data.store import Source
from meshrec.experiment.sequences import SequenceDataset

logger = logging.getLogger(__name__)

HEAD = "file\tline\tfield\tfound\treason\n"


@dataclass
class RawEvents:
    """n events in the order of the file."""

    users: NDArray[np.int32]
    """[n], places in `user_ids`."""
    items: NDArray[np.int32]
    """[n], places in `item_ids`."""
    times: NDArray[np.int64] | None
    """[n], as given; None where the file has none."""
    user_ids: list[str]
    item_ids: list[str]
    """Ids in the order of their first line; some have no event, since the rest of their line was bad."""
    lines: int
    """Lines of the file, header and bad ones included."""
    rejected: dict[str, int]
    """Reason → lines that are no events."""
    source: Source


class Rejects:
    """Counts bad lines and writes each to `rejected.tsv`, up to a ceiling that stops a hopeless file early."""

    def __init__(self, file: Path, name: str, most: int) -> None:
        self.counts: Counter[str] = Counter()
        self.first: str | None = None
        """The first one, in words."""
        self._file = file
        self._name = name
        self._most = most

    def add(self, line: int, bad: BadLine) -> None:
        """Log one.

        Raises:
            SequenceError: it is one more than the ceiling.
        """
        self.counts[bad.reason] += 1
        if self.first is None:
            self.first = f"{self._name}: line {line}: {bad.field}: found {bad.found}, {bad.wanted}"
        with self._file.open("a", encoding="utf-8") as log:
            log.write(HEAD if log.tell() == 0 else "")
            log.write(f"{self._name}\t{line}\t{bad.field}\t{bad.found}\t{bad.wanted}\n")
        if self.counts.total() > self._most:
            raise SequenceError(
                f"{self._name}: line {line}: more than {self._most} lines are rejected ({self.described}); the first: "
                f"{self.first}. Check the file and the format's settings, or raise max_rejected"
            )

    @property
    def described(self) -> str:
        """Counts in words."""
        return ", ".join(f"{reason} {number}" for reason, number in sorted(self.counts.items()))


def read_events(dataset: SequenceDataset, path: Path, rejected: Path) -> RawEvents:
    """All events of a file; bad lines go to the file `rejected`, which is there only if there are any.

    Raises:
        SequenceError: the file is empty, of another format or too bad.
        DataError: it is damaged, or of a kind that must be unpacked first.
    """
    _refuse_parquet(path)
    with open_source(path, Layout()) as source:
        return _Reader(dataset, source, rejected).read()


def _refuse_parquet(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(PARQUET)) == PARQUET:
            raise SequenceError(f"{path}: is a Parquet file; write it as text, for example as CSV")


class _Reader:
    """Reads one file."""

    def __init__(self, dataset: SequenceDataset, source: OpenSource, rejected: Path) -> None:
        self.dataset = dataset
        self.source = source
        self.name = source.path.name
        self.rejects = Rejects(rejected, self.name, dataset.max_rejected)
        self.user_numbers: dict[str, int] = {}
        self.item_numbers: dict[str, int] = {}
        self.users, self.items, self.times = array("i"), array("i"), array("q")
        self.line_of_user: dict[str, int] = {}

    def read(self) -> RawEvents:
        lines = lines_of(self.source)
        parser, number = None, 0
        for number, line in enumerate(lines, start=1):
            try:
                text = decoded(line)
                if parser is None:
                    parser = parser_of(self.dataset.text, self.name, text)
                    if parser.header:
                        continue
                self._take(parser.parse(text), parser, number)
            except BadLine as bad:
                if parser is None:
                    raise SequenceError(f"{self.name}: line {number}: found {bad.found}, {bad.wanted}") from None
                self.rejects.add(number, bad)
        self._require_events(parser, number)
        return RawEvents(
            np.array(self.users, np.int32),
            np.array(self.items, np.int32),
            np.array(self.times, np.int64) if self.dataset.timed else None,
            list(self.user_numbers),
            list(self.item_numbers),
            number,
            dict(self.rejects.counts),
            self.source.source(),
        )

    def _take(self, events: Events, parser: Parser, line: int) -> None:
        """Number the ids of a line. All of it is checked before anything is kept."""
        if not events.items:
            raise BadLine("columns", parser.item_field, "no items", "want at least one")
        user = _number(self.user_numbers, events.user, parser.user_field)
        items = [_number(self.item_numbers, item, parser.item_field) for item in events.items]
        if parser.whole_users and (before := self.line_of_user.setdefault(events.user, line)) != line:
            raise BadLine("user", parser.user_field, f"{events.user!a} again, first in line {before}", "want one line a user")
        self.users.extend([user] * len(items))
        self.items.extend(items)
        if events.times is not None:
            self.times.extend(events.times)

    def _require_events(self, parser: Parser | None, lines: int) -> None:
        if lines == 0:
            raise SequenceError(f"{self.source.path}: is empty; fetch the file again")
        if parser is not None and lines == parser.header:
            raise SequenceError(f"{self.source.path}: has a header line and no events; fetch the file again")
        if not self.users:
            raise SequenceError(
                f"{self.name}: all {lines - bool(parser and parser.header)} lines are rejected ({self.rejects.described}); "
                f"the first: {self.rejects.first}"
            )


def _number(numbers: dict[str, int], text: str, field: str) -> int:
    """Number of an id, the next one if it is new. Only new ones need to be checked."""
    number = numbers.get(text)
    if number is None:
        number = numbers[check_id(text, field)] = len(numbers)
    return number
