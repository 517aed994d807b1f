"""Writes a store row by row, so that neither the number of rows nor the memory has to be known beforehand.

Everything goes into a hidden folder beside the wanted one, which is renamed when it is complete: a killed build leaves nothing
that looks finished. A build with a key can be taken up again: `checkpoint` writes down how far it has come, and the next build
with the same key goes on from there. Any other build removes what is left of it.
"""

import contextlib
import json
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from meshrec.data.arrays import GrowingArray
from meshrec.data.columns import DataError, Rows
from meshrec.data.folder import lock, refuse_foreign, replace_folder, sibling
from meshrec.data.store import (
    COLUMNS,
    MANIFEST,
    REJECTED,
    VOCABULARY,
    ColumnFile,
    Manifest,
    Store,
    checksum_of,
    data_hash,
)
from meshrec.data.store import open_store as _open_store
from meshrec.data.store import sha256_of as _sha256_of
from meshrec.experiment.record import write_json

PROGRESS = "progress.json"
SCRATCH: dict[str, tuple[str, tuple[int, ...]]] = {"values": ("<i4", (26,)), "gone": ("<u8", ())}
"""What is kept of the rows until vocabularies are known: the categories' bits, and which features are missing."""
ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {str(column): kind for column, kind in COLUMNS.items()} | SCRATCH
READ_ROWS = 1 << 20
KNOWN_FILES = {MANIFEST, REJECTED, VOCABULARY, ".snakemake_timestamp", *(f"{column}.npy" for column in COLUMNS)}
"""All that a store's folder may hold; Snakemake leaves its time stamp in folders that it made."""


class StoreWriter:
    """Context manager that builds the store `path`. Leaving it without `finish` discards what was written.

    With a `key`, what was written up to the last checkpoint is kept, unless the data turned out to be unusable.
    One process at a time builds a store: a second one waits for the first.

    Raises:
        StoreError: `path` holds files that are no store's, so that it must not be replaced.
    """

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path = path
        self.key = key
        self.state: Any = None
        """What the last checkpoint of a build with the same key held; None for a fresh start."""
        self.keep = False
        """Keep the last checkpoint whatever the error: other settings may make the data usable."""
        self.partial = sibling(path, "partial")
        """Folder that the store is built in."""
        self._arrays: dict[str, GrowingArray] = {}
        self._checkpoints = False

    def __enter__(self) -> Self:
        refuse_foreign(self.path, KNOWN_FILES)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = lock(sibling(self.path, "lock"))
        if not self._resume():
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir()
            self.state = None
        return self

    def _resume(self) -> bool:
        """Take up the last build, if it had the same key and its files are as its checkpoint says."""
        try:
            progress = json.loads((self.partial / PROGRESS).read_text(encoding="utf-8"))
            if self.key is None or progress["key"] != self.key:
                return False
            for name, rows in progress["rows"].items():
                self._arrays[name] = self._open(name, rows)
        except (OSError, ValueError, KeyError):
            for array in self._arrays.values():
                array.close()
            self._arrays = {}
            return False
        self.state, self._checkpoints = progress["state"], True
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for array in self._arrays.values():
            with contextlib.suppress(OSError):  # on a full disk closing fails as writing did
                array.close()
        unusable = isinstance(error, DataError) and not self.keep
        if error is None or unusable or not self._checkpoints:
            shutil.rmtree(self.partial, ignore_errors=True)
        self._lock.close()

    def _open(self, name: str, rows: int | None = None) -> GrowingArray:
        dtype, row_shape = ARRAYS[name]
        return GrowingArray(self.partial / f"{name}.npy", dtype, row_shape, rows)

    def array(self, name: str) -> GrowingArray:
        """A column or scratch array by name, started when first asked for."""
        if name not in self._arrays:
            self._arrays[name] = self._open(name)
        return self._arrays[name]

    def drop(self, name: str) -> None:
        """Forget what was written of an array."""
        if name in self._arrays:
            self._arrays.pop(name).close()

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self.array("label").rows

    def append(self, rows: Rows) -> None:
        """Add rows after those already written."""
        self.array("label").append(rows.labels)
        self.array("dense").append(rows.dense)
        self.array("sparse").append(rows.sparse)

    def checkpoint(self, state: Any) -> None:
        """Write down that everything so far is on disk, with what the source needs to go on from here (a JSON value)."""
        for array in self._arrays.values():
            array.sync()
        rows = {name: array.rows for name, array in self._arrays.items()}
        write_json(self.partial / PROGRESS, {"key": self.key, "rows": rows, "state": state})
        self._checkpoints, self.state = self.key is not None, state

    def write_rejected(self, lines: Iterable[str]) -> None:
        """Write the lines of `rejected.tsv`, without line ends."""
        (self.partial / REJECTED).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def click_rate(self, start: int, stop: int) -> float | None:
        """Part of the rows start … stop − 1 whose label is 1; None where there are no rows or no labels."""
        clicks = 0.0
        for first in range(start, stop, READ_ROWS):
            clicks += float(self.array("label").read(first, min(first + READ_ROWS, stop)).sum(dtype=np.float64))
        return clicks / (stop - start) if stop > start and not np.isnan(clicks) else None

    def finish(self, train: int, **facts: Any) -> Store:
        """Complete the store, whose first `train` rows are for training; `facts` are the manifest's other fields."""
        for name in SCRATCH:
            if name in self._arrays:
                self._arrays.pop(name).close()
        rows = self.rows
        with ThreadPoolExecutor(len(COLUMNS)) as pool:  # hashing takes longest, and waits for nobody
            columns = dict(zip(COLUMNS, pool.map(self._complete, COLUMNS), strict=True))
        manifest = Manifest(
            data_hash=data_hash(columns),
            columns=columns,
            train=train,
            evaluation=rows - train,
            train_click_rate=self.click_rate(0, train),
            evaluation_click_rate=self.click_rate(train, rows),
            **facts,
        )
        manifest = manifest.model_copy(update={"checksum": checksum_of(manifest)})
        for entry in self.partial.iterdir():
            if entry.name not in KNOWN_FILES:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        write_json(self.partial / MANIFEST, manifest.model_dump(mode="json"))
        replace_folder(self.partial, self.path)
        return _open_store(self.path)

    def _complete(self, column: str) -> ColumnFile:
        array = self.array(column)
        array.complete()
        return ColumnFile(
            file=array.path.name, dtype=array.dtype.str, shape=[array.rows, *array.row_shape], sha256=_sha256_of(array.path)
        )
