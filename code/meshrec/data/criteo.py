"""Streams Criteo rows of any variant into a store: in bounded memory, over all cores, from the last checkpoint on.

One thread reads and decompresses chunks of whole lines, a pool parses them, and the rows are appended in the order of the text.
A line is judged by itself, so that neither the chunks nor the number of workers changes a byte of the result.

Memory: at most `MOST_WORKERS + AHEAD` chunks are under way, each in 5 MiB of text and at most 60 MiB of rows (if all of them
are empty and padded; 3 MiB for Criteo's own). With Python and its libraries that is below 0.9 GiB whatever the size of the
text, and was 0.27 GiB with 8 workers on 1.6 GB of text.
"""

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshrec.data import source
from meshrec.data.layout import CriteoError, Layout, refuse_other_layouts
from meshrec.data.reject import RejectLog, explain
from meshrec.data.source import LONGEST_LINE, PARQUET, OpenSource, endless_line, expand_path, open_source, read_head
from meshrec.data.store import REJECTED, Source
from meshrec.experiment.cells import hash_of
from meshrec.experiment.schema import DENSE_FEATURES, CriteoDataset

if TYPE_CHECKING:  # the parser brings numba, which takes a second to import
    from meshrec.data.parse import ParsedLines
    from meshrec.data.writer import StoreWriter

logger = logging.getLogger(__name__)

CHECKPOINT_CHUNKS = 64
"""Chunks between two checkpoints: 256 MiB of text, a second's work."""
AHEAD = 2
"""Chunks that are read beside those being parsed."""
MOST_WORKERS = 8
"""One thread reads and writes for all: more workers would wait for it."""
DESCRIBED = 10_000
"""Rejected lines that are described at once."""
PARSER = 1
"""Version of what a line becomes. A build that another version began is not gone on with."""


class Memory:
    """What chunks are read into and parsed into, used again and again: fresh memory would take a third of the time."""

    def __init__(self) -> None:
        from meshrec.data.parse import RowArrays

        self.text = bytearray(source.CHUNK_BYTES + source.LONGEST_LINE)
        self.rows = RowArrays()


@dataclass
class Chunk:
    """Some lines of a file, and what they hold once they are parsed. Both are in `memory`."""

    memory: Memory
    text: memoryview
    parsed: "Future[ParsedLines]"


class CriteoReader:
    """Reads all files of a data set into a writer, and knows afterwards what was in them."""

    def __init__(self, dataset: CriteoDataset, writer: "StoreWriter", workers: int) -> None:
        state = writer.state or {}
        self.dataset = dataset
        self.writer = writer
        self.workers = min(workers, MOST_WORKERS)
        self.layout = Layout.of(dataset)
        self.hashed = dataset.categories.kind == "hashed"
        self.rejected = RejectLog(writer.partial, dataset.max_rejected, state.get("rejected"))
        self.sources: list[Source] = [Source.model_validate(said) for said in state.get("sources", [])]
        """Of the files that were read to their end."""
        self.rows_after: list[int] = list(state.get("rows_after", []))
        """Rows in the store after each of them."""
        self.missing: np.ndarray = np.array(state.get("missing", [0] * 39), np.int64)
        """Rows in which each feature is missing, [39]."""
        self.lines: int = state.get("lines", 0)
        """Lines of the current file so far."""
        self.bytes: int = state.get("bytes", 0)
        """Bytes of the current file's text so far."""

    def read(self) -> None:
        """Read what the last checkpoint doesn't have yet.

        Raises:
            CriteoError: a file is unreadable, of another layout, or without a good row.
        """
        files = [expand_path(file) for file in self.dataset.files]
        if self.lines or self.sources:
            logger.info("%s: going on after %d rows of an interrupted preparation", self.writer.path, self.writer.rows)
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for path in files[len(self.sources) :]:
                    self._read_file(path, pool)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _read_file(self, path: Path, pool: ThreadPoolExecutor) -> None:
        layout = _layout_of_rows(path, self.layout)
        head = read_head(path, layout)
        refuse_other_layouts(path.name, head, layout)
        before = self.rows_after[-1] if self.rows_after else 0
        with open_source(path, layout) as opened:
            if layout.header and self.bytes == 0:
                self.bytes, self.lines = head.find(b"\n") + 1, 1
            for number, chunk in enumerate(self._chunks(opened, layout, pool), start=1):
                self._take(path, layout, chunk)
                if number % CHECKPOINT_CHUNKS == 0:
                    self.writer.checkpoint(self._state())
            self.sources.append(opened.source())
        self._require_rows(path, before)
        self.rows_after.append(self.writer.rows)
        self.lines = self.bytes = 0
        if path != expand_path(self.dataset.files[-1]) or not self.hashed:
            self.writer.checkpoint(self._state())

    def _chunks(self, opened: OpenSource, layout: Layout, pool: ThreadPoolExecutor) -> Iterator[Chunk]:
        """Chunks in the order of the text, parsed or being parsed. A chunk is good until the next one is asked for."""
        from meshrec.data.parse import parse_lines

        tables = np.array(self.dataset.rows_of_tables, np.int64) if self.hashed else None
        most_bad, waiting, free = self.dataset.max_rejected, deque[Chunk](), deque[Memory]()

        def memory() -> bytearray:
            if not free:
                free.append(Memory())
            return free[0].text

        for text in opened.chunks(self.bytes, memory):
            using = free.popleft()
            waiting.append(Chunk(using, text, pool.submit(parse_lines, text, layout, tables, most_bad, using.rows)))
            if len(waiting) == self.workers + AHEAD:
                yield (first := waiting.popleft())
                free.append(first.memory)
        yield from waiting

    def _take(self, path: Path, layout: Layout, chunk: Chunk) -> None:
        parsed = chunk.parsed.result()
        starts = parsed.bad[:, 1].tolist()
        if len(chunk.text) > LONGEST_LINE and any(len(_line(chunk.text, start)) > LONGEST_LINE for start in starts):
            raise endless_line(path)
        for first in range(0, len(parsed.bad), DESCRIBED):
            bad = parsed.bad[first : first + DESCRIBED].tolist()
            self.rejected.add(path.name, [self._described(layout, chunk.text, line) for line in bad])
        if bytes(chunk.text[-1:]) != b"\n":
            logger.warning("%s: the last line has no line end; if that isn't how it should be, the file was cut", path)
        self.lines += parsed.lines
        self.bytes += len(chunk.text)
        self.missing += parsed.missing
        if self.hashed:
            self.writer.append(parsed.rows)
            return
        self.writer.array("label").append(parsed.rows.labels)
        self.writer.array("dense").append(parsed.rows.dense)
        self.writer.array("values").append(parsed.rows.sparse)
        self.writer.array("gone").append(parsed.gone)

    def _described(self, layout: Layout, text: memoryview, bad: list[int]) -> tuple[int, str, str, str, str]:
        from meshrec.data.parse import REASONS

        line, start, code, field = bad
        fields = _line(text, start).split(layout.separator)
        return self.lines + line + 1, REASONS[code], *explain(REASONS[code], fields, field, layout)

    def _state(self) -> dict[str, Any]:
        return {
            "rejected": self.rejected.state(),
            "sources": [read.model_dump(mode="json") for read in self.sources],
            "rows_after": self.rows_after,
            "missing": self.missing.tolist(),
            "lines": self.lines,
            "bytes": self.bytes,
        }

    def _require_rows(self, path: Path, before: int) -> None:
        if self.lines == 0:
            raise CriteoError(f"{path}: is empty; fetch the file again")
        if self.lines == self.layout.header:
            raise CriteoError(f"{path}: has a header line and no rows; fetch the file again")
        if self.writer.rows == before:
            raise CriteoError(
                f"{path}: all {self.lines - self.layout.header} lines are rejected ({self.rejected.described}); the first: "
                f"{self.rejected.first}"
            )
        if same := [read.file for read in self.sources[:-1] if read.sha256 == self.sources[-1].sha256]:
            raise CriteoError(f"{path}: has the same bytes as {same[0]}, so rows would be there twice; correct dataset.path")


def _layout_of_rows(path: Path, layout: Layout) -> Layout:
    """Parquet has its header apart from its rows."""
    try:
        with path.open("rb") as file:
            return replace(layout, header=False) if file.read(4) == PARQUET else layout
    except OSError as error:
        raise CriteoError(f"{path}: {error.strerror}; check dataset.path") from None


def _line(text: memoryview, start: int) -> bytes:
    return bytes(text[start : start + LONGEST_LINE + 2]).partition(b"\n")[0].removesuffix(b"\r")


def key_of(dataset: CriteoDataset) -> str:
    """What rows depend on before they are split: a build that was interrupted goes on only if this is the same."""
    settings = dataset.model_dump(mode="json", exclude={"eval_fraction", "eval_days", "max_rejected", "categories"})
    if dataset.categories.kind == "vocabulary":
        del settings["table_rows"]
    files = [(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in map(expand_path, dataset.files)]
    return hash_of([PARSER, dataset.categories.kind, settings, files])


def evaluation_rows(rows: int, fraction: float) -> int:
    """Rows at the end kept for evaluation: `rows · fraction` rounded to the nearest, and at least one on either side.

    Raises:
        CriteoError: fewer than two rows.
    """
    if rows < 2:
        raise CriteoError(f"{rows} good row, want at least 2: one to train on and one to evaluate on; use a larger file")
    return min(max(round(rows * fraction), 1), rows - 1)


def training_rows(dataset: CriteoDataset, rows_after: list[int]) -> int:
    """Rows to train on, the first of the store, given the rows after each file.

    Raises:
        CriteoError: fewer than two rows, of which one part must be for evaluation.
    """
    if not dataset.labelled:
        return 0
    if dataset.eval_days is not None:
        return rows_after[-1 - dataset.eval_days]
    assert dataset.eval_fraction is not None
    return rows_after[-1] - evaluation_rows(rows_after[-1], dataset.eval_fraction)


def warn_of_the_other_variant(dataset: CriteoDataset, missing: list[int], rows: int) -> None:
    """Say so if the fields that are empty are those of the other public set: no number of columns can reveal it."""
    i2, c26 = missing[1] / rows, missing[DENSE_FEATURES + 25] / rows
    looks = "terabyte" if i2 > 0.01 and c26 < 0.01 else "kaggle" if i2 == 0 and c26 > 0.2 else dataset.variant
    if rows >= 1000 and looks != dataset.variant:
        logger.warning(
            "dataset.variant is %s, but I2 is empty in %.0f %% and C26 in %.0f %% of the rows, as in %s; is the variant right?",
            dataset.variant,
            100 * i2,
            100 * c26,
            looks,
        )


def write_criteo(dataset: CriteoDataset, writer: "StoreWriter", workers: int) -> tuple[int, dict[str, Any]]:
    """Read the data set's files into the writer.

    Returns:
        Training rows, and facts for the manifest.

    Raises:
        CriteoError: the files can't be used; see `CriteoReader`.
    """
    reader = CriteoReader(dataset, writer, workers)
    reader.read()
    rejected, missing = reader.rejected, reader.missing.tolist()
    train = training_rows(dataset, reader.rows_after)
    if rejected.total:
        logger.warning("%s: %d lines rejected (%s): see %s", writer.path, rejected.total, rejected.described, REJECTED)
    warn_of_the_other_variant(dataset, missing, writer.rows)
    facts: dict[str, Any] = {"rejected": dict(rejected.counts), "sources": reader.sources, "missing": missing}
    if dataset.categories.kind == "vocabulary":
        from meshrec.data.vocabulary import assign_rows

        facts |= assign_rows(dataset, writer, train, min(workers, MOST_WORKERS))
    return train, facts | {"labelled": dataset.labelled}
