"""Operators on waveforms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch

from wenet_uio.dataset.types import Example

MOST_FILTERS, LONGEST_FILTER = 1000, 4000
"""Bounds on the filters of a resampling: 16 MB. Rates that are in use stay well within."""


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
    """Band-limited resampling of (samples,), float32 or int16, to ceil(samples * target / source) samples of float32.

    torchaudio's filters, applied as one matrix product: its convolution is set up anew for every length of waveform,
    which takes longer than the work itself.
    """
    filters, width, source, target = _filters(source_rate, target_rate)
    length = -(-len(waveform) * target_rate // source_rate)
    blocks = -(-length // target)
    padded = torch.zeros((blocks - 1) * source + len(filters))
    room = padded[width : width + len(waveform)]
    room.copy_(waveform[: len(room)])
    return torch.mm(padded.unfold(0, len(filters), source), filters).flatten()[:length]


@lru_cache(maxsize=64)
def _filters(source_rate: int, target_rate: int) -> tuple[torch.Tensor, int, int, int]:
    """Filters (taps, target), taps before the first sample, and both rates without their common divisor.

    There are as many filters as `target`, each longer than `source`: gigabytes for 44101 Hz. For such rates the nearest
    ratio of smaller numbers stands in.
    """
    from torchaudio.transforms import Resample as SincResample  # takes a second to import

    most = max(1, min(MOST_FILTERS, LONGEST_FILTER * target_rate // source_rate))
    ratio = Fraction(source_rate, target_rate).limit_denominator(most)
    made = SincResample(ratio.numerator, ratio.denominator)
    return made.kernel[:, 0].T.contiguous(), made.width, ratio.numerator, ratio.denominator
