"""Streams of many utterances (interim)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wenet_uio.search.results import TranscriptSegment

END = "end"


class Partial(NamedTuple):
    texts: list[str]


class Final(NamedTuple):
    segment: TranscriptSegment
    texts: list[str]
    rule: str


Event = Partial | Final


class LiveStream:
    def __init__(self, stream: Any, rate: int) -> None:
        self._stream, self._rate = stream, rate
        self._inbox: list[np.ndarray] = []
        self._ended = self.finished = False
        self._events: list[Event] = []

    def push(self, samples: np.ndarray) -> None:
        self._inbox.append(samples)

    def end(self) -> None:
        self._ended = True

    @property
    def ready(self) -> bool:
        return not self.finished and (bool(self._inbox) or self._ended)

    @property
    def waiting(self) -> float:
        return sum(map(len, self._inbox)) / self._rate

    def step(self) -> None:
        if self._inbox:
            self._stream.accept(np.concatenate(self._inbox))
            self._inbox = []
            self._events.append(Partial([self._stream.partial]))
        elif self._ended:
            transcript = self._stream.finish()
            segment = transcript.segments[0] if transcript.segments else TranscriptSegment(0.0, transcript.seconds, "", (), ())
            self._events.append(Final(segment, [transcript.text], END))
            self.finished = True

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events


def advance(streams: Sequence[LiveStream]) -> None:
    for stream in streams:
        stream.step()
