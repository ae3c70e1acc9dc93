"""One thread that decodes the segments of all recordings, a batch of them at a turn.

Each recording asks for a batch at a time, and waits for it. So a recording of hours lets others go
before each of its batches, and short recordings of several clients share a batch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

from wenet_uio.addons.serve.pulse import Pulse
from wenet_uio.audio.interruption import CHECK_SECONDS, check_interruption
from wenet_uio.search.decode import Search

Segment = TypeVar("Segment")
Result = TypeVar("Result")
YIELD_SECONDS = 1.0
"""Longest time for which recordings wait for streams, before each turn and each block of audio."""


class _Batch(NamedTuple):
    """Segments of one recording that wait for a turn."""

    search: Search
    decode: Callable[[list[Any]], list[Any]]
    segments: Sequence[Any]
    results: Future[list[Any]]
    """Of the segments, in their order."""
    asked: float
    """Time of the question, in seconds of the monotonic clock."""


class Turns(threading.Thread):
    """Decodes batches of segments in the order in which they arrive.

    `start` starts the thread; `take` and `stop` may be called from any thread.
    """

    def __init__(self, most_segments: int, note_wait: Callable[[float], None]) -> None:
        """Prepare the thread.

        Args:
            most_segments: upper limit of the segments of a turn.
            note_wait: called with the seconds that a batch has waited for its turn.
        """
        super().__init__(name="turns", daemon=True)
        self._most_segments, self._note_wait = most_segments, note_wait
        self._changed = threading.Condition()
        self._waiting: deque[_Batch] = deque()
        self._stopped = False
        self.pulse = Pulse("turns of recordings")
        self.calm = threading.Event()
        """Set while no stream waits for the model."""
        self.calm.set()

    def take(
        self,
        search: Search,
        decode: Callable[[list[Segment]], list[Result]],
        segments: list[Segment],
    ) -> list[Result]:
        """Decode segments when it is their turn, perhaps together with those of other recordings.

        Args:
            search: that of `decode`; segments with equal searches may share a turn.
            decode: returns a result for each segment, whatever the segments beside it are.

        Raises:
            CancelledError: the thread has ended.
            Exception: what `decode` raises for these segments, and what `check_interruption` does.
        """
        batch = _Batch(search, decode, segments, Future(), time.monotonic())
        with self._changed:
            if self._stopped:
                raise CancelledError
            self._waiting.append(batch)
            self._changed.notify()

        try:
            while not wait((batch.results,), CHECK_SECONDS).done:
                check_interruption()
        except BaseException:
            batch.results.cancel()  # it needs no turn
            raise

        return batch.results.result()

    def yield_to_streams(self) -> None:
        """Wait while streams wait for the model, for YIELD_SECONDS at most."""
        self.calm.wait(YIELD_SECONDS)

    def stop(self) -> None:
        """End the thread after the current turn; nobody waits any more."""
        with self._changed:
            self._stopped = True
            for batch in self._waiting:
                if batch.results.set_running_or_notify_cancel():
                    batch.results.set_exception(CancelledError())
            self._waiting.clear()
            self._changed.notify()

    def run(self) -> None:
        """Take turns until `stop`."""
        while self._take_next():  # nothing of a turn is kept while the thread waits
            pass

    def _take_next(self) -> bool:
        """Wait for batches, and decode those of a turn; return False after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._waiting)
        self.yield_to_streams()
        with self._changed:
            if self._stopped:
                return False
            turn = self._next_turn()

        alive = [batch for batch in turn if batch.results.set_running_or_notify_cancel()]
        for batch in alive:
            self._note_wait(time.monotonic() - batch.asked)
        if alive:
            with self.pulse.working():
                _decode_turn(alive)
        return True

    def _next_turn(self) -> list[_Batch]:
        """Remove the batch that has waited longest, and those that fit beside it."""
        first = self._waiting.popleft()
        turn, room = [first], self._most_segments - len(first.segments)
        still_waiting: deque[_Batch] = deque()

        for batch in self._waiting:
            if batch.search == first.search and len(batch.segments) <= room:
                turn.append(batch)
                room -= len(batch.segments)
            else:
                still_waiting.append(batch)

        self._waiting = still_waiting
        return turn


def _decode_turn(turn: Sequence[_Batch]) -> None:
    """Decode batches together; if that fails, each of them alone, so that one fails no other."""
    try:
        segments = list(chain.from_iterable(batch.segments for batch in turn))
        results = iter(turn[0].decode(segments))
    except Exception as error:
        if len(turn) == 1:
            turn[0].results.set_exception(error)
            return
        for batch in turn:
            _decode_turn([batch])
        return

    for batch in turn:
        batch.results.set_result(list(islice(results, len(batch.segments))))
