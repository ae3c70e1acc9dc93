"""Leave out batches without utterances, and keep the ends of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wenet_uio.dataset.types import Batch


class Reached(NamedTuple):
    """A batch to yield, and how far the loader is after it."""

    batch: Batch | None
    """None: the step has no utterances."""
    closes: list[bool]
    """`closes_step` of each micro-batch up to here, in order."""


class FilledBatches:
    """Passes on the micro-batches with utterances; the last of them in a step closes it.

    A micro-batch of a step that goes on is held back until it is known whether another follows.
    """

    def __init__(self) -> None:
        self._held: Batch | None = None
        self._closes: list[bool] = []

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Take the next micro-batch, and yield those that are known to go on or to close a step."""
        if batch.planned > len(batch.skipped):
            if self._held is not None:
                yield self._reached()
            self._held = batch

        self._closes.append(batch.closes_step)
        if batch.closes_step:
            if self._held is not None:
                self._held.closes_step = True
            yield self._reached()

    def _reached(self) -> Reached:
        reached = Reached(self._held, self._closes)
        self._held, self._closes = None, []
        return reached


class AllBatches:
    """Passes on every micro-batch."""

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Yield the micro-batch."""
        yield Reached(batch, [batch.closes_step])
