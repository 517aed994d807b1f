"""Streams Criteo text, plain or gzip, into a store in bounded memory. A bad line is rejected and changes no other."""

import gzip
import hashlib
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from meshrec.data.columns import Rows, transform_categories, transform_counts
from meshrec.data.layout import CriteoError, refuse_other_layouts
from meshrec.data.store import REJECTED, Source
from meshrec.experiment.schema import DENSE_FEATURES, CriteoDataset

if TYPE_CHECKING:  # the parser brings numba, which takes a second to import
    from meshrec.data.parse import ParsedLines
    from meshrec.data.writer import StoreWriter

logger = logging.getLogger(__name__)

CHUNK_BYTES = 4 << 20
LONGEST_LINE = 1 << 20
SNIFFED_BYTES = 64 << 10
"""Part of the text that the layout is judged by."""
REJECTED_KEPT = 100
"""Rejected lines that are written down one by one; all of them are counted."""
GZIP_MAGIC = b"\x1f\x8b"


def expand_path(path: str) -> Path:
    """Path with its environment variables put in.

    Raises:
        CriteoError: a variable is unset or empty.
    """
    for name in re.findall(r"\$\{?(\w+)", path):
        if not os.environ.get(name):
            raise CriteoError(f"dataset.path {path!r}: ${name} is not set; set it to the folder that holds the text")
    return Path(os.path.expandvars(path)).expanduser()


class HashedFile:
    """A binary file that hashes what is read from it: the hash is that of the bytes that were really used."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Read as the file itself does."""
        data = self._file.read(size)
        self._hash.update(data)
        self.bytes += len(data)
        return data

    def source(self, name: str) -> Source:
        """Identity of what has been read."""
        return Source(file=name, bytes=self.bytes, sha256=self._hash.hexdigest())


def whole_lines(file: HashedFile, path: Path, compressed: bool) -> Iterator[bytes]:
    """Chunks of whole lines of the text; only the last one may lack its line end.

    Raises:
        CriteoError: the gzip data are damaged or end early, or a line is absurdly long.
    """
    text = gzip.GzipFile(mode="rb", fileobj=cast(BinaryIO, file)) if compressed else file
    rest = b""
    while chunk := _read(text, path):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
        if len(rest) > LONGEST_LINE:
            raise CriteoError(f"{path}: a line is longer than {LONGEST_LINE} bytes, so this is no Criteo text; check the file")
    if rest:
        yield rest


def _read(text: "gzip.GzipFile | HashedFile", path: Path) -> bytes:
    try:
        return text.read(CHUNK_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        raise CriteoError(f"{path}: can't be read to its end: {error}; fetch the file again") from None


class CriteoReader:
    """Reads one text: iterating yields the good rows, and afterwards the rejected lines and the source's hash are known.

    Raises:
        CriteoError: unreadable, of another layout, or without a good row.
    """

    def __init__(self, path: Path, table_rows: list[int]) -> None:
        self.path = path
        self.table_rows = table_rows
        self.lines = 0
        """Lines read so far."""
        self.rejected: Counter[str] = Counter()
        """Reason → lines."""
        self.rejected_lines: list[str] = []
        """The first of them: file, line, field and reason, tab-separated."""
        self.source: Source | None = None
        """Known when all is read."""

    def __iter__(self) -> Iterator[Rows]:
        from meshrec.data.parse import GOOD, parse_lines

        try:
            raw = self.path.open("rb")
        except OSError as error:
            raise CriteoError(f"{self.path}: {error.strerror}; check dataset.path") from None
        with raw:
            compressed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            file = HashedFile(raw)
            for text in whole_lines(file, self.path, compressed):
                if self.lines == 0:
                    refuse_other_layouts(self.path.name, text[:SNIFFED_BYTES])
                parsed = parse_lines(text)
                self._reject(text, parsed)
                self.lines += len(parsed.codes)
                yield self._rows(parsed, parsed.codes == GOOD)
            self.source = file.source(self.path.name)
        self._require_rows()

    def _rows(self, parsed: "ParsedLines", good: np.ndarray) -> Rows:
        from meshrec.data.parse import MISSING_CATEGORY, MISSING_COUNT

        counts, categories = parsed.counts[good], parsed.categories[good]
        return Rows(
            labels=parsed.labels[good],
            dense=transform_counts(counts, counts == MISSING_COUNT),
            sparse=transform_categories(categories, categories == MISSING_CATEGORY, self.table_rows),
        )

    def _reject(self, text: bytes, parsed: "ParsedLines") -> None:
        from meshrec.data.parse import REASONS

        bad = np.flatnonzero(parsed.codes)
        self.rejected.update(REASONS[code] for code in parsed.codes[bad])
        for line in bad[: REJECTED_KEPT - len(self.rejected_lines)]:
            start = parsed.ends[line - 1] if line else 0
            fields = text[start : parsed.ends[line]].removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
            where, why = explain(REASONS[parsed.codes[line]], fields, int(parsed.fields[line]))
            self.rejected_lines.append(f"{self.path.name}\t{self.lines + line + 1}\t{where}\t{why}")

    def _require_rows(self) -> None:
        if self.lines == 0:
            raise CriteoError(f"{self.path}: is empty; fetch the file again")
        if self.rejected.total() == self.lines:
            first = self.rejected_lines[0].replace("\t", ": ")
            raise CriteoError(
                f"{self.path}: all {self.lines} lines are rejected ({_counts(self.rejected)}); the first: {first}"
            )


def explain(reason: str, fields: list[bytes], field: int) -> tuple[str, str]:
    """Name of the bad field, and what was found and wanted there."""
    if reason == "columns":
        return "row", "blank line" if fields == [b""] else f"{len(fields)} columns, want 40"
    if reason == "unlabelled":
        return "row", f"{len(fields)} columns, want 40; looks unlabelled (hex in column 14)"
    found = ascii(fields[field][:40].decode("latin-1"))
    if reason == "label":
        return "label", f"found {found}, want 0 or 1"
    if reason == "integer":
        return f"I{field}", f"found {found}, want an integer of at most 18 digits, or nothing"
    return f"C{field - DENSE_FEATURES}", f"found {found}, want 8 hexadecimal digits, or nothing"


def _counts(rejected: Counter[str]) -> str:
    return ", ".join(f"{reason} {number}" for reason, number in sorted(rejected.items()))


def evaluation_rows(rows: int, fraction: float) -> int:
    """Rows at the end kept for evaluation: `rows · fraction` rounded to the nearest, and at least one on either side.

    Raises:
        CriteoError: fewer than two rows.
    """
    if rows < 2:
        raise CriteoError(f"{rows} good row, want at least 2: one to train on and one to evaluate on; use a larger file")
    return min(max(round(rows * fraction), 1), rows - 1)


def write_criteo(dataset: CriteoDataset, writer: "StoreWriter") -> tuple[int, dict[str, int], Source]:
    """Read the data set's text into the writer.

    Returns:
        Training rows, rejected lines by reason, and the text's identity.

    Raises:
        CriteoError: the text can't be used; see `CriteoReader`.
    """
    reader = CriteoReader(expand_path(dataset.path), dataset.rows_of_tables)
    for rows in reader:
        writer.append(rows)
    assert reader.source is not None
    train = writer.rows - evaluation_rows(writer.rows, dataset.eval_fraction)
    if reader.rejected_lines:
        counts = _counts(reader.rejected)
        logger.warning(
            "%s: %d of %d lines rejected (%s): see %s", reader.path, reader.rejected.total(), reader.lines, counts, REJECTED
        )
        writer.write_rejected(["file\tline\tfield\treason", *reader.rejected_lines])
    return train, dict(reader.rejected), reader.source
