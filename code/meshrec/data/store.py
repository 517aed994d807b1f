"""A columnar store: a folder of memory-mapped arrays and a manifest that says what they are and where they come from.

    label.npy       float32 [n]      0 or 1; NaN in rows to predict
    dense.npy       float32 [n, 13]
    sparse.npy      int32   [n, 26]  table rows
    vocabulary.npy  uint32  [v]      categories that have rows of their own, table by table; see `Vocabularies`
    rejected.tsv    lines of the source that are no rows here, where there are any
    manifest.json   see `Manifest`

Rows keep the source's order: first the training rows, then the evaluation rows.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from meshrec.data.columns import TRANSFORM, DataError
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES

MANIFEST = "manifest.json"
REJECTED = "rejected.tsv"
VOCABULARY = "vocabulary.npy"
Column = Literal["label", "dense", "sparse"]
COLUMNS: dict[Column, tuple[str, tuple[int, ...]]] = {
    "label": ("<f4", ()),
    "dense": ("<f4", (DENSE_FEATURES,)),
    "sparse": ("<i4", (CATEGORICAL_FEATURES,)),
}
"""Column → dtype and shape of one row."""


class StoreError(DataError):
    """A store that can't be used or built. The message names the file and says what to do."""


class Closed(BaseModel):
    """No key but the declared ones: a manifest of another version is refused, not half understood."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnFile(Closed):
    """One array on disk."""

    file: str
    dtype: str
    shape: list[int]
    sha256: str
    """Of the whole file, as `sha256sum` prints it."""


class Source(Closed):
    """The text that the rows were read from, without its folder."""

    file: str
    bytes: int
    sha256: str


class Optimum(Closed):
    """Quality of the true click probabilities on the evaluation labels: no model is expected to do better."""

    logloss: float
    """Nats."""
    ne: float
    """logloss over the entropy of the evaluation rows' own click rate."""
    auc: float


class HeadRow(Closed):
    """The row that a synthetic table's most popular id has."""

    row: int
    share: float
    """Part of the samples that hit it: a batch of B samples does so B · share times on average."""
    coherence: float
    """ρ of a hit's gradient for a model that predicts the click rate; see `meshrec.data.coherence`."""


class Vocabularies(Closed):
    """Which categories have table rows of their own: entry k of a table's part of the file has row 2 + k of that table.

    Row 0 is a missing category, row 1 all others. A part is in the order of the values, which are hashes: frequent categories
    are then spread over a table, and over the ranks that share it.
    """

    file: Literal["vocabulary.npy"] = "vocabulary.npy"
    sha256: str
    """Of the whole file, as `sha256sum` prints it."""
    sizes: list[int]
    """Entries of each of the 26 tables, in the file's order."""
    min_count: int
    """Training rows that a category had to be in."""
    variant: str
    """Set that the categories are from: the same value means something else in the other."""


class Manifest(Closed):
    """What the arrays are, and where they come from."""

    schema_version: Literal[2] = 2
    kind: Literal["synthetic", "criteo"]
    name: str
    """`synthetic`, `criteo-kaggle` or `criteo-terabyte`."""
    settings: dict[str, Any]
    """The experiment's `dataset` section."""
    data_hash: str
    """sha256 of the text that `sha256sum label.npy dense.npy sparse.npy` prints: identity of the rows."""
    columns: dict[Column, ColumnFile]
    train: int = Field(ge=0)
    """Training rows, the first of the store."""
    evaluation: int = Field(ge=1)
    """Evaluation rows, which follow them."""
    labelled: bool = True
    """False where all rows are only to be predicted: there are no training rows then."""
    rejected: dict[str, int] = {}
    """Reason → lines of the source that are no rows here."""
    train_click_rate: float | None
    evaluation_click_rate: float | None
    """None where the rows have no labels."""
    table_rows: list[int]
    """Rows of each of the 26 tables: every sparse value is less."""
    transform: str = TRANSFORM
    sources: list[Source] = []
    """Files that the rows were read from, in order; empty for generated rows."""
    missing: list[int] | None = None
    """Rows in which each of the 13 integers and then of the 26 categories is missing; None where it wasn't counted."""
    vocabulary: Vocabularies | None = None
    """None where categories are hashed into their tables."""
    optimum: Optimum | None = None
    heads: list[HeadRow] | None = None
    """Of each table of synthetic rows."""
    checksum: str = ""
    """sha256 of all the above; see `checksum_of`."""


@dataclass(frozen=True)
class Split:
    """n consecutive rows as memory maps: labels float32 [n], dense float32 [n, 13], sparse int32 [n, 26]."""

    labels: NDArray[np.float32]
    dense: NDArray[np.float32]
    sparse: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Store:
    """An opened store. The arrays are read-only memory maps: nothing is loaded before it is touched."""

    path: Path
    manifest: Manifest
    _all: Split

    @property
    def train(self) -> Split:
        """Training rows.

        Raises:
            StoreError: the rows have no labels.
        """
        if not self.manifest.labelled:
            raise StoreError(f"{self.path}: holds rows without labels, which can only be predicted; train on labelled rows")
        return self._part(slice(0, self.manifest.train))

    @property
    def evaluation(self) -> Split:
        """Evaluation rows."""
        return self._part(slice(self.manifest.train, None))

    def _part(self, rows: slice) -> Split:
        return Split(self._all.labels[rows], self._all.dense[rows], self._all.sparse[rows])

    def verify(self) -> None:
        """Read all columns and compare them with the manifest's hashes.

        Raises:
            StoreError: a column or the data hash differs.
        """
        for column in self.manifest.columns.values():
            file = self.path / column.file
            if (found := sha256_of(file)) != column.sha256:
                raise _damaged(file, f"its sha256 is {found}, want {column.sha256}")
        if (vocabulary := self.manifest.vocabulary) and (found := sha256_of(self.path / VOCABULARY)) != vocabulary.sha256:
            raise _damaged(self.path / VOCABULARY, f"its sha256 is {found}, want {vocabulary.sha256}")
        if (found := data_hash(self.manifest.columns)) != self.manifest.data_hash:
            raise _damaged(self.path / MANIFEST, f"data_hash is {self.manifest.data_hash}, but the columns give {found}")


def read_vocabularies(store: Store) -> list[NDArray[np.uint32]]:
    """Each table's categories, uint32 [size], ascending: entry k has table row 2 + k.

    Raises:
        StoreError: the store's categories were hashed, or the file is damaged.
    """
    file, vocabulary = store.path / VOCABULARY, store.manifest.vocabulary
    if vocabulary is None:
        raise StoreError(f"{store.path}: has no vocabularies, since its categories were hashed")
    if sha256_of(file) != vocabulary.sha256:
        raise _damaged(file, "its sha256 isn't the manifest's")
    return np.split(np.load(file, mmap_mode="r", allow_pickle=False), np.cumsum(vocabulary.sizes)[:-1])


def open_store(path: Path) -> Store:
    """Open a store after cheap checks: manifest, file sizes, dtypes and shapes. `Store.verify` checks every byte.

    Raises:
        StoreError: missing or damaged; the message names the file and says what to do.
    """
    manifest = _read_manifest(path / MANIFEST)
    if manifest.vocabulary is not None and not (path / VOCABULARY).is_file():
        raise _damaged(path / VOCABULARY, "not found")
    labels, dense, sparse = (_map_column(path, manifest, column) for column in COLUMNS)
    return Store(path, manifest, Split(labels, dense, sparse))


def _read_manifest(file: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{file}: not found, so {file.parent} is no prepared data set; run `meshrec prepare`") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise _damaged(file, f"{where}: {first['msg']}") from None
    if (found := checksum_of(manifest)) != manifest.checksum:
        raise _damaged(file, f"checksum is {manifest.checksum!r}, but the other fields give {found!r}")
    if missing := [column for column in COLUMNS if column not in manifest.columns]:
        raise _damaged(file, f"columns: {missing} missing")
    return manifest


def _map_column(path: Path, manifest: Manifest, column: Column) -> NDArray[Any]:
    """Map one array and compare what is on disk with what the manifest says."""
    said, (dtype, row_shape) = manifest.columns[column], COLUMNS[column]
    wanted = (manifest.train + manifest.evaluation, *row_shape)
    file = path / said.file
    if said.file != f"{column}.npy" or np.dtype(said.dtype) != np.dtype(dtype) or tuple(said.shape) != wanted:
        raise _damaged(
            path / MANIFEST, f"columns.{column}: {said.file}, {said.dtype}, {said.shape}; want {dtype}, {list(wanted)}"
        )
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(file, str(error)) from None
    if array.dtype != np.dtype(dtype) or array.shape != wanted:
        raise _damaged(file, f"found {array.dtype.str} {list(array.shape)}, want {dtype} {list(wanted)}")
    expected = array.offset + math.prod(wanted) * array.itemsize
    if (size := file.stat().st_size) != expected:
        raise _damaged(file, f"{size} bytes, want {expected}")
    return np.asarray(array)  # a plain view of the map: np.memmap's own indexing is slower


def checksum_of(manifest: Manifest) -> str:
    """sha256 of a manifest's fields but for its checksum, as JSON with sorted keys."""
    said = manifest.model_dump(mode="json", exclude={"checksum"})
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def data_hash(columns: dict[Column, ColumnFile]) -> str:
    """Hash over the columns' own hashes, in `sha256sum`'s output format."""
    lines = "".join(f"{columns[column].sha256}  {columns[column].file}\n" for column in COLUMNS)
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256_of(file: Path) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _damaged(file: Path, problem: str) -> StoreError:
    return StoreError(f"{file}: {problem}; the data set is damaged: delete {file.parent} and run `meshrec prepare`")
