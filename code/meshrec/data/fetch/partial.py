"""A file that is being downloaded: hidden beside its final name, with a note of where it comes from."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from meshrec.data.fetch.errors import FetchError
from meshrec.experiment.record import write_json

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Partial:
    """What has arrived of the file `final`. It survives a kill; only `complete` gives it its name."""

    def __init__(self, final: Path) -> None:
        self.final = final
        self.path = final.with_name(f".{final.name}.partial")
        self._note = final.with_name(f".{final.name}.partial.json")

    @property
    def size(self) -> int:
        """Bytes that are here."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def resume_point(self, address: str, hash_known: bool) -> tuple[int, str | None]:
        """Offset to go on from at an address, and what must not have changed there since.

        Where nothing would show that parts of two different files were joined, there is nothing to go on from.
        """
        note = self._read_note()
        if self.size and note.get("address") == address and note.get("validator"):
            return self.size, str(note["validator"])
        if self.size and not hash_known:
            self.truncate()
        return self.size, None

    def note(self, address: str, validator: str | None, total: int | None) -> None:
        """Write down where the following bytes come from, and how long the file is said to be."""
        with self._full_disk_explained():
            write_json(self._note, {"address": address, "validator": validator, "total": total})

    @property
    def said_total(self) -> object:
        """Length that the file was said to have when its first bytes came; None if nothing was said."""
        return self._read_note().get("total")

    def append(self, chunk: bytes) -> None:
        """Add bytes at the end.

        Raises:
            FetchError: the disk is full.
        """
        with self._full_disk_explained(), self.path.open("ab", buffering=0) as file:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]

    @contextlib.contextmanager
    def _full_disk_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL:
                raise FetchError(
                    f"{self.path}: {error.strerror} after {self.size} bytes; make room and run the same command again: it goes "
                    "on from there"
                ) from None
            raise

    def truncate(self) -> None:
        """Forget all that has arrived."""
        if self.path.is_file():
            os.truncate(self.path, 0)

    def discard(self) -> None:
        """Remove every trace."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def complete(self) -> None:
        """Give the file its name, once its bytes are on the disk."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(self.final)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._note.read_bytes())
            return found if isinstance(found, dict) else {}
        return {}
