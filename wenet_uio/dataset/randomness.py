"""Counter-based randomness: a draw is a function of its key and counter only, so the order of draws
has no effect.

`key_of(seed, epoch)` is the key of an epoch. Draws for a sample depend on this key and on the hash
of the key of the sample. The plan makes these draws: speed and augmentation of a sample are the
same on any rank and worker, and after any resume.
"""

from __future__ import annotations

import numpy as np

U64 = np.uint64
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
ROUNDS = 6
"""Rounds of the Feistel network. Two rounds leave regular patterns; four or more look random."""
SHUFFLE, SPEED, PLACE, BLOCK, ROW, PHASE, AUGMENTATION = range(7)
"""Purposes of the draws of a plan; the purpose is a part of the key."""


def mix(values: np.ndarray) -> np.ndarray:
    """Apply the finaliser of SplitMix64: a bijection of 64-bit integers that looks random (Steele et
    al., OOPSLA 2014).
    """
    values = values.astype(U64, copy=False) + U64(GOLDEN)
    values = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> U64(27))) * U64(0x94D049BB133111EB)

    return values ^ (values >> U64(31))


def key_of(*parts: int) -> int:
    """Return 64-bit key of a tuple of integers, such as (seed, epoch, purpose)."""
    key = 0
    for part in parts:
        key = int(mix(np.array([(key ^ part) & MASK], dtype=U64))[0])
    return key


def draw(key: int, counters: np.ndarray) -> np.ndarray:
    """Draw uniform 64-bit integers, one for each counter."""
    return mix(counters.astype(U64, copy=False) ^ U64(key))


def uniform(key: int, counters: np.ndarray) -> np.ndarray:
    """Draw uniform float64 in [0, 1), one for each counter."""
    return (draw(key, counters) >> U64(11)) * 2.0**-53


class Permutation:
    """Keyed permutation of range(size) without a table: a Feistel network with cycle walking."""

    def __init__(self, size: int, key: int) -> None:
        bits = max(2, (size - 1).bit_length())
        self._half = U64((bits + 1) // 2)
        self._mask = U64((1 << ((bits + 1) // 2)) - 1)
        self._size = U64(size)
        self._keys = [U64(key_of(key, number)) for number in range(ROUNDS)]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the new position of each position, int64."""
        values = self._rounds(positions.astype(U64))
        # The network permutes up to four times `size` values: walk on from those outside.
        outside = np.flatnonzero(values >= self._size)
        while len(outside):
            values[outside] = self._rounds(values[outside])
            outside = outside[values[outside] >= self._size]

        return values.astype(np.int64)

    def _rounds(self, values: np.ndarray) -> np.ndarray:
        """Permute the values of two halves of bits, by the rounds of the Feistel network."""
        high, low = values >> self._half, values & self._mask
        for key in self._keys:
            high, low = low, high ^ (mix(low + key) & self._mask)
        return (high << self._half) | low
