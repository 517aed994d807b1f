"""Opens Criteo files of any kind as streams of text: plain, gzip, zstd or Parquet, told apart by their first bytes."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from meshrec.data.layout import SNIFFED_BYTES, CriteoError, Layout
from meshrec.data.store import Source, sha256_of

CHUNK_BYTES = 4 << 20
"""Text that is parsed at once."""
LONGEST_LINE = 1 << 20
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PARQUET = b"PAR1"
ARCHIVES = {
    b"PK\x03\x04": "a zip archive; unpack it (unzip)",
    b"BZh": "compressed by bzip2; unpack it (bunzip2)",
    b"\xfd7zXZ": "compressed by xz; unpack it (unxz)",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"Rar!": "a rar archive; unpack it",
    b"\x04\x22\x4d\x18": "compressed by lz4; unpack it (lz4 -d)",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself; fetch it (git lfs pull)",
}
"""First bytes of files that people have and that can't be read as they are."""


class Text(Protocol):
    """What is read from: bytes in order."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer, or its start at the end of the text; returns how many bytes that are."""
        ...


class HashedFile:
    """A binary file that hashes what is read from it: the hash is that of the bytes that were really used."""

    closed = False

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.bytes = 0

    def readinto(self, buffer: memoryview) -> int:
        """Read as the file itself does."""
        size = self._file.readinto(buffer)
        self._hash.update(buffer[:size])
        self.bytes += size
        return size

    def read(self, size: int) -> bytes:
        """Read as the file itself does; Arrow's streams ask for this."""
        data = bytearray(size)
        del data[self.readinto(memoryview(data)) :]
        return bytes(data)

    def close(self) -> None:
        """Nothing: who opened the file closes it."""

    def source(self, name: str) -> Source:
        """Identity of the whole file, whose rest is read for it."""
        buffer = memoryview(bytearray(CHUNK_BYTES))
        while self.readinto(buffer):
            pass
        return Source(file=name, bytes=self.bytes, sha256=self._hash.hexdigest())


def expand_path(path: str, key: str = "dataset.path") -> Path:
    """Path with its environment variables put in.

    Raises:
        CriteoError: a variable is unset or empty.
    """
    for name in re.findall(r"\$\{?(\w+)", path):
        if not os.environ.get(name):
            raise CriteoError(f"{key} {path!r}: ${name} is not set; set it to the folder that holds the data")
    return Path(os.path.expandvars(path)).expanduser()


class OpenSource:
    """One opened file: its text, and its identity when all of that was read."""

    def __init__(self, path: Path, text: Text, hashed: HashedFile | None) -> None:
        self.path = path
        self._text = text
        self._hashed = hashed

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer with text, or its start at the end of it; returns how many bytes that are.

        Raises:
            CriteoError: the file is damaged or ends early.
        """
        try:
            return self._text.readinto(buffer)
        except (EOFError, OSError) as error:
            raise CriteoError(f"{self.path}: can't be read to its end: {error}; fetch the file again") from None

    def chunks(self, skip: int, memory: Callable[[], bytearray]) -> Iterator[memoryview]:
        """Chunks of whole lines of the text after its first `skip` bytes; only the last one may lack its line end.

        Each is read into memory of its own, which `memory` gives: at least CHUNK_BYTES + LONGEST_LINE bytes.

        Raises:
            CriteoError: see `readinto`, or a line is absurdly long.
        """
        self._skip(skip, memoryview(memory()))
        rest = b""
        while True:
            buffer = memory()
            view = memoryview(buffer)
            view[: len(rest)] = rest
            found = self.readinto(view[len(rest) : len(rest) + CHUNK_BYTES])
            if not found:
                break
            end = len(rest) + found
            cut = buffer.rfind(b"\n", 0, end) + 1
            rest = bytes(view[cut:end])
            if len(rest) > LONGEST_LINE:
                raise endless_line(self.path)
            if cut:
                yield view[:cut]
        if rest:
            yield view[: len(rest)]

    def _skip(self, size: int, buffer: memoryview) -> None:
        while size:
            skipped = self.readinto(buffer[:size])
            if not skipped:
                raise CriteoError(f"{self.path}: has become shorter while it was read; prepare it again")
            size -= skipped

    def source(self) -> Source:
        """The file's identity."""
        name = self.path.name
        if self._hashed is not None:
            return self._hashed.source(name)
        return Source(file=name, bytes=self.path.stat().st_size, sha256=sha256_of(self.path))


def endless_line(path: Path) -> CriteoError:
    """The error of a line that is longer than any row."""
    return CriteoError(f"{path}: a line is longer than {LONGEST_LINE} bytes, so this is no Criteo text; check the file")


@contextmanager
def open_source(path: Path, layout: Layout) -> Iterator[OpenSource]:
    """Open a file of any kind that can be read.

    Raises:
        CriteoError: there is no such file, or it is of a kind that must be unpacked first.
    """
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(path.open("rb"))
            start = raw.read(32)
        except OSError as error:
            raise CriteoError(f"{path}: {error.strerror}; check dataset.path") from None
        for magic, what in ARCHIVES.items():
            if start.startswith(magic):
                raise CriteoError(f"{path}: is {what}")
        raw.seek(0)
        if start.startswith(PARQUET):
            from meshrec.data.parquet import ParquetText

            yield OpenSource(path, stack.enter_context(ParquetText(path, layout)), None)
            return
        hashed = HashedFile(raw)
        yield OpenSource(path, _decompressed(hashed, start), hashed)


def _decompressed(file: HashedFile, start: bytes) -> Text:
    for magic, compression in COMPRESSIONS.items():
        if start.startswith(magic):
            import pyarrow as pa

            stream: Text = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression)
            return stream
    return file


def read_head(path: Path, layout: Layout) -> bytes:
    """First `SNIFFED_BYTES` of the text, or all of a shorter one.

    Raises:
        CriteoError: see `open_source` and `OpenSource.read`.
    """
    with open_source(path, layout) as source:
        buffer, size = memoryview(bytearray(SNIFFED_BYTES)), 0
        while found := source.readinto(buffer[size:]):
            size += found
        return bytes(buffer[:size])
