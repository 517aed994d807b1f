"""What a store holds, counted row by row: clicks, missing fields, how often table rows are hit, how integers are spread."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshrec.data.columns import FIRST_OWN_ROW, MISSING_DENSE, MISSING_ROW
from meshrec.data.store import Manifest, Split, open_store
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

CHUNK_ROWS = 1 << 18
BINS = 34
"""Of the integers' histograms: 0, 1, 2, 3 to 4, 5 to 8, … up to 2³² in the last one. Below them no bin stays empty for want of
whole numbers in it, as equal steps of the logarithm would."""
INTEGERS = [f"I{number}" for number in range(1, DENSE_FEATURES + 1)]
CATEGORIES = [f"C{number}" for number in range(1, CATEGORICAL_FEATURES + 1)]
SHARED_ROW = FIRST_OWN_ROW - 1
"""With vocabularies, the row of all categories that have none of their own."""


NOTHING = Split(
    np.empty(0, np.float32), np.empty((0, DENSE_FEATURES), np.float32), np.empty((0, CATEGORICAL_FEATURES), np.int32)
)


@dataclass(frozen=True)
class Part:
    """Counts of the training or the evaluation rows. Missing is −1 in dense columns, row 0 in sparse ones."""

    rows: int
    clicks: int | None
    """None where rows have no labels."""
    missing: NDArray[np.int64]
    """[39] rows in which each integer and then each category is missing."""
    hits: list[NDArray[np.int64]]
    """For each of the 26 tables [its rows] how often each row is asked for."""
    histograms: NDArray[np.int64]
    """[13, BINS] rows by count; missing ones are left out."""

    @property
    def click_rate(self) -> float | None:
        """Clicks a row; None where that isn't known."""
        return None if self.clicks is None or not self.rows else self.clicks / self.rows

    @property
    def missing_rates(self) -> NDArray[np.float64]:
        """[39] parts of the rows."""
        return self.missing / max(self.rows, 1)


@dataclass(frozen=True)
class Description:
    """A store's manifest and the counts of its two parts."""

    manifest: Manifest
    train: Part
    evaluation: Part

    @property
    def shown(self) -> Part:
        """Training rows; in a store of rows to predict, those."""
        return self.train if self.train.rows else self.evaluation

    @property
    def shown_rows(self) -> str:
        """`117,548 training rows`: what the shown part is."""
        return f"{self.shown.rows:,} {'training rows' if self.train.rows else 'rows to predict'}"

    @property
    def hashed(self) -> bool:
        """Whether categories may share table rows by their hash; else rare ones share row 1."""
        return self.manifest.kind != "synthetic" and self.manifest.vocabulary is None


@dataclass(frozen=True)
class TableFacts:
    """How a table's lookups are spread; missing ones are left out."""

    rows: int
    hit: int
    """Rows that are asked for at all."""
    once: int
    """Rows that are asked for once."""
    head_share: float
    """Part of the lookups that go to the most popular row."""
    half: int
    """Most popular rows that get half of the lookups."""
    shared: float | None
    """Part of the lookups that go to the row of all rare categories; None without vocabularies."""


def describe_store(path: Path) -> Description:
    """Read a store once.

    Raises:
        StoreError: it can't be opened.
    """
    store = open_store(path)
    manifest = store.manifest
    return Description(
        manifest, _count(store.train if manifest.labelled else NOTHING, manifest), _count(store.evaluation, manifest)
    )


def _count(split: Split, manifest: Manifest) -> Part:
    missing = np.zeros(DENSE_FEATURES + CATEGORICAL_FEATURES, np.int64)
    hits = [np.zeros(rows, np.int64) for rows in manifest.table_rows]
    histograms = np.zeros((DENSE_FEATURES, BINS), np.int64)
    clicks = 0.0
    for labels, dense, sparse in _chunks(split):
        clicks += float(labels.sum(dtype=np.float64))
        missing += np.concatenate([(dense == MISSING_DENSE).sum(axis=0), (sparse == MISSING_ROW).sum(axis=0)])
        for feature in range(DENSE_FEATURES):
            histograms[feature] += _histogram(dense[:, feature])
        for table, counts in enumerate(hits):
            counts += np.bincount(sparse[:, table], minlength=len(counts))
    return Part(len(split), round(clicks) if manifest.labelled else None, missing, hits, histograms)


def _chunks(split: Split) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]]:
    for start in range(0, len(split), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        yield split.labels[rows], split.dense[rows], split.sparse[rows]


def _histogram(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rows in each bin, from log1p of counts; beyond a million a count next to a bin's edge may fall on its other side."""
    counts = np.rint(np.expm1(values[values != MISSING_DENSE].astype(np.float64)))
    bins = np.where(counts < 1, 0, 1 + np.ceil(np.log2(np.maximum(counts, 1)))).astype(np.int64)
    return np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)


def bin_label(index: int) -> str:
    """Largest count of a bin: `0`, `1`, `2`, `4`, … `1k`, `1M`."""
    if index == 0:
        return "0"
    size = 2 ** (index - 1)
    for unit, factor in (("G", 2**30), ("M", 2**20), ("k", 2**10)):
        if size >= factor:
            return f"{size // factor}{unit}"
    return str(size)


def ranked(hits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hits of the rows that are asked for, most popular first; the row of missing categories is left out."""
    there = hits[MISSING_ROW + 1 :]
    return np.sort(there[there > 0])[::-1]


def table_facts(description: Description) -> list[TableFacts]:
    """Facts of each of the 26 tables, over the rows that are shown."""
    vocabulary = description.manifest.vocabulary is not None
    return [_facts(hits, vocabulary) for hits in description.shown.hits]


def _facts(hits: NDArray[np.int64], vocabulary: bool) -> TableFacts:
    order = ranked(hits)
    total = max(int(order.sum()), 1)
    half = int(np.searchsorted(np.cumsum(order), total / 2)) + 1 if len(order) else 0
    head = int(order[0]) / total if len(order) else 0.0
    shared = int(hits[SHARED_ROW]) / total if vocabulary else None
    return TableFacts(len(hits), len(order), int((order == 1).sum()), head, half, shared)
