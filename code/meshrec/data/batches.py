"""Which rank sees which rows in which step: training in a seeded order, evaluation in row order."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshrec.data.order import Order, require_rows, sample_order
from meshrec.data.store import Split
from meshrec.measure.digest import digest

__all__ = ["Batch", "EvaluationBatches", "RankBatches", "gather", "sample_order"]


@dataclass(frozen=True)
class Batch:
    """A rank's b samples of a step: dense float32 [b, 13], sparse int32 [b, 26], labels float32 [b]."""

    dense: NDArray[np.float32]
    sparse: NDArray[np.int32]
    labels: NDArray[np.float32]


def gather(split: Split, rows: NDArray[np.int64]) -> Batch:
    """Copy rows [b] out of the memory maps, in the given order."""
    return Batch(split.dense.take(rows, axis=0), split.sparse.take(rows, axis=0), split.labels.take(rows))


class RankBatches:
    """One rank's part of one pass: its contiguous slice of each global batch, as `Batch`es of global_batch / ranks samples."""

    def __init__(self, split: Split, order: Order, global_batch: int, rank: int, ranks: int) -> None:
        """Rows `order` [samples] of the split, global_batch of them in a step over all ranks.

        Raises:
            ValueError: the samples aren't whole global batches, these aren't whole rank batches, or a row isn't in the split.
        """
        _check_rank(rank, ranks)
        if global_batch < 1 or global_batch % ranks:
            raise ValueError(f"global batch {global_batch}: want a positive multiple of {ranks} ranks")
        if len(order) == 0 or len(order) % global_batch:
            raise ValueError(f"{len(order)} samples in the order: want a positive multiple of the global batch {global_batch}")
        require_rows(order, len(split))
        self._split = split
        self._order = order
        self._global_batch = global_batch
        self._rank_batch = global_batch // ranks
        self._rank = rank
        self._digest: int | None = None

    def __len__(self) -> int:
        """Steps."""
        return len(self._order) // self._global_batch

    def __iter__(self) -> Iterator[Batch]:
        return self.served_from(0)

    def served_from(self, first: int) -> Iterator[Batch]:
        """Batches of the steps from `first` on; those before count as served."""
        self._digest = None
        served = 0
        for step in range(len(self)):
            start = step * self._global_batch + self._rank * self._rank_batch
            rows = np.asarray(self._order[start : start + self._rank_batch])
            served += digest(np.arange(start, start + self._rank_batch), rows)
            if step == len(self) - 1:  # before the yield: who counts the steps never asks for one more
                self._digest = served % 2**64
            if step >= first:
                yield gather(self._split, rows)

    @property
    def order_digest(self) -> int:
        """Digest of (position in the pass, row) over what this rank was served: 0 ≤ digest < 2⁶⁴.

        The ranks' digests, added modulo 2⁶⁴, are the same for every number of ranks and every global batch, and differ as soon
        as two samples change places.

        Raises:
            RuntimeError: the last pass was not finished.
        """
        if self._digest is None:
            raise RuntimeError("the order digest is known only after a whole pass over the batches")
        return self._digest


class EvaluationBatches:
    """One rank's part of the evaluation: every row on exactly one rank, equally many equal batches on all ranks.

    A step covers the next ranks · b rows, b = max(1, batch // ranks); rank r takes the r-th b of them. Past the last row, a
    batch is padded with copies of that row, whose predictions `in_row_order` drops: the exchanges need all ranks in all steps.
    """

    def __init__(self, split: Split, batch: int, rank: int, ranks: int) -> None:
        """Evaluate the split with at most `batch` samples in a step over all ranks (or one a rank, if that is more).

        Raises:
            ValueError: no row, no batch, or no such rank.
        """
        _check_rank(rank, ranks)
        if len(split) == 0 or batch < 1:
            raise ValueError(f"{len(split)} evaluation rows in batches of {batch}: want at least one of each")
        self._split = split
        self._ranks = ranks
        self._rank = rank
        self._rank_batch = max(1, batch // ranks)

    def __len__(self) -> int:
        """Steps, the same on every rank."""
        return math.ceil(len(self._split) / (self._rank_batch * self._ranks))

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._rows(self._rank).reshape(len(self), self._rank_batch):
            yield gather(self._split, np.minimum(rows, len(self._split) - 1))

    def in_row_order(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Put together what the ranks computed: one array [steps · b] for each rank, in its own order, becomes one [rows].

        Raises:
            ValueError: not one array of that length for each rank.
        """
        wanted = (len(self) * self._rank_batch,)
        if len(values) != self._ranks or any(part.shape != wanted for part in values):
            raise ValueError(f"found {[part.shape for part in values]}: want {self._ranks} arrays of shape {wanted}")
        everything = np.empty(wanted[0] * self._ranks, np.result_type(*values))
        for rank, part in enumerate(values):
            everything[self._rows(rank)] = part
        return everything[: len(self._split)]

    def _rows(self, rank: int) -> NDArray[np.int64]:
        """Row of each of a rank's samples, int64 [steps · b]; padding has rows past the last one."""
        return np.arange(len(self) * self._ranks * self._rank_batch).reshape(len(self), self._ranks, -1)[:, rank].ravel()


def _check_rank(rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} ranks: want 0 ≤ rank < ranks")
