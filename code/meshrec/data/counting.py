"""Counts how often each category occurs, exactly and in bounded memory, however many categories there are.

Counts are sorted runs of (value, count). A run in memory that outgrows `MOST_ENTRIES` goes to disk; at the end all runs are
merged, one range of values after the other. A range holds at most 2²⁴ values, which bounds the memory of a merge at 0.6 GB;
what the runs were doesn't change the result.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from meshrec.data.columns import DataError
from meshrec.experiment.record import write_json
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

MOST_ENTRIES = 16 << 20
"""Entries of the run in memory, over all tables: 192 MB."""
RANGES = 256
"""Parts of the 2³² values that runs are merged by."""
Run = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""Values, ascending, and their counts."""
NOTHING: Run = (np.empty(0, np.uint32), np.empty(0, np.int64))


class CategoryCounts:
    """Counts of the categories of 26 tables, with runs in a folder of their own; those found there are gone on from."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._on_disk = [RunFile(file) for file in sorted(folder.glob("*.json"), key=lambda file: int(file.stem))]
        self._runs: list[Run] = [NOTHING] * CATEGORICAL_FEATURES
        self.rows = max((run.rows for run in self._on_disk), default=0)
        """Rows counted, all of them on disk at the start."""

    def add(self, values: NDArray[np.int32], gone: NDArray[np.uint64], pool: ThreadPoolExecutor) -> None:
        """Count the categories [n, 26] of rows, as the bits of int32, but for those that bit 13 + table of `gone` names."""

        def counted(table: int) -> None:
            there = (gone >> np.uint64(DENSE_FEATURES + table)) & np.uint64(1) == 0
            found, counts = np.unique(values[:, table].view(np.uint32)[there], return_counts=True)
            self._runs[table] = _merge(self._runs[table], (found, counts.astype(np.int64)))

        list(pool.map(counted, range(CATEGORICAL_FEATURES)))
        self.rows += len(values)
        if sum(len(found) for found, _ in self._runs) > MOST_ENTRIES:
            file = self._folder / f"{len(self._on_disk)}.json"
            self._on_disk.append(RunFile.write(file, self.rows, self._runs))
            self._runs = [NOTHING] * CATEGORICAL_FEATURES

    def frequent(self, table: int, min_count: int) -> Iterator[NDArray[np.uint32]]:
        """Values of a table that were counted at least `min_count` times, ascending, range by range."""
        values, counts = self._runs[table]
        cuts = _cuts(values)
        for part in range(RANGES):
            merged: Run = (values[cuts[part] : cuts[part + 1]], counts[cuts[part] : cuts[part + 1]])
            for run in self._on_disk:
                merged = _merge(merged, run.read(table, part))
            yield merged[0][merged[1] >= min_count]


class RunFile:
    """A run of all tables on disk: values and counts beside a description, which is written last and makes it whole."""

    def __init__(self, description: Path) -> None:
        """Open what `write` wrote.

        Raises:
            DataError: the description or the arrays aren't whole.
        """
        self._file = description
        try:
            said = json.loads(description.read_text(encoding="utf-8"))
            self.rows: int = said["rows"]
            """Rows counted by this run and those before it."""
            self._cuts = np.array(said["cuts"], np.int64)
            sizes = [description.with_suffix(suffix).stat().st_size for suffix in (".values", ".counts")]
        except (OSError, ValueError, KeyError) as error:
            raise self._damaged(str(error)) from None
        if sizes != [4 * self._cuts[-1, -1], 8 * self._cuts[-1, -1]]:
            raise self._damaged(f"its arrays have {sizes} bytes")

    @classmethod
    def write(cls, description: Path, rows: int, runs: list[Run]) -> "RunFile":
        """Write the runs of all tables."""
        starts = np.cumsum([0, *(len(values) for values, _ in runs)])
        for part, suffix in enumerate((".values", ".counts")):
            with description.with_suffix(suffix).open("wb") as file:
                for run in runs:
                    file.write(run[part].data)
                file.flush()
                os.fsync(file.fileno())
        cuts = [(start + _cuts(values)).tolist() for start, (values, _) in zip(starts, runs, strict=False)]
        write_json(description, {"rows": rows, "cuts": cuts})
        return cls(description)

    def read(self, table: int, part: int) -> Run:
        """A table's entries in one range of values. They are read and not mapped: what is mapped counts as memory, too."""
        start, stop = (int(self._cuts[table, edge]) for edge in (part, part + 1))
        values = np.fromfile(self._file.with_suffix(".values"), np.uint32, stop - start, offset=4 * start)
        counts = np.fromfile(self._file.with_suffix(".counts"), np.int64, stop - start, offset=8 * start)
        return values, counts

    def _damaged(self, problem: str) -> DataError:
        return DataError(
            f"{self._file}: its counts can't be read: {problem}; delete {self._file.parent.parent} and start again"
        )


def _cuts(values: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where in the values each range begins and the last one ends, [RANGES + 1]."""
    return np.searchsorted(values, np.arange(RANGES + 1, dtype=np.uint64) << np.uint64(24))


def _merge(one: Run, other: Run) -> Run:
    """Both runs as one, the counts of a value in both added up."""
    values = np.empty(len(one[0]) + len(other[0]), np.uint32)
    counts = np.empty(len(values), np.int64)
    size = _merge_into(*one, *other, values, counts)
    return values[:size].copy(), counts[:size].copy()


@numba.njit(nogil=True, cache=True)
def _merge_into(
    one: NDArray[np.uint32],
    one_counts: NDArray[np.int64],
    other: NDArray[np.uint32],
    other_counts: NDArray[np.int64],
    values: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> int:
    """Merge two runs; returns the number of values."""
    i, j, size = 0, 0, 0
    while i < len(one) or j < len(other):
        left = j == len(other) or (i < len(one) and one[i] <= other[j])
        right = i == len(one) or (j < len(other) and other[j] <= one[i])
        values[size] = one[i] if left else other[j]
        counts[size] = (one_counts[i] if left else 0) + (other_counts[j] if right else 0)
        i += left
        j += right
        size += 1
    return size
