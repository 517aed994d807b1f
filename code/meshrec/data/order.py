"""The order in which training samples are seen: a permutation that depends on their number and the seed alone.

Up to 2²⁴ samples the permutation is drawn at once. More would take 8 bytes each on every rank (35 GB for Criteo Terabyte), and
would read rows all over a store that no memory holds. There the rows are shuffled in two steps, of which only one part is ever
in memory: blocks of 16,384 neighbouring rows are shuffled over the whole set, and the rows of each 256 blocks that then follow
one another are shuffled among themselves. A window is 4.2 million samples: 34 MB of order and 0.7 GB of rows, which are read
block by block.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_AT_ONCE = 1 << 24
"""Samples that are permuted at once. Part of the order's definition, as are the two below."""
BLOCK_ROWS = 1 << 14
WINDOW_BLOCKS = 256
_ORDER_STREAM = 0x5A3D
"""Keeps sample orders apart from other uses of the same seed."""


class BlockShuffle:
    """A permutation of range(samples), or a part of it, that is computed where it is looked at.

    `order[a:b]` is a part and costs nothing; `np.asarray(part)` are its rows, int64. Parts share one window's rows.
    """

    def __init__(self, samples: int, seed: int) -> None:
        self.samples = samples
        """Rows permuted: every row is less."""
        self._start, self._stop = 0, samples
        self._window_rows = BLOCK_ROWS * WINDOW_BLOCKS
        whole = samples // BLOCK_ROWS
        blocks = _rng(seed, samples).permutation(whole)

        @lru_cache(maxsize=2)  # a batch may lie across two windows
        def window(number: int) -> NDArray[np.int64]:
            chosen = blocks[number * WINDOW_BLOCKS : (number + 1) * WINDOW_BLOCKS]
            rows = (chosen[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
            if (number + 1) * WINDOW_BLOCKS > whole:  # the last one; it has the rows that make no whole block
                rows = np.append(rows, np.arange(whole * BLOCK_ROWS, samples))
            return _rng(seed, samples, number).permutation(rows)

        self._window = window

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, part: slice) -> "BlockShuffle":
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"step {step}: want consecutive samples")
        view = object.__new__(BlockShuffle)
        view.__dict__.update(self.__dict__)
        view._start, view._stop = self._start + start, self._start + max(start, stop)
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        parts, at = [], self._start
        while at < self._stop:
            number = at // self._window_rows
            first = number * self._window_rows
            parts.append(self._window(number)[at - first : min(self._stop, first + self._window_rows) - first])
            at = first + self._window_rows
        rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return rows.astype(dtype or np.int64, copy=False)


Order = NDArray[np.int64] | BlockShuffle
"""What `sample_order` gives, or an array of rows in any order."""


def sample_order(samples: int, seed: int) -> Order:
    """A permutation of range(samples) that depends on these two numbers alone and not on ranks or layout."""
    if samples > MOST_AT_ONCE:
        return BlockShuffle(samples, seed)
    return _rng(seed).permutation(samples).astype(np.int64, copy=False)


def require_rows(order: Order, rows: int) -> None:
    """Refuse an order of rows that aren't there.

    Raises:
        ValueError: a row isn't one of 0 … rows − 1.
    """
    if isinstance(order, BlockShuffle):
        lowest, highest = 0, order.samples - 1
    else:
        lowest, highest = int(order.min()), int(order.max())
    if lowest < 0 or highest >= rows:
        raise ValueError(f"the order names rows {lowest} … {highest}: want 0 … {rows - 1}")


def _rng(seed: int, *stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((_ORDER_STREAM, seed, *stream))))
