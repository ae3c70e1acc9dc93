"""One thread that runs the streams of all clients: each step encodes a chunk of every stream that has one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wenet_uio.search.live import Event, LiveStream, advance
from wenet_uio.serve.metrics import Metrics

log = logging.getLogger(__name__)


class Heard(NamedTuple):
    """News of a stream."""

    opened: bool = False
    """The first news: the stream can take samples."""
    events: Sequence[Event] = ()
    waiting: float = 0.0
    """Seconds of audio that wait to be encoded."""
    finished: bool = False
    """Nothing more comes."""
    error: Exception | None = None
    """Why the stream was ended."""


class Seat:
    """A client's place in the engine. All methods but `_…` may be called from any thread."""

    def __init__(self, engine: Engine, make: Callable[[], LiveStream], deliver: Callable[[Heard], None]) -> None:
        """Open a stream; `deliver` is called in the event loop with its news, first when it is open."""
        self._engine, self._deliver = engine, deliver
        self.stream: LiveStream | None = None
        self._submit(lambda: self._open(make))

    def push(self, samples: np.ndarray) -> None:
        """Add samples."""
        self._submit(lambda: self.stream and self.stream.push(samples))

    def end(self) -> None:
        """No more samples come."""
        self._submit(lambda: self.stream and self.stream.end())

    def leave(self) -> None:
        """Drop the stream; nothing more is delivered."""
        self._engine.submit(lambda: self._engine.remove(self))

    def tell(self, news: Heard) -> None:
        """Deliver news; the engine calls it."""
        self._engine.loop.call_soon_threadsafe(self._deliver, news)

    def fail(self, error: Exception) -> None:
        """End the stream with an error; the engine calls it."""
        self._engine.remove(self)
        self.stream = None
        self.tell(Heard(finished=True, error=error))

    def _open(self, make: Callable[[], LiveStream]) -> None:
        self.stream = make()
        self._engine.add(self)
        self.tell(Heard(opened=True))

    def _submit(self, job: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends this stream alone
                self.fail(error)

        self._engine.submit(guarded)


class Engine(threading.Thread):
    """Runs the streams. Start it with `start`; `stop` ends it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, batch: int, metrics: Metrics) -> None:
        """Prepare the thread.

        Args:
            loop: the event loop of the clients.
            batch: most streams of a step.
            metrics: gets the time and the size of each step.
        """
        super().__init__(name="streams", daemon=True)
        self.loop = loop
        self._batch, self._metrics = batch, metrics
        self._changed = threading.Condition()
        self._jobs: list[Callable[[], None]] = []
        self._seats: dict[Seat, None] = {}
        """Those that wait longest for a step come first."""
        self._stopped = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run a function in the thread, between two steps and in order."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def stop(self) -> None:
        """End the thread after the current step."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def add(self, seat: Seat) -> None:
        """Run the stream of a seat; called in the thread."""
        self._seats[seat] = None

    def remove(self, seat: Seat) -> None:
        """Run the stream of a seat no longer; called in the thread."""
        self._seats.pop(seat, None)

    def run(self) -> None:
        """Do jobs and steps until `stop`."""
        while True:
            with self._changed:
                while not (self._jobs or self._stopped or any(seat.stream.ready for seat in self._seats)):
                    self._changed.wait()
                if self._stopped:
                    return
                jobs, self._jobs = self._jobs, []
            for job in jobs:
                job()
            self._step()

    def _step(self) -> None:
        """Advance the streams that have waited longest, and tell their clients."""
        seats = [seat for seat in self._seats if seat.stream.ready][: self._batch]
        if not seats:
            return
        begin = time.perf_counter()
        try:
            advance([seat.stream for seat in seats])
        except Exception:
            log.exception("error: a step of %d streams failed; each is tried alone", len(seats))
            self._one_by_one(seats)
        self._metrics.step_seconds.observe(time.perf_counter() - begin)
        self._metrics.step_streams.observe(len(seats))
        for seat in seats:
            if seat in self._seats:  # it has not failed
                self._tell(seat)
        self._metrics.waiting.set(max((seat.stream.waiting for seat in self._seats), default=0.0))

    def _tell(self, seat: Seat) -> None:
        """Tell a client what its stream has found, and put it at the end of the queue."""
        del self._seats[seat]
        try:
            stream = seat.stream
            news = Heard(events=stream.take(), waiting=stream.waiting, finished=stream.finished)
        except Exception as error:  # noqa: BLE001 - as in Seat._submit
            seat.fail(error)
            return
        seat.tell(news)
        if not news.finished:
            self._seats[seat] = None

    def _one_by_one(self, seats: list[Seat]) -> None:
        """Find the stream that makes a step fail, and end it alone."""
        for seat in seats:
            try:
                advance([seat.stream])
            except Exception as error:  # noqa: BLE001 - as in Seat._submit
                seat.fail(error)
