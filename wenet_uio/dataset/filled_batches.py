"""Leave out batches without utterances, and keep the ends of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wenet_uio.dataset.types import Batch


class Reached(NamedTuple):
    """A batch to yield, and how far the loader is after it."""

    batch: Batch | None
    """None: the step has no utterances."""
    micro_batches: int
    """Micro-batches up to here, with those that were left out."""
    closes_step: bool


class FilledBatches:
    """Passes on the micro-batches with utterances; the last of them in a step closes it.

    A micro-batch of a step that goes on is held back until it is known whether another follows.
    """

    def __init__(self) -> None:
        self._held: Batch | None = None
        self._micro_batches = 0

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Take the next micro-batch, and yield those that are known to go on or to close a step."""
        has_utterances = batch.planned > len(batch.skipped)
        if has_utterances:
            if self._held is not None:
                yield self._release(closes_step=False)
            self._held = batch

        self._micro_batches += 1
        if batch.closes_step:
            if self._held is not None:
                self._held.closes_step = True
            yield self._release(closes_step=True)

    def _release(self, closes_step: bool) -> Reached:
        """Return what is held, with the micro-batches since the last release; hold nothing."""
        reached = Reached(self._held, self._micro_batches, closes_step)
        self._held, self._micro_batches = None, 0
        return reached


class AllBatches:
    """Passes on every micro-batch."""

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Yield the micro-batch."""
        yield Reached(batch, 1, batch.closes_step)
