"""Live streams: samples come in, texts of one utterance after another go out.

Several streams advance together: `advance` runs one step of each stream that is ready. The streams
are those of chunk_stream.py and window_stream.py. `Stream` is the simple form for one stream alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from wenet_uio.addons.listen.endpoint import EndpointRule
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.passages import Passage, Token, shift_token
from wenet_uio.addons.listen.results import NO_SPEECH, Transcript, TranscriptSegment
from wenet_uio.addons.listen.speech import Segment
from wenet_uio.addons.listen.speech_gate import SpeechGate
from wenet_uio.addons.listen.stream_audio import NEVER_MORE, StreamAudio
from wenet_uio.addons.listen.transcription import Recognised, Transcriber
from wenet_uio.addons.listen.voice_check import VoiceCheck
from wenet_uio.audio.decoders import INT16_SCALE, Samples

PARTIAL_MODES = ("ctc_greedy_search", "ctc_prefix_beam_search")
KEPT = 10.0
"""Seconds of quiet before an utterance that the second pass gets, so that it finds the noise floor
that `transcribe` would find."""
END = "end"
"""Rule of the utterance that ends with the stream."""


@dataclass(frozen=True)
class Partial:
    """The text of the utterance so far; it has changed since the last Partial."""

    texts: tuple[str, ...]
    """Best first."""
    start: float
    """Seconds of the stream with which the audio of the utterance begins."""


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
    reason: str | None = None
    """See Transcript.reason."""


@dataclass(frozen=True)
class Failed:
    """The stream cannot go on; this is its last event."""

    error: Exception


Event = Partial | Final | Failed


class Spoken(NamedTuple):
    """What was recognised of an utterance that has ended."""

    tokens: list[Token]
    texts: Sequence[str]
    """Of the hypotheses, best first."""
    reason: str | None = None
    """See Final.reason."""


NOBODY_SPEAKS = Spoken([], [], NO_SPEECH)


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
    holds_quiet: bool = True
    """Whether the quiet before somebody speaks is held back from the model; see SpeechGate."""
    second_pass: bool = True
    """Whether the final text is that of `transcribe` for the audio of the utterance, if the model
    can use the full context; else it is that of the stream."""

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

    def __init__(
        self,
        transcriber: Transcriber,
        rate: int,
        options: LiveOptions,
        cutting: Cutting,
        *,
        has_full_context: bool,
    ) -> None:
        """Begin a stream.

        Args:
            transcriber: computes features and words; its search is that of the second pass.
            rate: of the model, in Hz.
            cutting: where the second pass cuts utterances.
            has_full_context: whether the model can use the full context of an utterance.
        """
        self._transcriber, self._audio = transcriber, StreamAudio(options.sample_rate, rate)
        self._rate = rate
        self._rules = options.endpoints
        self._gate = SpeechGate(rate, cutting.margins.before) if options.holds_quiet else None
        looks_for_speech = options.holds_quiet and cutting.pause is not None
        self._voice_check = VoiceCheck(rate, cutting.detector) if looks_for_speech else None
        self._cutting = cutting if options.second_pass and has_full_context else None
        """None: there is no second pass."""
        self._kept: deque[torch.Tensor] = deque()
        """Samples for the second pass, up to `_position`."""
        self._heard = 0
        """Samples of the utterance that the model heard."""
        self._position = 0
        """Samples of the stream that were taken."""
        self._quiet_frames = 0
        """Frames of the stream that were held back."""
        self._last_end = 0.0
        """Seconds; end of the utterance before."""
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
        return 0.0 if self.finished else max(0.0, self._audio.seconds - self._recognised_seconds)

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether a step has something to do."""

    @property
    @abstractmethod
    def _recognised_seconds(self) -> float:
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

    @property
    def _is_quiet(self) -> bool:
        """Whether nobody has spoken yet in this utterance."""
        return self._gate is not None and not self._gate.is_open

    @property
    def _utterance_start(self) -> int:
        """Sample of the stream with which the audio of the utterance begins."""
        if self._gate is not None and not self._gate.is_open:
            return self._gate.passed
        return self._position - self._heard

    def _take_heard(self, count: int, least: int | None = None) -> torch.Tensor | None:
        """Take `count` queued samples; return those that the model hears.

        Args:
            count, least: those of StreamAudio.take.

        Returns:
            None if fewer are queued; no samples as long as it is quiet.
        """
        samples = self._audio.take(count, least)
        if samples is None:
            return None

        self._position += len(samples)
        self._keep_for_second_pass(samples)
        if self._gate is not None:
            samples = self._gate.accept(samples, last=self._audio.empty)
        self._heard += len(samples)
        if self._voice_check is not None:
            self._voice_check.accept(samples)
        return samples

    def _keep_for_second_pass(self, samples: torch.Tensor) -> None:
        """Keep samples for the second pass: all of the utterance, and the last quiet before it."""
        if self._cutting is None:
            self._kept.clear()
        self._kept.append(samples)
        while self._is_quiet and sum(map(len, self._kept)) - len(self._kept[0]) > KEPT * self._rate:
            self._kept.popleft()

    def _new_quiet_frames(self, step: float) -> int:
        """Return the number of frames of `step` seconds that were held back since the last call."""
        dropped = 0 if self._gate is None else self._gate.dropped
        frames = int(dropped / self._rate / step)
        new_frames, self._quiet_frames = frames - self._quiet_frames, frames
        return new_frames

    def _end_speech(self, count: int) -> tuple[torch.Tensor, float]:
        """End the utterance after `count` samples that the model heard.

        Samples after its end belong to the next utterance, which hears them again.

        Returns:
            the samples (N,) that were kept of it, and the time of the first one in seconds.
        """
        end = self._utterance_start + count
        kept = torch.cat((torch.zeros(0), *self._kept))
        start = self._position - len(kept)
        length = max(0, end - start)
        speech, later = kept[:length], kept[length:]
        self._kept.clear()

        if self._is_quiet:  # the gate gives them to the next utterance
            self._kept.append(later)
        else:
            self._audio.give_back(later)
            self._position = end
            if self._gate is not None:
                self._gate.close(end)

        self._heard = 0
        if self._voice_check is not None:
            self._voice_check.restart()
        return speech, start / self._rate

    def _hears_voice(self) -> bool:
        """Tell whether somebody has spoken in the utterance, as far as the detector can tell."""
        return self._voice_check is None or self._voice_check.has_voice()

    def _recognise_again(self, speech: torch.Tensor, start: float, cutting: Cutting) -> Spoken:
        """Recognise an utterance as `transcribe` does.

        Args:
            speech: (N,) samples, on the scale of int16.
            start: of the speech in the stream, in seconds.
        """
        samples = (speech / INT16_SCALE).numpy()[:, None]
        passages: list[Recognised] = []
        recordings = [lambda: Samples(samples, self._rate)] if len(samples) else []
        for _, recognised in self._transcriber.passages(recordings, cutting):
            if isinstance(recognised, Exception):
                raise recognised
            passages.append(recognised)

        if all(passage.is_speechless for passage in passages):
            return NOBODY_SPEAKS
        tokens = [shift_token(token, start) for passage in passages for token in passage.tokens]
        if len(passages) == 1:
            return Spoken(tokens, passages[0].texts)
        return Spoken(tokens, [" ".join(passage.texts[0] for passage in passages)])

    def _show_partial(self, texts: Sequence[str]) -> None:
        """Produce a Partial if the texts have changed, and no sound but a voice is the reason."""
        new_texts = tuple(texts)
        if new_texts != self._shown and self._hears_voice():
            self._shown = new_texts
            self._events.append(Partial(new_texts, self._utterance_start / self._rate))

    def _conclude_utterance(self, end: float, spoken: Spoken, rule: str) -> None:
        """Produce the Final of an utterance that ends at `end` seconds; with the rule END the
        stream is finished.
        """
        segment = Segment(self._last_end, end)
        self._last_end = end
        texts = tuple(spoken.texts) or ("",)
        passage = replace(self._transcriber.segment(Passage(segment, spoken.tokens)), text=texts[0])
        self._events.append(Final(passage, texts, rule, spoken.reason))
        self._shown = ("",)
        self.finished = rule == END


def try_step(streams: Sequence[LiveStream], work: Callable[..., None], *arguments: Any) -> bool:
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
    for stream_type, members in groupby(ready, type):
        group = list(members)
        try_step(group, stream_type.step, group)


class Stream:
    """Speech that is recognised while it arrives."""

    def __init__(self, live: LiveStream) -> None:
        self._live = live
        self._partial = ""
        self._seconds = 0.0
        self._segments: list[TranscriptSegment] = []
        self._has_speech = False

    def accept(self, samples: np.ndarray | torch.Tensor) -> None:
        """Add samples (N,) of one channel: int16, or floats from -1 to 1.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended.
        """
        self._live.push(samples)
        self._advance_live()

    @property
    def partial(self) -> str:
        """The text of the utterance so far; later samples may change it."""
        return self._partial

    @property
    def segments(self) -> tuple[TranscriptSegment, ...]:
        """The utterances that have ended, without those that have no words."""
        return tuple(self._segments)

    def finish(self) -> Transcript:
        """End the stream and return all its utterances.

        Raises:
            ValueError: the stream has ended before.
        """
        if self._live.finished:
            raise ValueError(NEVER_MORE)
        self._live.end()
        self._advance_live()
        return Transcript(self.segments, self._seconds, None if self._has_speech else NO_SPEECH)

    def _advance_live(self) -> None:
        """Recognise all audio that is complete, and take the events of the stream."""
        while self._live.ready:
            advance([self._live])

        for event in self._live.take():
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Final):
                self._partial = ""
                self._seconds = event.segment.end
                self._has_speech |= event.reason is None
                if event.segment.tokens:
                    self._segments.append(event.segment)
            else:
                self._partial = event.texts[0]
