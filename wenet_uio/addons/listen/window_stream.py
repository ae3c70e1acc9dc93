"""Recognise live streams with models that need the whole context.

The newest window of an utterance is decoded again and again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import torch

from wenet_uio.addons.listen.endpoint import Endpointer
from wenet_uio.addons.listen.live import (
    END,
    NOBODY_SPEAKS,
    LiveOptions,
    LiveStream,
    Spoken,
    try_step,
)
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.passages import Token, join_windows
from wenet_uio.addons.listen.speech import VOICE, Segment
from wenet_uio.addons.listen.stream_audio import StreamResampler
from wenet_uio.addons.listen.transcription import Transcriber
from wenet_uio.addons.listen.voice_activity import RATE, WINDOW, VoiceStream, is_installed
from wenet_uio.dataset.types import Example
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.types import NBest

STEP = 0.5
"""Seconds of new audio after which a window is decoded again."""


class WindowStream(LiveStream):
    """A stream of windows.

    Where utterances end: a voice detector tells speech from silence if silero-vad is installed;
    otherwise what follows the last token is silence. An utterance ends with the step in which a
    rule holds.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        recogniser: Recogniser,
        search: Search,
        options: LiveOptions,
        cutting: Cutting,
    ) -> None:
        """Start the first utterance.

        Args:
            transcriber: computes features and words, and decodes with `search`.
            cutting: its windows are those that are decoded again and again.
        """
        rate = recogniser.config.dataset_conf.resample_conf.resample_rate
        super().__init__(transcriber, rate, options, cutting, has_full_context=True)
        # Streams with equal keys may decode together.
        self._key: Hashable = (
            id(recogniser.model),
            search.modes[0],
            search.options,
            *map(id, search.scorers),
        )
        self._most = round(cutting.window * rate)
        """Samples of the longest window."""
        self._overlap = round(cutting.overlap * rate)
        """Samples that neighbouring windows share."""
        self._voice: VoiceStream | None = None
        if self._rules and is_installed():
            self._voice, self._to_voice = VoiceStream(), StreamResampler(rate, RATE)

        self._endpointer = Endpointer(WINDOW / RATE, options.endpoints)
        self._start_utterance()

    def _start_utterance(self) -> None:
        """Forget the last utterance."""
        self._window = torch.zeros(0)
        """Samples of the window."""
        self._waiting = torch.zeros(0)
        """Samples that are taken but not yet in the window."""
        self._example: Example | None = None
        """Features of the window; None if it is too short."""
        self._dropped = 0
        """Samples of the utterance that the window has left behind."""
        self._earlier_tokens: list[Token] = []
        """Tokens of the windows before."""
        self._tokens: list[Token] = []
        """All tokens so far."""
        self._checked = 0
        """Frames that the endpointer has taken."""

    @property
    def ready(self) -> bool:
        """As LiveStream.ready."""
        if self.finished:
            return False
        new_samples = len(self._waiting) + self._audio.queued / self._audio.ratio
        return self._audio.ended or new_samples >= STEP * self._rate

    @property
    def _window_end(self) -> int:
        """Sample of the stream after the window."""
        return self._utterance_start + self._dropped + len(self._window)

    @property
    def _recognised_seconds(self) -> float:
        return self._window_end / self._rate

    @staticmethod
    def step(streams: Sequence[WindowStream]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As LiveStream.step: windows of several streams are decoded as a batch."""
        groups: defaultdict[Hashable, list[WindowStream]] = defaultdict(list)
        for stream in streams:
            if try_step([stream], stream._absorb_audio):
                groups[stream._key].append(stream)

        for group in groups.values():
            examples = [
                replace(stream._example, key=str(index))
                for index, stream in enumerate(group)
                if stream._example is not None
            ]
            hypotheses = group[0]._transcriber.decode(examples)
            for index, stream in enumerate(group):
                try_step([stream], stream._produce_event, hypotheses.get(str(index)))

    def _absorb_audio(self) -> None:
        """Make the window longer.

        A full window moves on, so that neighbouring windows share the overlap.
        """
        if len(self._window) == self._most and len(self._waiting) + self._audio.queued:
            self._earlier_tokens = self._tokens
            step = self._most - self._overlap
            self._dropped += step
            self._window = self._window[step:]

        room = self._most - len(self._window)
        if self._rules:  # small steps, so that the end of an utterance is found where it is
            room = min(room, round(STEP * self._rate))

        # At least once: only `take` finds that the audio is empty.
        while len(self._waiting) < max(1, room):
            missing = max(1, room) - len(self._waiting)
            samples = self._take_heard(math.ceil(missing * self._audio.ratio), least=1)
            if samples is None or self._is_quiet:
                break
            self._waiting = torch.cat((self._waiting, samples))

        self._added, self._waiting = self._waiting[:room], self._waiting[room:]
        self._window = torch.cat((self._window, self._added))
        self._example = self._transcriber.features("", self._window, self._rate)

    def _produce_event(self, nbest: NBest | None) -> None:
        """Take the hypotheses of the window, and produce the Partial or the Final."""
        start = self._utterance_start / self._rate
        window = Segment(start + self._dropped / self._rate, self._window_end / self._rate)
        tokens = [] if nbest is None else self._transcriber.tokens(nbest[0], window)
        if self._dropped:
            shared = Segment(window.start, window.start + self._overlap / self._rate)
            tokens = join_windows(self._earlier_tokens, tokens, shared)

        self._tokens = tokens
        texts = [self._transcriber.tokenizer.detokenize(token.unit for token in tokens)]
        rule = self._endpointer.accept(self._silent_frames(), bool(tokens))
        if self._audio.empty and not len(self._waiting):
            rule = END
        if not rule:
            self._show_partial(texts)
            return

        count = self._dropped + len(self._window)
        spoken = NOBODY_SPEAKS
        if self._cutting is None and count and self._hears_voice():
            spoken = Spoken(tokens, texts)

        speech, speech_start = self._end_speech(count)
        if self._cutting is not None and count:
            spoken = self._recognise_again(speech, speech_start, self._cutting)

        self._start_utterance()
        self._conclude_utterance(window.end, spoken, rule)

    def _silent_frames(self) -> np.ndarray:
        """Tell whether each new frame of WINDOW samples is without speech."""
        quiet = np.ones(self._new_quiet_frames(WINDOW / RATE), bool)
        if self._voice is not None:
            voices = self._voice.accept(self._to_voice.accept(self._added).numpy())
            return np.concatenate((quiet, voices < VOICE))

        begin = self._utterance_start / self._rate
        frames = int((self._window_end - self._utterance_start) / self._rate * RATE / WINDOW)
        times = begin + np.arange(self._checked, frames) * (WINDOW / RATE)
        self._checked = frames
        if self._gate is not None:
            return np.concatenate((quiet, times > self._gate.last_speech / self._rate))

        # Without a detector: what follows the last token is silence.
        last_token = self._tokens[-1].time if self._tokens else -1.0
        return times > last_token
