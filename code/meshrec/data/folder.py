"""Folders that are built aside and renamed when they are complete: a killed build leaves nothing that looks finished."""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from meshrec.data.store import StoreError

logger = logging.getLogger(__name__)


@contextmanager
def built_folder(path: Path, known: set[str]) -> Iterator[Path]:
    """A hidden folder to fill, which becomes `path` when the block ends, and nothing if it raises.

    Raises:
        StoreError: `path` holds other files than the `known` ones, so that it must not be replaced.
    """
    refuse_foreign(path, known)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = sibling(path, "partial")
    with lock(sibling(path, "lock")):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            replace_folder(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def sibling(path: Path, kind: str) -> Path:
    """A hidden file or folder beside a path, named after it."""
    whole = path.absolute()  # `.` has no name of its own
    return whole.with_name(f".{whole.name}.{kind}")


def lock(file: Path) -> IO[bytes]:
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


def refuse_foreign(path: Path, known: set[str]) -> None:
    """Only a folder that holds a store, whole or damaged, may be replaced by one."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise StoreError(f"{path}: is no folder; move it away or choose another output folder")
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in known) if path.exists() else []
    if foreign:
        raise StoreError(
            f"{path}: holds {foreign[:3]}, which no prepared data set has; move them away or choose another folder"
        )


def replace_folder(partial: Path, path: Path) -> None:
    """Rename a complete folder to its final name; a folder can't be renamed over one that has files."""
    if path.exists():
        shutil.rmtree(path)
    partial.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
