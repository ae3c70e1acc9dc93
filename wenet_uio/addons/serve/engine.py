"""One thread that runs the streams of all clients.

Each step encodes the next chunk of every stream that has enough samples for one.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from wenet_uio.addons.listen.live import Event, Failed, LiveStream, advance
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.pulse import Pulse
from wenet_uio.base.memory import return_freed_memory

QUIET = 1.0
"""Seconds without work after which freed memory is returned."""


class StreamNews(NamedTuple):
    """What a client learns about its stream after a step."""

    opened: bool = False
    """The stream can take samples; true in the first news only."""
    events: Sequence[Event] = ()
    waiting: float = 0.0
    """Seconds of audio that wait for a step; 0 if they are too few for one."""
    finished: bool = False
    """This is the last news of the stream."""


class Seat(NamedTuple):
    """A client's place in the engine."""

    number: int
    deliver: Callable[[StreamNews], None]
    """Called in the event loop of the clients."""


class Arrival(NamedTuple):
    """Samples of a seat that are not in their stream yet."""

    time: float
    """When the first of them came, in seconds of `time.perf_counter`."""
    parts: list[np.ndarray]


class Engine(threading.Thread):
    """Run the streams of all clients.

    `start` starts the thread; `open`, `push`, `end`, `leave` and `stop` may be called from any
    thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, batch: int, metrics: Metrics) -> None:
        """Prepare the thread.

        Args:
            loop: the event loop of the clients.
            batch: upper limit of streams in a step.
            metrics: receives the time and the size of each step.
        """
        super().__init__(name="streams", daemon=True)
        self._loop, self._batch, self._metrics = loop, batch, metrics
        self._changed = threading.Condition()
        self._jobs: list[tuple[Seat, Callable[[], object]]] = []
        self._arrived: dict[Seat, Arrival] = {}
        """One job moves all samples of a seat, however small the packets are."""
        self._ready_since: dict[Seat, float] = {}
        """Times from which on streams wait for a step; used by this thread only."""
        self._streams: dict[Seat, LiveStream] = {}
        """Used by this thread only. The stream that has waited longest comes first."""
        metrics.open_streams.set_function(lambda: len(self._streams))
        self._numbers = count()
        self.pulse = Pulse("streams")
        self.calm = threading.Event()
        """Set while no stream waits for a step; recordings let streams go first."""
        self.calm.set()
        self._stopped = False
        self._worked = False
        """Whether a job or step ran since the last call of `return_freed_memory`."""

    def open(self, stream: LiveStream, deliver: Callable[[StreamNews], None]) -> Seat:
        """Add a stream; its first news has `opened`."""
        seat = Seat(next(self._numbers), deliver)

        def begin() -> None:
            self._streams[seat] = stream
            self._tell_client(seat, StreamNews(opened=True))

        self._submit(seat, begin)
        return seat

    def push(self, seat: Seat, samples: np.ndarray) -> None:
        """Add samples (N,) to the stream of `seat`."""
        with self._changed:
            parts = self._arrived.setdefault(seat, Arrival(time.perf_counter(), [])).parts
            parts.append(samples)

            # The job of the first part takes those that arrive before it runs.
            if len(parts) == 1:
                self._jobs.append((seat, lambda: self._move_samples(seat)))
                self._changed.notify()

    def end(self, seat: Seat) -> None:
        """Tell the stream that its samples are complete."""
        since = time.perf_counter()

        def end() -> None:
            if seat in self._streams:
                self._streams[seat].end()
                self._note_ready(seat, since)

        self._submit(seat, end)

    def leave(self, seat: Seat) -> None:
        """Drop a stream; its seat gets no more news."""

        def leave() -> None:
            self._streams.pop(seat, None)
            self._ready_since.pop(seat, None)

        self._submit(seat, leave)

    def stop(self) -> None:
        """End the thread after the current step."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Do jobs and steps until `stop`."""
        while True:
            timeout = QUIET if self._worked else None
            self.pulse.rest()
            with self._changed:
                is_quiet = not self._changed.wait_for(self._has_work, timeout)
                if self._stopped:
                    return
                jobs, self._jobs = self._jobs, []

            self._worked = not is_quiet
            self.pulse.beat()
            if is_quiet:
                gc.collect()  # broken connections leave cycles of objects
                return_freed_memory()
                continue

            self._run_jobs(jobs)
            self.pulse.beat()
            self._advance_streams()

    def _has_work(self) -> bool:
        return (
            bool(self._jobs)
            or self._stopped
            or any(stream.ready for stream in self._streams.values())
        )

    def _submit(self, seat: Seat, job: Callable[[], object]) -> None:
        """Queue a function, which the thread runs between two steps, in order."""
        with self._changed:
            self._jobs.append((seat, job))
            self._changed.notify()

    def _run_jobs(self, jobs: list[tuple[Seat, Callable[[], object]]]) -> None:
        for seat, job in jobs:
            self._run_job(seat, job)
        # They hold streams, and thereby models, until the next ones come.
        jobs.clear()

    def _run_job(self, seat: Seat, job: Callable[[], object]) -> None:
        """Run a job; an exception ends the stream of `seat` and no other."""
        try:
            job()
        except Exception as error:
            self._streams.pop(seat, None)
            self._tell_client(seat, StreamNews(events=(Failed(error),), finished=True))

    def _move_samples(self, seat: Seat) -> None:
        """Move the samples that have arrived into their stream."""
        with self._changed:
            arrival = self._arrived.pop(seat)

        if stream := self._streams.get(seat):
            stream.push(np.concatenate(arrival.parts))
            self._note_ready(seat, arrival.time)
            if not stream.ready:
                self._tell_client(seat, StreamNews())

    def _note_ready(self, seat: Seat, since: float) -> None:
        """Note since when a stream waits for a step, if it does."""
        stream = self._streams.get(seat)
        if stream is None or not stream.ready:
            self._ready_since.pop(seat, None)
        else:
            self._ready_since.setdefault(seat, since)

    def _tell_client(self, seat: Seat, news: StreamNews) -> None:
        self._loop.call_soon_threadsafe(seat.deliver, news)

    def _advance_streams(self) -> None:
        """Advance the streams that have waited longest, and tell their clients."""
        seats = [seat for seat, stream in self._streams.items() if stream.ready][: self._batch]
        if not seats:
            self.calm.set()
            return

        self.calm.clear()
        streams = [self._streams[seat] for seat in seats]
        waiting_before = sum(stream.waiting for stream in streams)
        start_time = time.perf_counter()
        for seat in seats:
            waited = start_time - self._ready_since.pop(seat, start_time)
            self._metrics.queue_seconds.labels("stream").observe(waited)

        advance(streams)
        end_time = time.perf_counter()
        self._metrics.step_seconds.observe(end_time - start_time)
        self._metrics.step_streams.observe(len(seats))

        recognised = waiting_before - sum(stream.waiting for stream in streams)
        if recognised > 0:
            factor = (end_time - start_time) / recognised
            self._metrics.real_time_factor.labels("stream").observe(factor)

        for seat in seats:
            self._deliver_events(seat)
            self._note_ready(seat, end_time)

        self._metrics.waiting.set(
            max((stream.waiting for stream in self._streams.values()), default=0.0)
        )
        if not any(stream.ready for stream in self._streams.values()):
            self.calm.set()

    def _deliver_events(self, seat: Seat) -> None:
        """Send the new events of a stream, and put the stream at the end of the queue."""
        stream = self._streams.pop(seat)
        news = StreamNews(
            events=stream.take(),
            waiting=stream.waiting if stream.ready else 0.0,
            finished=stream.finished,
        )
        self._tell_client(seat, news)

        if not news.finished:
            self._streams[seat] = stream
