"""Prepared columns: what one row holds, and the transforms that all sources share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MISSING_DENSE = -1.0
"""A missing count after the transform. log1p(max(x, 0)) is never negative, so missing stays apart from zero."""
MISSING_ROW = 0
"""Table row of a missing category."""
FIRST_OWN_ROW = 2
"""Table row of a vocabulary's first category. Row 1 is shared by all that the vocabulary doesn't have."""
_TRANSFORM_DENSE = "dense: log1p(max(count, 0)) as float32, missing = -1; "
TRANSFORM = (
    _TRANSFORM_DENSE
    + "sparse: table row as int32, missing = 0, else 1 + value mod (rows - 1) with value the category as an unsigned number"
)
VOCABULARY_TRANSFORM = (
    _TRANSFORM_DENSE + "sparse: table row as int32, missing = 0, else 2 + place in the table's vocabulary, not in it = 1"
)


class DataError(ValueError):
    """Data that can't be used. The message names the file and the line or field, and says what to do."""


@dataclass(frozen=True)
class Rows:
    """A batch of n rows: labels float32 [n] of 0 and 1, dense float32 [n, 13], sparse int32 [n, 26] of table rows."""

    labels: NDArray[np.float32]
    dense: NDArray[np.float32]
    sparse: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> "Rows":
        return Rows(self.labels[part], self.dense[part], self.sparse[part])


def transform_counts(counts: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Counts [n, 13] → dense columns float32 [n, 13]. Negative counts are clamped to 0, since log1p has no value below −1."""
    # float64 until the end: log1p of a float32 would round large counts twice
    logs = np.log1p(np.maximum(counts, 0)).astype(np.float32)
    logs[missing] = MISSING_DENSE
    return logs


def transform_categories(values: NDArray[np.int64], missing: NDArray[np.bool_], table_rows: list[int]) -> NDArray[np.int32]:
    """Category values 0 … 2³² − 1 [n, 26] → table rows int32 [n, 26]: row 0 if missing, else 1 + value mod (rows − 1).

    The values of Criteo's files are hashes already, so that the remainder spreads them evenly over the table.
    """
    ids = np.asarray(table_rows, dtype=np.int64) - 1
    rows = (1 + values % ids).astype(np.int32)
    rows[missing] = MISSING_ROW
    return rows
