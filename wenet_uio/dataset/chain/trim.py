"""Operators that cut silence and that move the utterance in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import torch
from torch.nn.functional import pad

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.config.augmentation import ShiftConf, TrimConf
from wenet_uio.dataset.types import Example, waveform_of

FRAME, HOP = 2048, 512
"""Samples of a frame and from one frame to the next, as in `librosa.effects.trim`."""
LOWEST_POWER = 1e-10
"""Powers below this count as this, as in librosa; full scale is 1."""


@dataclass(frozen=True)
class TrimSilence:
    """Cut silence before the first and after the last frame that is not silent."""

    conf: TrimConf

    def __call__(self, example: Example) -> Example:
        """Shorten `waveform`. The plan counts its whole length, so batches become smaller only."""
        waveform = waveform_of(example)
        start, end = speech_bounds(waveform, self.conf.top_db)
        return replace(example, waveform=waveform[start:end])


def speech_bounds(waveform: torch.Tensor, top_db: float) -> tuple[int, int]:
    """Return the first sample, and the one after the last, of what is not silent.

    Frame n has its middle at sample n * HOP; samples beyond the ends are zeros. A frame is silent
    if its power is `top_db` or more below that of the loudest frame. A waveform of zeros is kept.
    """
    squares = (waveform.to(torch.float64) / INT16_SCALE).square()
    powers = pad(squares, (FRAME // 2, FRAME // 2)).unfold(0, FRAME, HOP).mean(dim=1)
    decibels = 10 * powers.clamp(min=LOWEST_POWER).log10()
    sounding = (decibels - decibels.max() > -top_db).nonzero().flatten()
    first, last = int(sounding[0]), int(sounding[-1])

    return first * HOP, min(len(waveform), (last + 1) * HOP)


@dataclass(frozen=True)
class Shift:
    """Move the utterance by a drawn time."""

    conf: ShiftConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays."""
        random = Random(f"shift {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform, milliseconds = waveform_of(example), random.uniform(*self.conf.milliseconds)
        samples = int(milliseconds * example.sample_rate // 1000)
        if abs(milliseconds) * example.sample_rate > 1000 * len(waveform):
            return example
        return replace(example, waveform=moved(waveform, samples))


def moved(waveform: torch.Tensor, samples: int) -> torch.Tensor:
    """Return a waveform of equal length that begins `samples` earlier, or later below 0."""
    if samples < 0:
        return pad(waveform, (-samples, 0))[: len(waveform)]
    return pad(waveform[samples:], (0, min(samples, len(waveform))))
