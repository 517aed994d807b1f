"""Digests add up over any split, and no value may change or move unseen."""

import numpy as np
import pytest

import meshrec.measure.digest as module
from meshrec.measure.digest import add, digest, digest_rows, mix

VALUES = np.random.default_rng(0).standard_normal(60).astype(np.float32)


def test_mix_is_splitmix64():
    """First outputs of the published generator from states 0 and 1234567."""
    assert mix(np.array([0, 1234567], np.uint64)).tolist() == [0xE220A8397B1DCDAF, 6457827717110365317]


@pytest.mark.parametrize("cuts", [[30], [1, 59], [7, 8, 20, 41]])
def test_parts_add_up_to_the_whole_in_any_order(cuts: list[int]):
    starts = [0, *cuts]
    parts = [digest_rows(start, part) for start, part in zip(starts, np.split(VALUES, cuts), strict=True)]
    assert add(*parts) == add(*reversed(parts)) == digest_rows(0, VALUES)


def test_interleaved_parts_add_up_too():
    positions, values = np.arange(10), np.arange(10) ** 2
    assert add(digest(positions[::2], values[::2]), digest(positions[1::2], values[1::2])) == digest(positions, values)


def test_sums_wrap_at_64_bits():
    assert add(2**63, 2**63) == 0
    assert add(2**64 - 1, 3) == 2
    assert add() == 0
    assert 0 <= digest_rows(0, VALUES) < 2**64


@pytest.mark.parametrize("at", [0, 31, 59])
def test_the_last_bit_of_any_value_counts(at: int):
    other = VALUES.copy()
    other[at] = np.nextafter(other[at], np.float32(np.inf))
    assert digest_rows(0, other) != digest_rows(0, VALUES)


def test_the_sign_of_zero_counts():
    assert digest_rows(0, np.array([0.0], np.float32)) != digest_rows(0, np.array([-0.0], np.float32))


def test_positions_count():
    swapped = VALUES.copy()
    swapped[[3, 40]] = VALUES[[40, 3]]
    assert digest_rows(0, swapped) != digest_rows(0, VALUES)
    assert digest_rows(1, VALUES) != digest_rows(0, VALUES)


def test_a_value_is_no_position():
    assert digest(np.array([5]), np.array([9])) != digest(np.array([9]), np.array([5]))
    assert digest(np.array([5]), np.array([5])) != digest(np.array([9]), np.array([9]))


def test_two_equal_values_do_not_cancel():
    assert digest(np.array([0, 1]), np.array([7, 7])) != digest(np.array([2, 3]), np.array([7, 7])) != 0


def test_rows_are_read_in_c_order_whatever_their_strides():
    rows = VALUES.reshape(15, 4)
    assert digest_rows(8, rows) == digest_rows(8, np.asfortranarray(rows)) == digest_rows(8, VALUES)
    assert digest_rows(8, rows.T) != digest_rows(8, rows)


@pytest.mark.parametrize("part", [1, 7, 20, 59, 60])
def test_the_size_of_the_parts_that_are_worked_on_does_not_matter(monkeypatch: pytest.MonkeyPatch, part: int):
    whole = digest_rows(11, VALUES)
    monkeypatch.setattr(module, "_PART", part)
    assert digest_rows(11, VALUES) == whole
    assert whole == digest(np.arange(11, 71), VALUES.view(np.uint32))


def test_no_rows_add_nothing():
    assert digest_rows(5, np.empty((0, 4), np.float32)) == 0
