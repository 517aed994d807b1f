"""Counts how often each category occurs, exactly and in bounded memory, however many categories there are.

Counts are sorted runs of (value, count). A run in memory that outgrows `MOST_ENTRIES` goes to disk; at the end all runs are
merged, one range of values after the other. A range holds at most 2²⁴ values, which bounds the memory of a merge at 0.6 GB;
what the runs were doesn't change the result.
"""

import json
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
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._files = sorted((file for file in folder.glob("*.json")), key=lambda file: int(file.stem))
        self.rows = max((json.loads(file.read_text(encoding="utf-8"))["rows"] for file in self._files), default=0)
        """Rows counted, all of them on disk at the start."""
        self._runs: list[Run] = [NOTHING] * CATEGORICAL_FEATURES

    def add(self, values: NDArray[np.int32], gone: NDArray[np.uint64], pool: ThreadPoolExecutor) -> None:
        """Count the categories [n, 26] of rows, as the bits of int32, but for those that bit 13 + table of `gone` names."""

        def counted(table: int) -> Run:
            there = (gone >> np.uint64(DENSE_FEATURES + table)) & np.uint64(1) == 0
            found, counts = np.unique(values[:, table].view(np.uint32)[there], return_counts=True)
            return _merge(self._runs[table], (found, counts.astype(np.int64)))

        self._runs = list(pool.map(counted, range(CATEGORICAL_FEATURES)))
        self.rows += len(values)
        if sum(len(found) for found, _ in self._runs) > MOST_ENTRIES:
            self._spill()

    def _spill(self) -> None:
        """Write the run in memory to disk; its description comes last, so that a killed build leaves no half a run."""
        sizes = [len(found) for found, _ in self._runs]
        name = self._folder / str(len(self._files))
        for part, suffix in enumerate(("values", "counts")):
            np.save(f"{name}.{suffix}.npy", np.concatenate([run[part] for run in self._runs]))
        description = name.with_suffix(".json")
        write_json(description, {"rows": self.rows, "sizes": sizes})
        self._files.append(description)
        self._runs = [NOTHING] * CATEGORICAL_FEATURES

    def frequent(self, table: int, min_count: int) -> Iterator[NDArray[np.uint32]]:
        """Values of a table that were counted at least `min_count` times, ascending, range by range."""
        runs = [*(self._on_disk(file, table) for file in self._files), self._runs[table]]
        edges = np.arange(RANGES + 1, dtype=np.uint64) << np.uint64(24)
        cuts = [np.searchsorted(values, edges) for values, _ in runs]
        for part in range(RANGES):
            merged = NOTHING
            for (values, counts), cut in zip(runs, cuts, strict=True):
                inside = slice(cut[part], cut[part + 1])
                merged = _merge(merged, (np.asarray(values[inside]), np.asarray(counts[inside])))
            yield merged[0][merged[1] >= min_count]

    def _on_disk(self, file: Path, table: int) -> Run:
        sizes = json.loads(file.read_text(encoding="utf-8"))["sizes"]
        start = sum(sizes[:table])
        inside = slice(start, start + sizes[table])
        try:
            values, counts = (np.load(file.with_suffix(f".{part}.npy"), mmap_mode="r") for part in ("values", "counts"))
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: its run can't be read: {error}; delete {self._folder.parent} and start again") from None
        return values[inside], counts[inside]


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
