"""Operators on waveforms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch
from torchaudio.transforms import Resample as SincResample

from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class Resample:
    """Bring every waveform to one sample rate."""

    resample_rate: int
    """Hz."""

    def __call__(self, example: Example) -> Example:
        if example.sample_rate == self.resample_rate:
            return example
        waveform = resample(example.waveform, example.sample_rate, self.resample_rate)
        return replace(example, waveform=waveform, sample_rate=self.resample_rate)


@dataclass(frozen=True)
class SpeedPerturb:
    """Play a waveform at the speed that the plan drew; pitch moves with it, as in Kaldi and sox `speed`."""

    def __call__(self, example: Example) -> Example:
        if example.speed == 1.0:
            return example
        speed = Fraction(example.speed).limit_denominator(1000)
        return replace(example, waveform=resample(example.waveform, speed.numerator, speed.denominator))


def resample(waveform: torch.Tensor, source_rate: int, target_rate: int) -> torch.Tensor:
    """Band-limited resampling of (samples,) to ceil(samples * target / source) samples."""
    return _resampler(source_rate, target_rate)(waveform)


@lru_cache(maxsize=64)
def _resampler(source_rate: int, target_rate: int) -> SincResample:
    return SincResample(source_rate, target_rate)
