"""The batches of a plan as numbers for the explorer of the page: `pages/plan.js` deals them to
ranks.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import Piece, PlannedBatch
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.types import SampleRef

MOST_BATCHES = 200_000
"""The page holds at most this many batches, which are about 5 MB."""
MOST_UTTERANCES = 50_000
"""The page names about this many utterances, which are about 2 MB: those of the first batches."""
MOST_RANKS = 256
"""The page deals batches to at most this many ranks. It holds all utterances of the last batches
that such a number of ranks could share."""


class CellCollector:
    """Collects the numbers of each batch; pass it to `report_plan` as `on_batch`.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._corpus, self._measure, self._world_size = corpus, measure, world_size
        self._total = 0
        self._cells: list[tuple[int, int, int, int]] = []
        """Utterances, frames, padded frames and cost of each batch."""
        self._head: list[PlannedBatch] = []
        self._head_utterances = 0
        self._tail: deque[PlannedBatch] = deque(maxlen=MOST_RANKS - 1)

    def __call__(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch."""
        is_next_of_head = len(self._head) == self._total
        self._total += 1
        self._tail.append(batch)
        if self._total > MOST_BATCHES:
            return

        frames = sum(int(piece.frames.sum()) for piece in batch.pieces)
        padded_frames = sum(piece.padded_frames for piece in batch.pieces)
        self._cells.append((len(batch), frames, padded_frames, batch.cost))
        if is_next_of_head and self._head_utterances + len(batch) <= MOST_UTTERANCES:
            self._head.append(batch)
            self._head_utterances += len(batch)

    def data(self) -> dict[str, Any]:
        """Return what the page holds, as JSON-able values, after the last batch.

        | name | what |
        |---|---|
        | `total` | batches of the epoch |
        | `ranks`, `most_ranks` | of the report; at most |
        | `bound` | largest cost of a piece |
        | `utterances`, `frames`, `padded`, `cost` | one number for each of the first batches |
        | `head` | so many batches from the first one on have their utterances here |
        | `pieces` | number of utterances of each piece of the batches of the head, and of the last batches |
        | `entries` | number of the entry of each piece, if a mixture joins entries; else null |
        | `keys`, `lengths`, `units`, `speeds` | of the utterances of these batches; lengths in frames |
        """
        held = self._held()
        utterances, frames, padded, cost = np.array(self._cells, np.int64).reshape(-1, 4).T.tolist()
        frame_count = self._measure.frame_count

        return {
            "total": self._total,
            "ranks": self._world_size,
            "most_ranks": MOST_RANKS,
            "bound": self._measure.policy.bound,
            "seconds_per_frame": frame_count.shift / frame_count.sample_rate,
            "utterances": utterances,
            "frames": frames,
            "padded": padded,
            "cost": cost,
            "head": len(self._head),
            "pieces": [[len(piece) for piece in batch.pieces] for batch in held],
            "entries": self._entries(held),
            **self._samples([piece for batch in held for piece in batch.pieces]),
        }

    def _held(self) -> list[PlannedBatch]:
        """Return the batches whose utterances the page holds: the first ones and the last ones."""
        if self._total > MOST_BATCHES:
            return self._head
        return [*self._head, *(batch for batch in self._tail if batch.index >= len(self._head))]

    def _samples(self, pieces: list[Piece]) -> dict[str, Any]:
        """Return keys, lengths, units and speeds of the utterances of pieces."""
        columns = {
            name: [value for piece in pieces for value in getattr(piece, name).tolist()]
            for name in ("shards", "rows", "frames", "units", "speeds")
        }
        refs = zip(columns["shards"], columns["rows"], strict=True)
        speeds = [round(speed, 3) for speed in columns["speeds"]]
        return {
            "keys": [self._corpus.key(SampleRef(*ref)) for ref in refs],
            "lengths": columns["frames"],
            "units": columns["units"],
            "speeds": speeds if set(speeds) - {1.0} else None,
        }

    def _entries(self, held: list[PlannedBatch]) -> list[list[int]] | None:
        """Return the number of the entry of each piece; an empty piece is of entry 0."""
        sources = self._corpus.shard_sources
        if not sources.are_joined:
            return None

        return [
            [
                int(sources.entries(piece.shards[:1])[0]) if len(piece) else 0
                for piece in batch.pieces
            ]
            for batch in held
        ]
