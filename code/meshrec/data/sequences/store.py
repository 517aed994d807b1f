"""A store of sequences: a folder of memory-mapped arrays, vocabularies, and a manifest that says what they are.

    items.npy      int32 [n]      item numbers 1 … i, user by user, oldest first; 0 is padding and in no store
    times.npy      int64 [n]      times as the file gives them; only where it does
    starts.npy     int64 [u + 1]  user k has the events starts[k] … starts[k + 1] − 1
    users.txt      u lines        line k (from 0) is the id of user k
    items.txt      i lines        line k (from 0) is the id of item k + 1
    rejected.tsv   lines of the source that are no events, where there are any
    manifest.json  see `SequenceManifest`

Each user's last event is for testing, the one before it for validation, all others for training (leave-one-out).
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from meshrec.data.sequences.arrange import Sequences
from meshrec.data.store import MANIFEST, REJECTED, Closed, ColumnFile, Source, StoreError, sha256_of
from meshrec.experiment.cells import hash_of
from meshrec.experiment.record import write_json

ARRAYS: dict[str, str] = {"items": "<i4", "times": "<i8", "starts": "<i8"}
IDS = ("users", "items")
KNOWN_FILES = {
    MANIFEST,
    REJECTED,
    ".snakemake_timestamp",
    *(f"{name}.npy" for name in ARRAYS),
    *(f"{name}.txt" for name in IDS),
}
"""All that a store's folder may hold; Snakemake leaves its time stamp in folders that it made."""
ORDER = "by user, then time, then place in the file{}; users and items are numbered in the order of their ids' text"


class IdFile(Closed):
    """One vocabulary on disk: UTF-8, one id a line."""

    file: str
    size: int = Field(ge=1)
    sha256: str


class Counts(Closed):
    """Of the file or of the store."""

    users: int
    items: int
    events: int


class SequenceManifest(Closed):
    """What the arrays are, and where they come from."""

    schema_version: Literal[1] = 1
    kind: Literal["sequences"] = "sequences"
    name: str
    settings: dict[str, Any]
    """The `SequenceDataset`."""
    data_hash: str
    """sha256 of the text that `sha256sum` prints for all arrays and vocabularies, in the manifest's order."""
    arrays: dict[str, ColumnFile]
    ids: dict[str, IdFile]
    counts: Counts
    read: Counts
    """In the file, before filters and without rejected lines."""
    lines: int
    """Of the file."""
    rejected: dict[str, int]
    """Reason → lines that are no events here."""
    duplicates: int
    """Events like an earlier one in user, item and time; they are kept unless the settings say `drop`."""
    core_rounds: int
    """Rounds of filtering users and items with too few events, until nothing was found."""
    order: str
    """Of the events, in words."""
    split: str = "leave-one-out: of each user the last event is for testing, the one before it for validation"
    source: Source
    checksum: str
    """Hash of all other fields."""


@dataclass(frozen=True)
class SequenceStore:
    """An opened store. The arrays are read-only memory maps."""

    path: Path
    manifest: SequenceManifest
    items: NDArray[np.int32]
    """[n]."""
    times: NDArray[np.int64] | None
    """[n]."""
    starts: NDArray[np.int64]
    """[u + 1]."""

    @property
    def users(self) -> int:
        """Users u."""
        return len(self.starts) - 1

    @property
    def item_count(self) -> int:
        """Items i; their numbers are 1 … i, so that a table of their embeddings has i + 1 rows."""
        return self.manifest.counts.items

    def ids(self, of: Literal["users", "items"]) -> list[str]:
        """All ids: that of user k is entry k, that of item k + 1 is entry k."""
        return (self.path / self.manifest.ids[of].file).read_text(encoding="utf-8").split("\n")[:-1]

    def verify(self) -> None:
        """Read everything and compare it with the manifest's hashes.

        Raises:
            StoreError: something differs.
        """
        for file, wanted in _hashes(self.manifest.arrays, self.manifest.ids).items():
            if (found := sha256_of(self.path / file)) != wanted:
                raise _damaged(self.path / file, f"its sha256 is {found}, want {wanted}")
        if (found := _data_hash(self.manifest.arrays, self.manifest.ids)) != self.manifest.data_hash:
            raise _damaged(self.path / MANIFEST, f"data_hash is {self.manifest.data_hash}, but the files give {found}")


def write_sequences(folder: Path, sequences: Sequences, newest_first: bool, **facts: Any) -> None:
    """Write arrays, vocabularies and manifest into a folder; `facts` are the manifest's other fields."""
    arrays = {
        name: _write_array(folder / f"{name}.npy", values.astype(ARRAYS[name], copy=False))
        for name, values in (("items", sequences.items), ("times", sequences.times), ("starts", sequences.starts))
        if values is not None
    }
    ids = {
        name: _write_ids(folder / f"{name}.txt", texts)
        for name, texts in zip(IDS, (sequences.user_ids, sequences.item_ids), strict=True)
    }
    counts = Counts(users=len(sequences.user_ids), items=len(sequences.item_ids), events=len(sequences.items))
    manifest = SequenceManifest(
        data_hash=_data_hash(arrays, ids),
        arrays=arrays,
        ids=ids,
        counts=counts,
        duplicates=sequences.duplicates,
        core_rounds=sequences.core_rounds,
        order=ORDER.format(", from its end" if newest_first else ""),
        checksum="",
        **facts,
    )
    manifest = manifest.model_copy(update={"checksum": _checksum(manifest)})
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))


def _write_array(file: Path, values: NDArray[Any]) -> ColumnFile:
    with file.open("wb") as stream:
        np.lib.format.write_array(stream, values, version=(1, 0), allow_pickle=False)
        _sync(stream)
    return ColumnFile(file=file.name, dtype=values.dtype.str, shape=list(values.shape), sha256=sha256_of(file))


def _write_ids(file: Path, texts: list[str]) -> IdFile:
    with file.open("wb") as stream:
        stream.writelines(f"{text}\n".encode() for text in texts)
        _sync(stream)
    return IdFile(file=file.name, size=len(texts), sha256=sha256_of(file))


def _sync(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def open_sequences(path: Path) -> SequenceStore:
    """Open a store after cheap checks. `SequenceStore.verify` checks every byte.

    Raises:
        StoreError: missing or damaged; the message names the file and says what to do.
    """
    manifest = _read_manifest(path / MANIFEST)
    events, users = manifest.counts.events, manifest.counts.users
    lengths = {"items": events, "times": events, "starts": users + 1}
    arrays = {name: _map_array(path, manifest, name, lengths[name]) for name in manifest.arrays}
    for name in IDS:
        if name not in manifest.ids or not (path / manifest.ids[name].file).is_file():
            raise _damaged(path / f"{name}.txt", "not found")
    if not {"items", "starts"} <= arrays.keys():
        raise _damaged(path / MANIFEST, f"arrays: found {sorted(arrays)}, want items and starts")
    return SequenceStore(path, manifest, arrays["items"], arrays.get("times"), arrays["starts"])


def _read_manifest(file: Path) -> SequenceManifest:
    try:
        manifest = SequenceManifest.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{file}: not found, so {file.parent} holds no sequences; run `meshrec prepare-sequences`") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise _damaged(file, f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from None
    if manifest.checksum != _checksum(manifest):
        raise _damaged(file, f"checksum is {manifest.checksum!r}, but the other fields give {_checksum(manifest)!r}")
    return manifest


def _map_array(path: Path, manifest: SequenceManifest, name: str, length: int) -> NDArray[Any]:
    file = path / f"{name}.npy"
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(file, str(error)) from None
    if name not in ARRAYS or array.dtype.str != ARRAYS[name] or array.shape != (length,):
        raise _damaged(file, f"found {array.dtype.str} {list(array.shape)}, want {ARRAYS.get(name, 'no such file')} [{length}]")
    return np.asarray(array)


def _checksum(manifest: SequenceManifest) -> str:
    return hash_of(manifest.model_dump(mode="json", exclude={"checksum"}))


def _hashes(arrays: dict[str, ColumnFile], ids: dict[str, IdFile]) -> dict[str, str]:
    """File → sha256, in the manifest's order."""
    return {entry.file: entry.sha256 for entry in arrays.values()} | {entry.file: entry.sha256 for entry in ids.values()}


def _data_hash(arrays: dict[str, ColumnFile], ids: dict[str, IdFile]) -> str:
    lines = "".join(f"{sha256}  {file}\n" for file, sha256 in _hashes(arrays, ids).items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _damaged(file: Path, problem: str) -> StoreError:
    return StoreError(f"{file}: {problem}; the sequences are damaged: delete {file.parent} and run `meshrec prepare-sequences`")
