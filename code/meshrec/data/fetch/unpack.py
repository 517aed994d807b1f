"""Unpacks the wanted members of a tar or zip archive, each under its own plain name; nothing else touches the disk."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.partial import Partial

COPIED_BYTES = 1 << 20


class ArchiveError(FetchError):
    """An archive that isn't what the table says."""


def unpack(archive: Path, members: list[str]) -> list[Path]:
    """Unpack members beside the archive. The archive is read to its end, so that its own checksums are checked too.

    Raises:
        ArchiveError: damaged, a member is missing or no plain file, or some member's path leads out of the archive.
        FetchError: the disk is full.
    """
    partials = {member: Partial(archive.parent / Path(member).name) for member in members}
    try:
        with _members(archive) as found:
            for name, stream in found:
                if (partial := partials.get(name)) is not None and stream is not None:
                    partial.discard()
                    _copy(stream, partial)
                elif name in partials:
                    raise ArchiveError(f"{archive}: member {name} is no plain file; refused")
        missing = [member for member, partial in partials.items() if not partial.path.is_file()]
        if missing:
            raise ArchiveError(f"{archive}: has no member {', '.join(missing)}; is it another version?")
        for partial in partials.values():
            partial.complete()
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise ArchiveError(f"{archive}: can't be unpacked: {error}; delete it and fetch it again") from None
    finally:
        for partial in partials.values():
            partial.discard()
    return [partial.final for partial in partials.values()]


def _copy(stream: IO[bytes], partial: Partial) -> None:
    partial.append(b"")  # an empty member is a file too
    while chunk := stream.read(COPIED_BYTES):
        partial.append(chunk)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes] | None]]]:
    """Name and content of every member in turn; None is no plain file."""
    with archive.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04":
        with zipfile.ZipFile(archive) as zipped:
            yield _zip_members(archive, zipped)
        return
    with gzip.open(archive) if start.startswith(b"\x1f\x8b") else archive.open("rb") as raw:
        with tarfile.open(fileobj=raw, mode="r|") as tarred:  # a stream: members in their order, none is sought
            yield _tar_members(archive, tarred)
        while raw.read(COPIED_BYTES):  # to the end, where gzip's checksum is
            pass


def _zip_members(archive: Path, opened: zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes] | None]]:
    for info in opened.infolist():
        _refuse_path_out(archive, info.filename)
        mode = info.external_attr >> 16
        link = (mode & 0o170000) == 0o120000
        if info.is_dir() or link:
            yield str(PurePosixPath(info.filename)), None
            continue
        with opened.open(info) as stream:
            yield str(PurePosixPath(info.filename)), stream


def _tar_members(archive: Path, opened: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes] | None]]:
    for info in opened:
        _refuse_path_out(archive, info.name)
        try:
            tarfile.data_filter(info, str(archive.parent))
        except tarfile.FilterError as error:
            raise ArchiveError(f"{archive}: {error}; refused") from None
        yield str(PurePosixPath(info.name)), opened.extractfile(info) if info.isreg() else None


def _refuse_path_out(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"{archive}: member {name!r} would land outside the folder; refused")
