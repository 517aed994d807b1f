"""Parts of the loops: each is inlined where it is called, with the row type that a loop brings. Arguments are `Loops`'."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from meshrec.embeddings.kernels.compiled.rows import load, lowest_bit, pointer, prefetch, prefetch_row, store, total

AHEAD = 16
"""Iterations from the fetching of a row to its use."""
SGD, ROWWISE, MOMENTUM, DENSITY = range(4)

_ONE, _SIX, _LOW = np.uint64(1), np.uint64(6), np.uint64(63)
_FLOAT = np.float32


def _inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    return numba.njit(inline="always", error_model="numpy")(function)


@_inlined
def place_of(shards, s, left):  # type: ignore[no-untyped-def]
    """A shard's first id column and the one behind its last, first row in the table, number of rows, first row here."""
    return left, left + shards[s, 3], shards[s, 0], shards[s, 1], shards[s, 2]


@_inlined
def mark(ids, place, marks):  # type: ignore[no-untyped-def]
    """Set the bits of a shard's rows that ids [C, B] ask for."""
    left, right, start, held, _ = place
    bits, words, _ = marks
    for column in range(left, right):
        for b in range(ids.shape[1]):
            row = np.int64(ids[column, b]) - start
            if 0 <= row < held:
                word = np.uint64(row) >> _SIX
                bits[word] |= _ONE << (np.uint64(row) & _LOW)
                words[word >> _SIX] |= _ONE << (word & _LOW)


@_inlined
def list_marked(place, marks, rows, count):  # type: ignore[no-untyped-def]
    """Write marked rows, as rows of the buffer, behind the `count` that are there, and number them from 0; clears the marks."""
    _, _, _, held, first = place
    bits, words, slots = marks
    slot = np.int32(0)
    for group in range((held + 4095) >> 12):
        while words[group]:
            word = (np.uint64(group) << _SIX) + lowest_bit(words[group])
            words[group] &= words[group] - _ONE
            left = bits[word]
            bits[word] = np.uint64(0)
            while left:
                row = np.int64((word << _SIX) + lowest_bit(left))
                left &= left - _ONE
                slots[row] = slot
                rows[count + slot] = first + row
                slot += np.int32(1)
    return count + slot


@_inlined
def accumulate(ids, place, gradients, part, slots, before, sums, zero):  # type: ignore[no-untyped-def]
    """Add a shard's gradients to those of their rows, with statistics where there is room.

    Args:
        ids: [C, B].
        place: of the shard.
        gradients: [B, S·D].
        part: the shard's number and S.
        slots: numbers of the shard's rows.
        before: where the sum of the row of number 0 is.
        sums: gradients [n, D], hits and squares [n] or [0].
        zero: a row of D.
    """
    left, right, start, held, _ = place
    shard, shards = part
    totals, hits, squares = pointer(sums[0]), pointer(sums[1]), pointer(sums[2])
    gradients, slots, statistics, samples = pointer(gradients), pointer(slots), sums[1].size > 0, ids.shape[1]
    for b in range(samples):
        prefetch_row(gradients, min(b + AHEAD, samples - 1) * shards + shard, zero)
        gradient = load(gradients, b * shards + shard, zero)
        for column in range(left, right):
            row = np.int64(ids[column, b]) - start
            if 0 <= row < held:
                slot = before + np.int64(slots[row])
                store(totals, slot, load(totals, slot, zero) + gradient)
                if statistics:
                    hits[slot] += _FLOAT(1)
                    squares[slot] += total(gradient * gradient)


@_inlined
def _density_scale(density, row, replicas, updates):  # type: ignore[no-untyped-def]
    """√c of a row from its past; see `RowOptimizer`."""
    of_pairs, pairs = np.float64(density[4 * row]), np.float64(density[4 * row + 1])
    squares, hits = np.float64(density[4 * row + 2]), np.float64(density[4 * row + 3])
    share = 0.0
    if pairs > 0 and squares > 0:
        share = min(max((of_pairs / pairs) / (squares / hits), 0.0), 1.0)
    signal = share * replicas * hits / max(1.0, updates)
    return np.sqrt((signal + replicas) / (signal + 1.0))


@_inlined
def _prefetch_state(row, state, kind, zero):  # type: ignore[no-untyped-def]
    weights, moments, _, velocity, density = state
    prefetch_row(weights, row, zero)
    if kind != SGD:
        prefetch(moments, row)
    if kind == MOMENTUM:
        prefetch_row(velocity, row, zero)
    if kind == DENSITY:
        prefetch(density, 4 * row)


@_inlined
def _change(row, gradient, mean_square, hits, squares, live, rule):  # type: ignore[no-untyped-def]
    """One row's update by its summed gradient, as `RowOptimizer` defines it."""
    weights, moments, lagged_moments, velocity, density = live
    kind, lagged, lr, eps, first_moment, beta, replicas, updates = rule
    step = lr
    if kind != SGD:
        moment = moments[row] + mean_square
        moments[row] = moment
        if lagged and lagged_moments[row] > first_moment:
            moment = lagged_moments[row]
        root = np.sqrt(moment)
        if kind == MOMENTUM:
            gradient = load(velocity, row, gradient) * beta + gradient
            store(velocity, row, gradient)
        if kind == DENSITY:
            root = _FLOAT(root / _density_scale(density, row, replicas, updates))
            density[4 * row] += total(gradient * gradient) - squares
            density[4 * row + 1] += hits * (hits - _FLOAT(1))
            density[4 * row + 2] += squares
            density[4 * row + 3] += hits
        step = lr / (root + eps)
    store(weights, row, load(weights, row, gradient) - gradient * step)


@_inlined
def change_rows(rows, count, sums, mean_squares, live, rule, zero):  # type: ignore[no-untyped-def]
    """Update distinct rows."""
    totals, hits, squares = pointer(sums[0]), pointer(sums[1]), pointer(sums[2])
    state = (pointer(live[0]), pointer(live[1]), pointer(live[2]), pointer(live[3]), pointer(live[4]))
    rows, given_squares, dim = pointer(rows), pointer(mean_squares), _FLOAT(sums[0].shape[1])
    statistics, given = sums[1].size > 0, mean_squares.size > 0
    for i in range(count):
        _prefetch_state(rows[min(i + AHEAD, count - 1)], state, rule[0], zero)
        gradient = load(totals, i, zero)
        mean_square = given_squares[i] if given else total(gradient * gradient) / dim
        k, square = (hits[i], squares[i]) if statistics else (_FLOAT(0), _FLOAT(0))
        _change(rows[i], gradient, mean_square, k, square, state, rule)
