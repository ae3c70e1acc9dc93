"""Whether somebody speaks in an utterance of a stream.

Streams ask only while the model has words and no voice was heard yet. So speech costs one look at the
start of each utterance, and music a look at each step.
"""

from __future__ import annotations

import numpy as np
import torch

from wenet_uio.addons.listen.speech import hears_voices, is_spoken
from wenet_uio.audio.decoders import INT16_SCALE, Samples

BEFORE = 1.0
"""Seconds without a voice that are heard again with what follows: a word may begin in them."""


class VoiceCheck:
    """Listens to the utterances of a stream, each until somebody was heard in it."""

    def __init__(self, rate: int, detector: str) -> None:
        """Begin the first utterance.

        Args:
            rate: sample rate in Hz.
            detector: as in `find_speech`. Only a detector of voices is asked; levels have opened the
                gate of the stream before.
        """
        self._rate = rate
        self._hears_voices = hears_voices(detector)
        self.restart()

    def restart(self) -> None:
        """Begin the next utterance."""
        self._waiting = np.zeros(0, np.float32)
        """Samples that were not heard yet, after BEFORE seconds that were."""
        self._is_waiting = False
        self._has_voice = not self._hears_voices

    def accept(self, samples: torch.Tensor) -> None:
        """Take the next samples (N,) of the utterance, on the scale of int16."""
        if not self._has_voice and len(samples):
            self._waiting = np.concatenate((self._waiting, samples.numpy()))
            self._is_waiting = True

    def has_voice(self) -> bool:
        """Tell whether somebody has spoken in the utterance so far."""
        if self._is_waiting:
            samples = (self._waiting / np.float32(INT16_SCALE))[:, None]
            self._has_voice = is_spoken(Samples(samples, self._rate), 0)
            kept = 0 if self._has_voice else round(BEFORE * self._rate)
            self._waiting = self._waiting[len(self._waiting) - min(kept, len(self._waiting)) :]
            self._is_waiting = False
        return self._has_voice
