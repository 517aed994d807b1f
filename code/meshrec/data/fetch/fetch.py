"""Brings the files of a data set onto this machine: `<data>/raw/<set>/`, verified, and what is in their archives."""

import fcntl
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from meshrec.data.fetch.download import Downloader, Wanted
from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.lock import Lock, Pin
from meshrec.data.fetch.partial import Partial
from meshrec.data.fetch.progress import progress
from meshrec.data.fetch.sources import Source, SourceFile
from meshrec.data.fetch.transport import Patience
from meshrec.data.fetch.unpack import ArchiveError, unpack
from meshrec.data.store import sha256_of

logger = logging.getLogger(__name__)

LOCK = "sources.lock.json"


@dataclass(frozen=True)
class Fetcher:
    """Fetches into one data folder."""

    data: Path
    """Holds raw/ and the lock file."""
    mirror: str | None = None
    """Folder or address that holds SET/FILE, asked before all others."""
    offline: bool = False
    """Ask no address but the mirror and those of this machine."""
    licence_accepted: bool = False
    patience: Patience = field(default_factory=Patience)

    @property
    def lock(self) -> Lock:
        """Recorded hashes of what the table doesn't verify."""
        return Lock(self.data / LOCK)

    def folder(self, source: Source) -> Path:
        """Where a data set's files lie."""
        return self.data / "raw" / source.name

    def fetch(self, source: Source, names: list[str] | None = None) -> list[Path]:
        """Have all files of a data set, or those of these names. A file that is there and right isn't fetched again.

        Raises:
            FetchError: one can't be had, or its terms aren't accepted. What is whole is kept, and the next call goes on.
        """
        folder = self.folder(source)
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder):
            return [path for file in source.chosen(names or []) for path in self._have(source, file, folder)]

    def _have(self, source: Source, file: SourceFile, folder: Path) -> list[Path]:
        path = folder / file.name
        if path.exists():
            self._check(source.key(file), path, self._wanted(source.key(file), file))
            logger.info("%s: is here and right", path)
        else:
            self._get(source, file, path)
        return self._unpacked(source, file, path) if file.unpack else [path]

    def _get(self, source: Source, file: SourceFile, path: Path) -> None:
        if source.accept and not self.licence_accepted:
            raise FetchError(
                f"{source.name} comes under terms: {source.accept} ({source.licence}; {source.licence_page}). If you accept "
                "them, say so by --accept-licence"
            )
        addresses = self._addresses(source, file)
        wanted = self._wanted(source.key(file), file)
        partial = Partial(path)
        _refuse_full_disk(path, (wanted.bytes or file.about_bytes or 0) - partial.size + (file.unpacked_bytes or 0))
        with progress(file.name) as report:
            sha256, address = Downloader(wanted, report, self.patience).download(partial, addresses)
        if wanted.sha256 is None:
            self._trust(source, file, partial, Pin(bytes=partial.size, sha256=sha256, origin=address))
        partial.complete()
        logger.info("%s: fetched from %s, sha256 %s", path, address, sha256)

    def _wanted(self, key: str, file: SourceFile) -> Wanted:
        """What the table says of a file, else what was recorded of it."""
        pin = self.lock.get(key)
        if pin is None:
            return Wanted(file.bytes, file.sha256)
        return Wanted(file.bytes or pin.bytes, file.sha256 or pin.sha256)

    def _trust(self, source: Source, file: SourceFile, partial: Partial, pin: Pin) -> None:
        """Record a file whose hash nobody told us; an archive only if it can be unpacked to its end."""
        if file.unpack:
            try:
                self._unpack(source, file, partial.path)
            except ArchiveError:
                partial.discard()
                raise
        self._pin(source.key(file), pin)

    def _addresses(self, source: Source, file: SourceFile) -> list[str]:
        listed = self._mirrored(source, file) + [url for url in file.urls if not self.offline or url.startswith("file:")]
        if listed:
            return listed
        if self.mirror is not None:
            raise FetchError(f"{self.mirror}: holds neither {source.name}/{file.name} nor {file.name}")
        raise FetchError(source.by_hand or f"{file.name}: no address but on the net; leave --offline out, or name a --mirror")

    def _mirrored(self, source: Source, file: SourceFile) -> list[str]:
        if self.mirror is None:
            return []
        if "://" in self.mirror:
            return [f"{self.mirror.rstrip('/')}/{source.name}/{file.name}"]
        places = (Path(self.mirror) / source.name / file.name, Path(self.mirror) / file.name)
        return [place.resolve().as_uri() for place in places if place.is_file()]

    def _check(self, key: str, path: Path, wanted: Wanted) -> None:
        """Compare a file that is here with what is known of it; record it where nothing is.

        Raises:
            FetchError: it is another.
        """
        size, found = path.stat().st_size, sha256_of(path)
        if wanted.sha256 not in (None, found) or wanted.bytes not in (None, size):
            raise FetchError(
                f"{path}: sha256 is {found}, {size} bytes; want {wanted.sha256 or f'{wanted.bytes} bytes'}. Move it away and "
                "fetch it again"
            )
        if wanted.sha256 is None:
            logger.warning("%s: was put here by hand; its bytes are recorded as the right ones", path)
            self._pin(key, Pin(bytes=size, sha256=found, origin="found here"))

    def _pin(self, key: str, pin: Pin) -> None:
        with _only_one(self.data, wait=True):
            self.lock.add(key, pin)

    def _unpacked(self, source: Source, file: SourceFile, archive: Path) -> list[Path]:
        """What is in the archive, if it isn't here yet and right."""
        members = _members(source, file, archive)
        if not all(path.is_file() and self.lock.get(key) for key, path in members.items()):
            self._unpack(source, file, archive)
            return list(members.values())
        for key, path in members.items():
            pin = self.lock.get(key)
            assert pin is not None
            self._check(key, path, Wanted(pin.bytes, pin.sha256))
        return list(members.values())

    def _unpack(self, source: Source, file: SourceFile, archive: Path) -> None:
        logger.info("%s: unpacking %s", archive, ", ".join(file.unpack))
        _refuse_full_disk(archive, file.unpacked_bytes or 0)
        unpack(archive, file.unpack)
        for key, path in _members(source, file, archive).items():
            self._pin(key, Pin(bytes=path.stat().st_size, sha256=sha256_of(path), origin=file.name))


def _members(source: Source, file: SourceFile, archive: Path) -> dict[str, Path]:
    """Key of each unpacked member and where it lies."""
    return {f"{source.key(file)}/{member}": archive.parent / Path(member).name for member in file.unpack}


def _refuse_full_disk(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise FetchError(
            f"{path.parent}: has {free / 1e9:.1f} GB free, {path.name} needs {needed / 1e9:.1f} GB more; make room, or choose "
            "another folder by --data"
        )


@contextmanager
def _only_one(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keep other fetches out of a folder. The lock is the system's: it ends with the process, however that ends."""
    # a file of its own: over NFS a lock needs a handle that can be written to, which a folder's can't
    with (folder / ".fetch.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise FetchError(f"{folder}: another fetch is at work there; wait for it") from None
        yield
