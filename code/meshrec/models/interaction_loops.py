"""The dot interaction's loops over samples, compiled by numba for one number of vectors and one dimension.

Both directions are a small matrix product for each sample whose second factor has the V vectors as columns: sums stay in
registers, and a vector instruction does many columns at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from meshrec.data.compiled import compiled

LANES = 16
"""Columns of scratch rows are padded to a multiple of it, so that compiled loops have no remainder."""

FASTMATH = {"contract", "reassoc", "nsz"}
"""Sums may be reordered and fused with products, as matrix libraries do; NaN and infinity keep their meaning."""


@dataclass(frozen=True)
class Loops:
    """Compiled functions of C-contiguous arrays of one float type; K is any number of columns ≥ D + V(V−1)/2."""

    forward: Callable[..., None]
    """first [b, D], others [b, (V−1)·D], output [b, K] (written: first, products of pairs, zeros)."""
    backward: Callable[..., None]
    """gradient [b, K], first, others, to_first [b, D] (written), to_others [b, (V−1)·D] (written)."""


@cache
def compiled_loops(vectors: int, dim: int) -> Loops:
    """Loops for V vectors of D numbers, D a multiple of 4; compiled at their first call, and kept on disk where that works."""
    return Loops(*(_named(make(vectors, dim), vectors, dim) for make in (_forward_loop, _backward_loop)))


def _named(loop: Callable[..., None], vectors: int, dim: int) -> Callable[..., None]:
    """Compile under a name of its own: numba finds cached code by name, and processes that write different code under one name
    at the same time could load each other's."""
    loop.__qualname__ = f"{loop.__name__}_{vectors}_{dim}"
    return compiled(loop, fastmath=FASTMATH)


def _forward_loop(vectors: int, dim: int) -> Callable[..., None]:
    width = -(-vectors // LANES) * LANES
    chunk = next(size for size in (16, 8, 4) if dim % size == 0)  # products in one sum: it is written out by the compiler
    outputs = dim + vectors * (vectors - 1) // 2

    def forward(first, others, output):  # type: ignore[no-untyped-def]
        columns = np.zeros((dim, width), first.dtype)
        row = np.zeros(outputs + width, first.dtype)  # a row of products is written whole; the next one covers its end
        for n in range(first.shape[0]):
            for d in range(dim):
                row[d] = columns[d, 0] = first[n, d]
            for i in range(vectors - 1):
                for d in range(dim):
                    columns[d, i + 1] = others[n, i * dim + d]
            start = dim
            for i in range(1, vectors):
                left = (i - 1) * dim
                for j in range(width):
                    total = others[n, left] * columns[0, j]
                    for d in range(1, chunk):
                        total += others[n, left + d] * columns[d, j]
                    row[start + j] = total
                for c in range(chunk, dim, chunk):
                    for j in range(width):
                        total = row[start + j]
                        for d in range(c, c + chunk):
                            total += others[n, left + d] * columns[d, j]
                        row[start + j] = total
                start += i
            for k in range(outputs):
                output[n, k] = row[k]
            for k in range(outputs, output.shape[1]):
                output[n, k] = 0

    return forward


def _backward_loop(vectors: int, dim: int) -> Callable[..., None]:
    width = -(-vectors // LANES) * LANES

    def backward(gradient, first, others, to_first, to_others):  # type: ignore[no-untyped-def]
        symmetric = np.zeros((vectors, width), first.dtype)  # of each pair; the diagonal stays zero
        sums = np.empty((dim, width), first.dtype)
        for n in range(first.shape[0]):
            start = dim
            for i in range(1, vectors):
                for j in range(i):
                    symmetric[i, j] = symmetric[j, i] = gradient[n, start + j]
                start += i
            for d in range(dim):
                for i in range(width):
                    total = first[n, d] * symmetric[0, i]
                    for j in range(1, vectors):
                        total += others[n, (j - 1) * dim + d] * symmetric[j, i]
                    sums[d, i] = total
            for d in range(dim):
                to_first[n, d] = gradient[n, d] + sums[d, 0]
            for i in range(1, vectors):
                for d in range(dim):
                    to_others[n, (i - 1) * dim + d] = sums[d, i]

    return backward
