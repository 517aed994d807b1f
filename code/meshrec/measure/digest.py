"""Order-sensitive digests that parts held by different ranks add up to, so that identity is checked without gathering."""

import numpy as np
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]

_PART = 2**20
"""Numbers digested at once: their 64-bit working copies are eight times as large as they are."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: UInt64) -> UInt64:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection on 64 bits without visible structure."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def digest(positions: NDArray[np.integer], values: NDArray[np.integer]) -> int:
    """Sum modulo 2⁶⁴ of a mix of each value with its position: any split over ranks adds up to the same number.

    Args:
        positions: [n] position of each value in the whole, unique over all ranks.
        values: [n] integers, or the bit patterns of floats.
    """
    with np.errstate(over="ignore"):
        mixed = mix(mix(positions.astype(np.uint64)) ^ values.astype(np.uint64))
        return int(mixed.sum(dtype=np.uint64))


def digest_rows(first_position: int, rows: NDArray[np.float32]) -> int:
    """Digest of consecutive float32 numbers (any shape, C order) that start at a position of the whole."""
    bits = np.ascontiguousarray(rows, dtype=np.float32).reshape(-1).view(np.uint32)
    parts = (slice(start, min(start + _PART, bits.size)) for start in range(0, bits.size, _PART))
    return add(*(digest(np.arange(p.start, p.stop, dtype=np.uint64) + np.uint64(first_position), bits[p]) for p in parts))


def add(*digests: int) -> int:
    """Digest of a whole from the digests of its parts."""
    return sum(digests) % 2**64
