"""Counter-based randomness: every draw is a function of its key, so no order of work can change it."""

from __future__ import annotations

import numpy as np

U64 = np.uint64
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
ROUNDS = 6
"""Of the Feistel network; two look regular, four and more look random."""
SHUFFLE, SPEED, PLACE, BLOCK, ROW, PHASE, AUGMENTATION = range(7)
"""What a number is drawn for in a plan."""


def mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64-bit integers that looks random (Steele et al., OOPSLA 2014)."""
    values = values.astype(U64, copy=True)
    values += U64(GOLDEN)
    values = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> U64(27))) * U64(0x94D049BB133111EB)
    return values ^ (values >> U64(31))


def key_of(*parts: int) -> int:
    """64-bit key of a tuple of integers, such as (seed, epoch, purpose)."""
    key = 0
    for part in parts:
        key = int(mix(np.array([(key ^ part) & MASK], dtype=U64))[0])
    return key


def draw(key: int, counters: np.ndarray) -> np.ndarray:
    """Uniform 64-bit integers, one a counter."""
    return mix(counters.astype(U64, copy=False) ^ U64(key))


def uniform(key: int, counters: np.ndarray) -> np.ndarray:
    """Uniform float64 in [0, 1), one a counter."""
    return (draw(key, counters) >> U64(11)) * 2.0**-53


class Permutation:
    """Keyed permutation of range(size) that needs no memory: a Feistel network with cycle walking."""

    def __init__(self, size: int, key: int) -> None:
        bits = max(2, (size - 1).bit_length())
        self._half = U64((bits + 1) // 2)
        self._mask = U64((1 << ((bits + 1) // 2)) - 1)
        self._size = U64(size)
        self._keys = [U64(key_of(key, number)) for number in range(ROUNDS)]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Where each position goes, int64."""
        values = self._rounds(positions.astype(U64))
        outside = np.flatnonzero(values >= self._size)
        while len(outside):
            values[outside] = self._rounds(values[outside])
            outside = outside[values[outside] >= self._size]
        return values.astype(np.int64)

    def _rounds(self, values: np.ndarray) -> np.ndarray:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix(right + key) & self._mask)
        return (left << self._half) | right
