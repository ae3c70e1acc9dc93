"""Hold back the quiet of a stream until somebody speaks.

The gate looks at levels only, so that hundreds of streams cost nothing. It may open for noise: what
finds speech in recordings decides about the final text.
"""

from __future__ import annotations

import numpy as np
import torch

from wenet_uio.addons.listen.speech import block_noise
from wenet_uio.audio.decoders import INT16_SCALE

FRAME = 0.05
"""Seconds of a level measurement. Levels of noise differ less in longer frames, so that speech that
is hardly louder opens the gate."""
BLOCK = 0.1
"""Seconds after which the gate decides. So its decisions do not depend on the length of packets."""
RISE = 3.0
"""dB above the floor of steady noise that are not speech."""
HISTORY = 10.0
"""Seconds whose levels give the noise floor."""
LEAST_HISTORY = 1.0
"""Seconds that a noise floor needs. Until then only loud sound opens the gate, and everything is
held, so that nothing of a soft beginning is lost."""
LOUD = -35.0
"""dB of full scale; louder sound is speech before there is a noise floor."""
FAINTEST = -75.0
"""dB of full scale; fainter sound is never speech. Samples of 16 bits that are 0 and 1 have -90."""
LOOK_BACK = 0.3
"""Seconds before the first loud frame that belong to the speech: soft consonants. A model that knows
less quiet gets less, but always a BLOCK: the first loud frame is not known better."""


class SpeechGate:
    """Passes the samples of a stream from shortly before somebody speaks until it is closed.

    Positions are samples from the start of the stream.
    """

    def __init__(self, rate: int, margin: float = LOOK_BACK) -> None:
        """Begin a stream with samples at `rate` Hz.

        Args:
            margin: seconds of quiet before speech that the model knows.
        """
        look_back = min(LOOK_BACK, BLOCK + margin)
        self._frame = round(FRAME * rate)
        """Samples of a level measurement."""
        self._block = round(BLOCK / FRAME) * self._frame
        self._look_back = round(look_back / FRAME) * self._frame
        self._history = np.zeros(0, np.float32)
        """Levels of the newest frames, in dB of full scale."""
        self._measured = 0
        """Position after the last frame that was measured."""
        self._unmeasured = torch.zeros(0)
        """Samples of an open gate after that position."""
        self._held = torch.zeros(0)
        """Samples of a closed gate that it may pass later; the first one begins a frame."""
        self.is_open = False
        self.passed = 0
        """Position up to which samples were passed or dropped."""
        self.dropped = 0
        """Samples that were dropped."""
        self.last_speech = 0
        """Position after the last loud frame."""

    def accept(self, samples: torch.Tensor, *, last: bool = False) -> torch.Tensor:
        """Take the next samples (N,), on the scale of int16; return those to recognise now.

        Args:
            last: none follow. A stream that is too short for a noise floor is all speech.
        """
        if self.is_open:
            self._follow_speech(samples)
            self.passed += len(samples)
            return samples

        self._held = torch.cat((self._held, samples))
        while (end := self._measured - self.passed + self._block) <= len(self._held):
            self._measure_levels(self._held[end - self._block : end])
            start = self._speech_start()
            if start is not None:
                return self._open_gate(start)
            if not self._is_short:
                self._drop_held(end - self._look_back - self._block)

        if last and self._is_short and len(self._held):
            return self._open_gate(0)
        if last:
            self._drop_held(len(self._held))
        return samples[:0]

    def close(self, position: int) -> None:
        """Hold back what follows until somebody speaks; samples after `position` come again."""
        late_frames = max(0, -(-(self._measured - position) // self._frame))
        self._history = self._history[: len(self._history) - late_frames]
        self._measured = self.passed = position
        self._unmeasured = self._unmeasured[:0]
        self.is_open = False

    def _open_gate(self, start: int) -> torch.Tensor:
        """Drop the held samples before `start`, and pass the others."""
        self._drop_held(start)
        passed, self._held = self._held, self._held[:0]
        self.is_open = True
        self.last_speech = self._measured
        self._follow_speech(passed[self._measured - self.passed :])
        self.passed += len(passed)
        return passed

    def _drop_held(self, count: int) -> None:
        """Drop the first held samples."""
        count = max(0, count)
        self._held = self._held[count:].clone()
        self.passed += count
        self.dropped += count
        self._measured = max(self._measured, self.passed)

    def _follow_speech(self, samples: torch.Tensor) -> None:
        """Note the last speech of an open gate."""
        samples = torch.cat((self._unmeasured, samples))
        in_frames = len(samples) // self._frame * self._frame
        levels = self._measure_levels(samples[:in_frames])
        self._unmeasured = samples[in_frames:].clone()

        loud = np.flatnonzero(levels > self._speech_level())
        if len(loud):
            frames_since = len(levels) - int(loud[-1]) - 1
            self.last_speech = self._measured - frames_since * self._frame

    def _measure_levels(self, samples: torch.Tensor) -> np.ndarray:
        """Measure the levels of whole frames, in dB of full scale."""
        frames = samples.reshape(-1, self._frame) / INT16_SCALE
        levels = 10.0 * (frames.square().mean(dim=1).clamp(1e-10, 1e10).log10()).numpy()
        self._measured += len(samples)
        self._history = np.concatenate((self._history, levels))[-round(HISTORY / FRAME) :]
        return levels

    def _speech_start(self) -> int | None:
        """Return the first held sample that belongs to speech; None if nobody speaks.

        Two frames must be loud: one may be a click.
        """
        frames = (self._measured - self.passed) // self._frame
        loud = self._history[len(self._history) - frames :] > self._speech_level()
        starts = np.flatnonzero(loud[:-1] & loud[1:])
        return max(0, int(starts[0]) * self._frame - self._look_back) if len(starts) else None

    @property
    def _is_short(self) -> bool:
        """Whether there is not enough sound for a noise floor."""
        return len(self._history) * FRAME < LEAST_HISTORY

    def _speech_level(self) -> float:
        """Return the level of speech, in dB of full scale."""
        if self._is_short:
            return LOUD
        floor, rise = block_noise(self._history, RISE)
        return max(FAINTEST, floor + rise)
