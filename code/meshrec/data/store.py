"""A columnar store: a folder of memory-mapped arrays and a manifest that says what they are and where they come from.

    label.npy      float32 [n]      0 or 1
    dense.npy      float32 [n, 13]
    sparse.npy     int32   [n, 26]  table rows
    manifest.json  see `Manifest`

Rows keep the source's order: first the training rows, then the evaluation rows.
"""

import hashlib
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


class Manifest(Closed):
    """What the arrays are, and where they come from."""

    schema_version: Literal[1] = 1
    kind: Literal["synthetic", "criteo"]
    name: str
    """`synthetic`, `criteo-kaggle` or `criteo-terabyte`."""
    settings: dict[str, Any]
    """The experiment's `dataset` section."""
    data_hash: str
    """sha256 of the text that `sha256sum label.npy dense.npy sparse.npy` prints: identity of the rows."""
    columns: dict[Column, ColumnFile]
    train: int = Field(ge=1)
    """Training rows, the first of the store."""
    evaluation: int = Field(ge=1)
    """Evaluation rows, which follow them."""
    rejected: dict[str, int] = {}
    """Reason → lines of the source that are no rows here."""
    train_click_rate: float
    evaluation_click_rate: float
    table_rows: list[int]
    """Rows of each of the 26 tables: every sparse value is less."""
    transform: str = TRANSFORM
    source: Source | None = None
    optimum: Optimum | None = None


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
        """Training rows."""
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
        if (found := data_hash(self.manifest.columns)) != self.manifest.data_hash:
            raise _damaged(self.path / MANIFEST, f"data_hash is {self.manifest.data_hash}, but the columns give {found}")


def open_store(path: Path) -> Store:
    """Open a store after cheap checks: manifest, file sizes, dtypes and shapes. `Store.verify` checks every byte.

    Raises:
        StoreError: missing or damaged; the message names the file and says what to do.
    """
    manifest = _read_manifest(path / MANIFEST)
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
