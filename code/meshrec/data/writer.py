"""Writes a store row by row, so that neither the number of rows nor the memory has to be known beforehand.

Everything goes into a hidden folder beside the wanted one, which is renamed when it is complete: a killed build leaves nothing
that looks finished, and the next build removes what is left of it.
"""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from meshrec.data.columns import Rows
from meshrec.data.store import COLUMNS, MANIFEST, REJECTED, Column, ColumnFile, Manifest, Store, StoreError, data_hash
from meshrec.data.store import open_store as _open_store
from meshrec.data.store import sha256_of as _sha256_of
from meshrec.experiment.record import write_json

logger = logging.getLogger(__name__)

KNOWN_FILES = {MANIFEST, REJECTED, ".snakemake_timestamp", *(f"{column}.npy" for column in COLUMNS)}
"""All that a store's folder may hold; Snakemake leaves its time stamp in folders that it made."""


class StoreWriter:
    """Context manager that builds the store `path`. Leaving it without `finish` discards what was written.

    One process at a time builds a store: a second one waits for the first.

    Raises:
        StoreError: `path` holds files that are no store's, so that it must not be replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._partial = _sibling(path, "partial")
        self._files: dict[Column, IO[bytes]] = {}

    def __enter__(self) -> Self:
        _refuse_foreign(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(_sibling(self.path, "lock"))
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir()
        for column in COLUMNS:
            self._files[column] = (self._partial / f"{column}.npy").open("wb")
            _write_header(self._files[column], column, 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # on a full disk closing fails as writing did, and all is discarded anyway
                file.close()
        shutil.rmtree(self._partial, ignore_errors=True)
        self._lock.close()

    def append(self, rows: Rows) -> None:
        """Add rows after those already written."""
        columns: dict[Column, NDArray[Any]] = {"label": rows.labels, "dense": rows.dense, "sparse": rows.sparse}
        for column, values in columns.items():
            dtype, row_shape = COLUMNS[column]
            if values.dtype != np.dtype(dtype) or values.shape != (len(rows), *row_shape):
                raise ValueError(f"{column}: found {values.dtype} {values.shape}, want {dtype} {(len(rows), *row_shape)}")
            self._files[column].write(np.ascontiguousarray(values).data)
        self.rows += len(rows)

    def write_rejected(self, lines: Iterable[str]) -> None:
        """Write the lines of `rejected.tsv`, without line ends."""
        (self._partial / REJECTED).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def finish(self, train: int, **facts: Any) -> Store:
        """Complete the store, whose first `train` rows are for training; `facts` are the manifest's other fields."""
        columns = {column: self._complete(column) for column in COLUMNS}
        labels = np.load(self._partial / "label.npy", mmap_mode="r")
        manifest = Manifest(
            data_hash=data_hash(columns),
            columns=columns,
            train=train,
            evaluation=self.rows - train,
            train_click_rate=float(labels[:train].mean(dtype=np.float64)),
            evaluation_click_rate=float(labels[train:].mean(dtype=np.float64)),
            **facts,
        )
        write_json(self._partial / MANIFEST, manifest.model_dump(mode="json"))
        _replace(self._partial, self.path)
        return _open_store(self.path)

    def _complete(self, column: Column) -> ColumnFile:
        """Write the final number of rows into the array's header, and the file to disk."""
        file = self._files[column]
        file.seek(0)
        _write_header(file, column, self.rows)
        file.flush()
        os.fsync(file.fileno())
        dtype, row_shape = COLUMNS[column]
        name = f"{column}.npy"
        return ColumnFile(file=name, dtype=dtype, shape=[self.rows, *row_shape], sha256=_sha256_of(self._partial / name))


def _write_header(file: IO[bytes], column: Column, rows: int) -> None:
    # NumPy pads the header so that the first axis can grow in place: its length is the same for every number of rows
    dtype, row_shape = COLUMNS[column]
    header = {"descr": dtype, "fortran_order": False, "shape": (rows, *row_shape)}
    np.lib.format.write_array_header_1_0(file, header)


def _sibling(path: Path, kind: str) -> Path:
    whole = path.absolute()  # `.` has no name of its own
    return whole.with_name(f".{whole.name}.{kind}")


def _lock(file: Path) -> IO[bytes]:
    """Wait until no other process builds this store. The kernel frees the lock when its holder ends, however it ends."""
    handle = file.open("wb")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("%s: another process is preparing this data set; waiting for it", file.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:  # some network file systems have no locks
        logger.warning("%s: %s; start no second build of this data set before this one ends", file, error.strerror)
    return handle


def _refuse_foreign(path: Path) -> None:
    """Only a folder that holds a store, whole or damaged, may be replaced by one."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise StoreError(f"{path}: is no folder; move it away or choose another output folder")
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in KNOWN_FILES) if path.exists() else []
    if foreign:
        raise StoreError(
            f"{path}: holds {foreign[:3]}, which no prepared data set has; move them away or choose another folder"
        )


def _replace(partial: Path, path: Path) -> None:
    """Rename a complete folder to its final name; a folder can't be renamed over one that has files."""
    if path.exists():
        shutil.rmtree(path)
    partial.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
