"""Live streams: samples come in, texts of one utterance after another go out.

Several streams advance together: `advance` runs one step of each stream that is ready. The streams
are those of chunk_stream.py and window_stream.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch

from wenet_uio.search.endpoint import EndpointRule
from wenet_uio.search.passages import Passage, Token
from wenet_uio.search.results import TranscriptSegment
from wenet_uio.search.speech import Segment
from wenet_uio.search.stream_audio import NEVER_MORE, StreamAudio
from wenet_uio.search.transcription import Transcriber

PARTIAL_MODES = ("ctc_greedy_search", "ctc_prefix_beam_search")
END = "end"
"""Rule of the utterance that ends with the stream."""


@dataclass(frozen=True)
class Partial:
    """The text of the utterance so far; it has changed since the last Partial."""

    texts: tuple[str, ...]
    """Best first."""


@dataclass(frozen=True)
class Final:
    """An utterance that has ended. The next one begins at the end of its segment."""

    segment: TranscriptSegment
    """Seconds from the start of the stream; no words if nobody spoke."""
    texts: tuple[str, ...]
    """Best first; the first one is that of the segment."""
    rule: str
    """Name of the rule that ended the utterance; `end` for the last one, which ends with the
    stream."""


@dataclass(frozen=True)
class Failed:
    """The stream cannot go on; this is its last event."""

    error: Exception


Event = Partial | Final | Failed


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live stream.

    Raises:
        ValueError: the mode of the partial texts is unknown.
    """

    sample_rate: int
    """Sample rate of what is pushed, in Hz."""
    endpoints: Mapping[str, EndpointRule] = field(default_factory=dict)
    """Rules that end utterances, by name. Without rules the stream is one utterance, and its memory
    grows with its length."""
    partial_mode: str = PARTIAL_MODES[0]
    """Search of the partial texts of models that encode chunk by chunk."""

    def __post_init__(self) -> None:
        if self.partial_mode not in PARTIAL_MODES:
            raise ValueError(
                f"partial_mode: expected {' or '.join(PARTIAL_MODES)}, found {self.partial_mode}"
            )


class LiveStream(ABC):
    """A stream of utterances.

    One thread may call `push`, `end` and `take`, and look at the properties, while another one runs
    `advance`.
    """

    def __init__(self, transcriber: Transcriber, rate: int, options: LiveOptions) -> None:
        """Begin a stream for a model with the sample rate `rate`, in Hz."""
        self._transcriber, self._audio = transcriber, StreamAudio(options.sample_rate, rate)
        self._rules = options.endpoints
        self._events: deque[Event] = deque()
        self._shown = ("",)
        """The texts of the last Partial."""
        self.finished = False
        """Whether all events were produced; `take` may still return some of them."""

    def push(self, samples: np.ndarray | torch.Tensor) -> None:
        """Check samples (N,) of one channel, int16 or floats from -1 to 1, and keep a copy.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended or failed.
        """
        if self.finished:
            raise ValueError(NEVER_MORE)
        self._audio.push(samples)

    def end(self) -> None:
        """Tell the stream that its samples are complete."""
        self._audio.ended = True

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        return [self._events.popleft() for _ in range(len(self._events))]

    @property
    def waiting(self) -> float:
        """Seconds of audio that were pushed and not yet recognised."""
        return 0.0 if self.finished else max(0.0, self._audio.seconds - self._recognised)

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether a step has something to do."""

    @property
    @abstractmethod
    def _recognised(self) -> float:
        """Seconds of the stream that were recognised."""

    @staticmethod
    @abstractmethod
    def step(streams: Sequence[LiveStream]) -> None:
        """Run one step of streams of this class that are ready."""

    def fail(self, error: Exception) -> None:
        """End the stream with the event Failed."""
        if not self.finished:
            self._events.append(Failed(error))
            self.finished = True

    def _show(self, texts: Sequence[str]) -> None:
        """Produce a Partial if the texts have changed."""
        new_texts = tuple(texts)
        if new_texts != self._shown:
            self._shown = new_texts
            self._events.append(Partial(new_texts))

    def _conclude(
        self, segment: Segment, tokens: list[Token], texts: Sequence[str], rule: str
    ) -> None:
        """Produce the Final of an utterance; with the rule END the stream is finished."""
        passage = self._transcriber.segment(Passage(segment, tokens))
        self._events.append(Final(passage, tuple(texts) or ("",), rule))
        self._shown = ("",)
        self.finished = rule == END


def attempt(streams: Sequence[LiveStream], work: Callable[..., None], *arguments: Any) -> bool:
    """Run a part of a step that concerns these streams only.

    Returns:
        Whether it ran. If it raised an error, the streams have ended with the event Failed.
    """
    try:
        work(*arguments)
    except Exception as error:
        for stream in streams:
            stream.fail(error)
        return False
    return True


@torch.inference_mode()
def advance(streams: Sequence[LiveStream]) -> None:
    """Run one step of all streams that are ready: encode and search the next chunk of each.

    Chunks of several streams are encoded together. An error in one stream is its event Failed; an
    error of the model in a batch is the event of all streams of the batch.
    """
    ready = sorted(
        (stream for stream in streams if stream.ready), key=lambda stream: type(stream).__name__
    )
    for kind, members in groupby(ready, type):
        group = list(members)
        attempt(group, kind.step, group)
