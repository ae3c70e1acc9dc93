"""Parts of a plan: batches, and the pieces that a batch above the bound is split into."""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Piece:
    """Samples that the model processes together, sorted by length. All arrays are (samples,)."""

    shards: np.ndarray
    """int32: shard of each sample in the corpus of the pass."""
    rows: np.ndarray
    """int32: row of each sample in its shard."""
    speeds: np.ndarray
    """float32: 1.1 is 10 % faster."""
    frames: np.ndarray
    """int32: frames of features at that speed."""
    units: np.ndarray
    """int64: units of the batch policy."""
    buckets: np.ndarray
    """int32. Samples of different buckets share no piece; NO_BUCKET may share a piece with all."""
    seeds: np.ndarray
    """uint64: seed of all random draws for a sample while it is read."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | np.ndarray) -> Piece:
        # by name: a plan cuts thousands of pieces, and `fields` takes longer than the slices
        return Piece(
            self.shards[chosen],
            self.rows[chosen],
            self.speeds[chosen],
            self.frames[chosen],
            self.units[chosen],
            self.buckets[chosen],
            self.seeds[chosen],
        )

    @property
    def cost(self) -> int:
        """Padded cost in units of the policy."""
        return len(self) * int(self.units.max(initial=0))

    @property
    def padded_frames(self) -> int:
        """Frames of the padded features."""
        return len(self) * int(self.frames.max(initial=0))


Pieces = tuple[Piece, ...]
"""The pieces of one batch: several if the whole batch would exceed the bound."""


class Batches:
    """Consecutive batches, stored in a few arrays: one object per piece would take more memory than
    its samples.
    """

    def __init__(self, batches: Sequence[Pieces]) -> None:
        pieces = [piece for batch in batches for piece in batch]
        columns = [[getattr(piece, field.name) for piece in pieces] for field in fields(Piece)]
        self._samples = Piece(
            *(np.concatenate(column) if column else np.empty(0, int) for column in columns)
        )
        self._samples_before = np.cumsum([0, *map(len, pieces)])
        """(pieces + 1,) number of samples before each piece; the last counts all."""
        self._pieces_before = np.cumsum([0, *map(len, batches)])
        """(batches + 1,) number of pieces before each batch; the last counts all."""

    def __len__(self) -> int:
        return len(self._pieces_before) - 1

    def __getitem__(self, number: int) -> Pieces:
        if not 0 <= number < len(self):
            raise IndexError(number)
        first_piece, end = self._pieces_before[number : number + 2]
        edges = self._samples_before[first_piece : end + 1].tolist()
        return tuple(self._samples[first:last] for first, last in itertools.pairwise(edges))

    def shards_from(self, number: int) -> np.ndarray:
        """Return the shard of each sample in batch `number` and all later batches."""
        first_piece = self._pieces_before[number]
        return self._samples.shards[self._samples_before[first_piece] :]


@dataclass(frozen=True)
class PlannedBatch:
    """Batch t of an epoch."""

    index: int
    pieces: Pieces

    def __len__(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    @property
    def cost(self) -> int:
        """Padded cost of all pieces in units of the policy."""
        return sum(piece.cost for piece in self.pieces)


def without_empty(pieces: Sequence[Piece]) -> Pieces:
    """Return the pieces that have samples; if none has, the first one."""
    return tuple(filter(len, pieces)) or tuple(pieces[:1])


def share_out(pieces: list[Piece], count: int) -> list[Pieces]:
    """Make exactly `count` batches of the pieces: merge the cheapest batches, or halve the largest
    pieces.
    """
    batches: list[Pieces] = [(piece,) for piece in pieces]
    # In both loops the list is sorted but for the batches that the round before appended. They are
    # put in order first; those of the last round stay last, which is part of the plan.
    if len(batches) > count:
        batches.sort(key=_cheapness)

    while len(batches) > count:
        insort(batches, batches.pop(), key=_cheapness)
        second, cheapest = batches[-2:]
        batches[-2:] = [second + cheapest]

    if len(batches) < count:
        batches.sort(key=_size)

    while len(batches) < count:
        halves = batches[-2:]
        del batches[-2:]
        for half in halves:
            insort(batches, half, key=_size)

        (largest,) = batches.pop()
        middle = (len(largest) + 1) // 2
        batches += [(largest[:middle],), (largest[middle:],)]

    return batches


def _cheapness(batch: Pieces) -> int:
    return -sum(piece.cost for piece in batch)


def _size(batch: Pieces) -> int:
    """Return the samples of a batch of one piece: batches are halved only if none was merged."""
    return len(batch[0])
