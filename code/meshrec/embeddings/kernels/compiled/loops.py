"""Loops over ids, compiled for one number of columns D.

Rows of a shard are found by marking their bits in a map, which then lists them once each and in ascending order: nothing is
sorted. Gradients are summed in a buffer of one shard's distinct rows, which stays in the cache, and the rows are then changed
in the order in which they lie in memory. Rows needed soon are fetched beforehand.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np

from meshrec.data.compiled import compiled
from meshrec.embeddings.kernels.compiled.parts import AHEAD, accumulate, change_rows, list_marked, mark, place_of
from meshrec.embeddings.kernels.compiled.rows import load, pointer, prefetch_row, store, zeros


@dataclass(frozen=True)
class Loops:
    """Compiled functions. Arrays are C-contiguous; those that an optimizer doesn't have are empty.

    * ids [C, B] int32; gradients and pooled [B, S·D] float32;
    * shards [S, 4] int64: first row and number of rows in the table, first row in the buffer, hots;
    * live: weights [rows, D], moments [rows], lagged moments [rows], velocity [rows, D], density [rows, 4];
    * rule: number of the optimizer, whether moments lag, then float32 lr, ε, first moment, β, and float64 M, past updates;
    * marks: `Scratch.marks`; sums: `Scratch.sums`, or the same arrays for the result.
    """

    lookup: Callable[..., None]
    """ids, shards, weights, pooled (written)."""
    update: Callable[..., None]
    """ids, shards, gradients, live (changed), rule, marks, rows (scratch), sums (scratch)."""
    sum: Callable[..., None]
    """ids, shards, gradients, rows [n] ascending, slots (scratch), sums (written)."""
    apply: Callable[..., None]
    """rows [n], sums, mean squares [n] or [0], live (changed), rule."""


@cache
def compiled_loops(dim: int) -> Loops:
    """Loops for rows of D numbers; compiled at their first call, and kept on disk where that works."""
    return Loops(*(_compiled(make(dim), dim) for make in (_lookup_loop, _update_loop, _sum_loop, _apply_loop)))


def _lookup_loop(dim: int) -> Callable[..., None]:
    def lookup(ids, shards, weights, pooled):  # type: ignore[no-untyped-def]
        samples, count, left = ids.shape[1], shards.shape[0], 0
        weights, pooled = pointer(weights), pointer(pooled)
        for s in range(count):
            left, right, start, held, first = place_of(shards, s, left)
            for b in range(samples):
                row = zeros(dim)
                for column in range(left, right):
                    ahead = np.int64(ids[column, min(b + AHEAD, samples - 1)]) - start
                    if 0 <= ahead < held:
                        prefetch_row(weights, first + ahead, row)
                    local = np.int64(ids[column, b]) - start
                    if 0 <= local < held:
                        row = row + load(weights, first + local, row)
                store(pooled, b * count + s, row)
            left = right

    return lookup


def _update_loop(dim: int) -> Callable[..., None]:
    def update(ids, shards, gradients, live, rule, marks, rows, sums):  # type: ignore[no-untyped-def]
        zero = zeros(dim)
        left, every = 0, np.empty(0, np.float32)
        for s in range(shards.shape[0]):
            place = place_of(shards, s, left)
            mark(ids, place, marks)
            count = list_marked(place, marks, rows, 0)
            for i in range(count):
                store(pointer(sums[0]), i, zero)
            sums[1][:count] = 0
            sums[2][:count] = 0
            accumulate(ids, place, gradients, (s, shards.shape[0]), marks[2], 0, sums, zero)
            change_rows(rows, count, sums, every, live, rule, zero)
            left = place[1]

    return update


def _sum_loop(dim: int) -> Callable[..., None]:
    def sum_by_row(ids, shards, gradients, rows, slots, sums):  # type: ignore[no-untyped-def]
        zero = zeros(dim)
        left = before = 0
        for s in range(shards.shape[0]):
            place = place_of(shards, s, left)
            count = 0
            while before + count < rows.size and rows[before + count] < place[4] + place[3]:
                slots[rows[before + count] - place[4]] = count
                count += 1
            accumulate(ids, place, gradients, (s, shards.shape[0]), slots, before, sums, zero)
            before += count
            left = place[1]

    return sum_by_row


def _apply_loop(dim: int) -> Callable[..., None]:
    def apply(rows, sums, mean_squares, live, rule):  # type: ignore[no-untyped-def]
        change_rows(rows, rows.size, sums, mean_squares, live, rule, zeros(dim))

    return apply


def _touched(ids, shards, marks, rows):  # type: ignore[no-untyped-def]
    count = left = 0
    for s in range(shards.shape[0]):
        place = place_of(shards, s, left)
        mark(ids, place, marks)
        count = list_marked(place, marks, rows, count)
        left = place[1]
    return count


@cache
def compiled_touched() -> Callable[..., int]:
    """Of ids, shards, marks, rows (written): how many distinct rows they ask for; see `Loops`."""
    return _compiled(_touched, 0)


def _compiled(function: Callable[..., Any], dim: int) -> Callable[..., Any]:
    """Compile a loop under a name of its own, after which numba names its files on disk.

    Numba finds cached code by name, and numbers the files behind a name: two processes that write different code under the
    same name at the same time could each load the other's. It doesn't look at the files that a loop is inlined from, either.
    """
    function.__qualname__ = f"{function.__name__.strip('_')}_{dim}_{_fingerprint()}"
    return compiled(function, error_model="numpy")


@cache
def _fingerprint() -> str:
    """Hash of this package's source and of the processor that code is compiled for."""
    parts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return hashlib.sha256(b"".join([*parts, processor.encode()])).hexdigest()[:12]
