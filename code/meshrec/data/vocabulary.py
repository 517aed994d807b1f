"""Vocabularies: table rows for the categories that training rows hold often enough, in two passes over the parsed rows.

The first pass counts categories in the training rows alone, so that nothing of the evaluation rows leaks into the tables; the
second one looks up all rows. Both go on after an interruption: the first from the last run of counts on disk, the second from
the last checkpoint.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numpy.typing import NDArray

from meshrec.data.arrays import GrowingArray
from meshrec.data.columns import FIRST_OWN_ROW, VOCABULARY_TRANSFORM
from meshrec.data.counting import CategoryCounts
from meshrec.data.layout import CriteoError
from meshrec.data.source import expand_path
from meshrec.data.store import VOCABULARY, Vocabularies, open_store, read_vocabularies, sha256_of
from meshrec.experiment.cells import hash_of
from meshrec.experiment.datasets import VocabularyCategories
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES, CriteoDataset

if TYPE_CHECKING:
    from meshrec.data.writer import StoreWriter

logger = logging.getLogger(__name__)

COUNTED_ROWS = 1 << 19
"""Rows that are counted at once: 60 MB."""
LOOKED_UP_ROWS = 1 << 16
CHECKPOINT_ROWS = 1 << 20
BUCKETS = 1 << 16
"""Parts of the 2³² values that a search starts in."""


def assign_rows(dataset: CriteoDataset, writer: "StoreWriter", train: int, workers: int) -> dict[str, Any]:
    """Fill the store's sparse column from the parsed categories.

    Args:
        dataset: its `categories` are a vocabulary.
        writer: holds all parsed rows and what the reader's last checkpoint said.
        train: rows to count in, the first ones.
        workers: threads.

    Returns:
        Facts for the manifest.

    Raises:
        CriteoError: a vocabulary doesn't fit into its table, or the store to take it from has none or is another variant's.
    """
    settings = dataset.categories
    assert isinstance(settings, VocabularyCategories)
    file = writer.partial / VOCABULARY
    wanted = hash_of([train, settings.model_dump(mode="json"), _version_of(settings)])
    begun = (writer.state or {}).get("vocabulary", {})
    with ThreadPoolExecutor(workers) as pool:
        if begun.get("of") != wanted or not file.is_file():
            writer.drop("sparse")
            sizes = _take_over(dataset, settings, file) if settings.store else _build(settings, writer, train, file, pool)
            begun = {"of": wanted, "sizes": sizes}
        _require_room(dataset, writer, begun["sizes"])
        state = {**(writer.state or {}), "vocabulary": begun}
        writer.checkpoint(state)
        _look_up_all(writer, file, begun["sizes"], pool, state)
    found = Vocabularies(sha256=sha256_of(file), sizes=begun["sizes"], min_count=settings.min_count, variant=dataset.variant)
    return {"vocabulary": found, "transform": VOCABULARY_TRANSFORM}


def _version_of(settings: VocabularyCategories) -> str | None:
    """Identity of the vocabularies that are taken from another store."""
    vocabulary = open_store(expand_path(settings.store, "categories.store")).manifest.vocabulary if settings.store else None
    return vocabulary.sha256 if vocabulary else None


def _build(
    settings: VocabularyCategories, writer: "StoreWriter", train: int, file: Path, pool: ThreadPoolExecutor
) -> list[int]:
    """Count the training rows' categories and write those that are frequent enough. Returns their number in each table."""
    of_these = hash_of([train])
    counts = CategoryCounts(writer.partial / f"counts-{of_these}")
    logger.info("%s: counting the categories of %d training rows", writer.path, train)
    for start in range(counts.rows, train, COUNTED_ROWS):
        stop = min(start + COUNTED_ROWS, train)
        counts.add(writer.array("values").read(start, stop), writer.array("gone").read(start, stop), pool)
    vocabulary = GrowingArray(file, "<u4", ())
    sizes = []
    for table in range(CATEGORICAL_FEATURES):
        before = vocabulary.rows
        for values in counts.frequent(table, settings.min_count):
            vocabulary.append(values)
        sizes.append(vocabulary.rows - before)
    vocabulary.complete()
    vocabulary.close()
    return sizes


def _take_over(dataset: CriteoDataset, settings: VocabularyCategories, file: Path) -> list[int]:
    """Copy the vocabularies of another store. Returns their sizes."""
    assert settings.store is not None
    other = open_store(expand_path(settings.store, "categories.store"))
    parts = read_vocabularies(other)
    found = other.manifest.vocabulary
    assert found is not None
    if (found.variant, found.min_count) != (dataset.variant, settings.min_count):
        raise CriteoError(
            f"dataset.categories.store {other.path}: has vocabularies of {found.variant} rows with min_count "
            f"{found.min_count}, want {dataset.variant} and {settings.min_count}: a value means something else in another set"
        )
    vocabulary = GrowingArray(file, "<u4", ())
    for part in parts:
        vocabulary.append(part)
    vocabulary.complete()
    vocabulary.close()
    return found.sizes


def _require_room(dataset: CriteoDataset, writer: "StoreWriter", sizes: list[int]) -> None:
    """Every vocabulary must fit into its table: leaving categories out in silence would change the data."""
    wanted = [size + FIRST_OWN_ROW for size in sizes]
    logger.info("%s: table rows that the vocabularies need: %s", writer.path, wanted)
    rows = dataset.rows_of_tables
    if short := [table for table in range(CATEGORICAL_FEATURES) if wanted[table] > rows[table]]:
        writer.keep = True
        table = short[0]
        raise CriteoError(
            f"dataset.table_rows: C{table + 1} has {sizes[table]} categories in at least min_count training rows, for which "
            f"{rows[table]} rows don't suffice (nor in {len(short) - 1} other tables); raise min_count, or take "
            f"table_rows: {wanted}. What is parsed is kept: the next preparation only counts"
        )


def _look_up_all(writer: "StoreWriter", file: Path, sizes: list[int], pool: ThreadPoolExecutor, state: dict[str, Any]) -> None:
    vocabulary = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    buckets = _buckets(vocabulary, starts)
    values, gone, sparse = writer.array("values"), writer.array("gone"), writer.array("sparse")

    def looked_up(rows: range) -> NDArray[np.int32]:
        out = np.empty((len(rows), CATEGORICAL_FEATURES), np.int32)
        parsed = values.read(rows.start, rows.stop), gone.read(rows.start, rows.stop)
        _look_up(*parsed, vocabulary, starts, buckets, out)
        return out

    for part in _parts(sparse.rows, values.rows, CHECKPOINT_ROWS):
        for rows in pool.map(looked_up, _parts(part.start, part.stop, LOOKED_UP_ROWS)):
            sparse.append(rows)
        writer.checkpoint(state)


def _parts(start: int, stop: int, size: int) -> Iterator[range]:
    for first in range(start, stop, size):
        yield range(first, min(first + size, stop))


def _buckets(vocabulary: NDArray[np.uint32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in its table's vocabulary each of the values k · 2¹⁶ is or would be, [26, 2¹⁶ + 1]."""
    edges = np.arange(BUCKETS + 1, dtype=np.uint64) << np.uint64(16)
    tables = [vocabulary[starts[table] : starts[table + 1]] for table in range(CATEGORICAL_FEATURES)]
    return np.array([np.searchsorted(table, edges) for table in tables], np.int64)


@numba.njit(nogil=True, cache=True)
def _look_up(
    values: NDArray[np.int32],
    gone: NDArray[np.uint64],
    vocabulary: NDArray[np.uint32],
    starts: NDArray[np.int64],
    buckets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Table rows of categories [n, 26]: 0 where missing, 1 where not in the vocabulary, else 2 + place in it."""
    for row in range(len(values)):
        for table in range(CATEGORICAL_FEATURES):
            if (gone[row] >> np.uint64(DENSE_FEATURES + table)) & np.uint64(1):
                out[row, table] = 0
                continue
            value = np.uint32(values[row, table])
            bucket = value >> np.uint32(16)
            low, high = buckets[table, bucket], buckets[table, bucket + 1]
            end = high
            while low < high:
                middle = (low + high) // 2
                if vocabulary[starts[table] + middle] < value:
                    low = middle + 1
                else:
                    high = middle
            own = low < end and vocabulary[starts[table] + low] == value
            out[row, table] = FIRST_OWN_ROW + low if own else 1
