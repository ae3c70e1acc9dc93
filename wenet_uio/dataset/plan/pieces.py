"""What a plan is made of: pieces of samples, and batches of pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Piece:
    """Samples that go through the model together, sorted by length."""

    shards: np.ndarray
    rows: np.ndarray
    speeds: np.ndarray
    frames: np.ndarray
    units: np.ndarray
    buckets: np.ndarray
    """Samples of different buckets do not share a piece; NO_BUCKET where all may."""
    seeds: np.ndarray
    """Of all that is drawn for each sample while it is read."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | np.ndarray) -> Piece:
        return Piece(*(getattr(self, column.name)[chosen] for column in fields(self)))

    @property
    def cost(self) -> int:
        """Padded cost in units of the policy."""
        return len(self) * int(self.units.max(initial=0))

    @property
    def padded_frames(self) -> int:
        return len(self) * int(self.frames.max(initial=0))


Pieces = tuple[Piece, ...]
"""Of one batch: one, or several where one would exceed the bound."""


class Batches:
    """Batches one after the other, kept in a few arrays: an object for each piece takes more than what it holds."""

    def __init__(self, batches: Sequence[Pieces]) -> None:
        pieces = [piece for batch in batches for piece in batch]
        columns = zip(*([getattr(piece, column.name) for column in fields(Piece)] for piece in pieces), strict=True)
        self._samples = Piece(*map(np.concatenate, columns)) if pieces else None
        self._samples_before = np.cumsum([0, *map(len, pieces)])
        self._pieces_before = np.cumsum([0, *map(len, batches)])

    def __len__(self) -> int:
        return len(self._pieces_before) - 1

    def __getitem__(self, number: int) -> Pieces:
        if not 0 <= number < len(self):
            raise IndexError(number)
        first, last = self._pieces_before[number : number + 2]
        bounds = self._samples_before[first : last + 1].tolist()
        return tuple(self._samples[slice(*edge)] for edge in itertools.pairwise(bounds))

    def shards_from(self, number: int) -> np.ndarray:
        """Shard of each sample of batch `number` and all behind it."""
        return self._samples.shards[self._samples_before[self._pieces_before[number]] :]


@dataclass(frozen=True)
class PlannedBatch:
    """Batch t of an epoch."""

    index: int
    pieces: Pieces

    def __len__(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    @property
    def cost(self) -> int:
        return sum(piece.cost for piece in self.pieces)


def share_out(pieces: list[Piece], count: int) -> list[Pieces]:
    """Make exactly `count` batches of pieces: the cheapest are put together, or the largest halved."""
    batches = [(piece,) for piece in pieces]
    while len(batches) > count:
        batches.sort(key=lambda batch: sum(piece.cost for piece in batch), reverse=True)
        batches[-2:] = [batches[-2] + batches[-1]]
    while len(batches) < count:
        batches.sort(key=lambda batch: len(batch[0]))
        (largest,) = batches.pop()
        middle = (len(largest) + 1) // 2
        batches += [(largest[:middle],), (largest[middle:],)]
    return batches
