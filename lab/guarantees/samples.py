"""The samples of the trials: a key, a length in frames, and a source. Standard library only."""

from __future__ import annotations

import random
from dataclasses import dataclass

SHORTEST, LONGEST = 20, 160
"""Lengths in frames, uniformly distributed."""
SAMPLES_OF_A_SHARD = 20
"""In formats that have shards or chunks. Small, so that 8 ranks with 2 workers each have a
shard."""


@dataclass(frozen=True)
class Sample:
    """One sample. Adapters store it in the format of their project."""

    key: str
    length: int
    """Frames. Batches are padded to their longest sample."""

    def content(self) -> bytes:
        """Return the payload: one byte for each frame."""
        return bytes(self.length)


def make_samples(source: str, number: int) -> list[Sample]:
    """Return the samples of a source; equal arguments give equal samples."""
    draw = random.Random(source)
    return [
        Sample(f"{source}{index:07d}", draw.randint(SHORTEST, LONGEST)) for index in range(number)
    ]


def shards(samples: list[Sample], size: int = SAMPLES_OF_A_SHARD) -> list[list[Sample]]:
    """Return the samples in runs of `size`.

    There are at most 1000 runs, so that a large corpus has larger shards.
    """
    size = max(size, -(-len(samples) // 1000))
    return [samples[first : first + size] for first in range(0, len(samples), size)]
