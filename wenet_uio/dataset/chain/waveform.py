"""Operators on waveforms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch

from wenet_uio.dataset.types import Example, waveform_of

MOST_FILTERS, LONGEST_FILTER = 1000, 4000
"""Largest number and length of resampling filters, in total 16 MB. Common sample rates need far
less."""


@dataclass(frozen=True)
class Resample:
    """Resample every waveform to one sample rate."""

    resample_rate: int
    """Hz."""

    def __call__(self, example: Example) -> Example:
        """Change `waveform` and `sample_rate`."""
        if example.sample_rate == self.resample_rate:
            return example
        waveform = resample(waveform_of(example), example.sample_rate, self.resample_rate)
        return replace(example, waveform=waveform, sample_rate=self.resample_rate)


@dataclass(frozen=True)
class SpeedPerturb:
    """Play a waveform at the speed that the plan drew. The pitch changes too, as with `speed` of
    sox and in Kaldi.
    """

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length is divided by `speed`."""
        if example.speed == 1.0:
            return example

        speed = Fraction(example.speed).limit_denominator(1000)
        return replace(
            example, waveform=resample(waveform_of(example), speed.numerator, speed.denominator)
        )


def resample(waveform: torch.Tensor, source_rate: int, target_rate: int) -> torch.Tensor:
    """Resample (samples,) float32 or int16 to (ceil(samples * target / source),) float32,
    band-limited.

    The filters are those of torchaudio. They are applied as one matrix product, because
    torchaudio's convolution is set up again for every length of waveform, which takes longer than
    the convolution itself.
    """
    # A block of `source` samples becomes `target` samples; each of these has a filter.
    filters, taps_before, source, target = _filters(source_rate, target_rate)
    length = -(-len(waveform) * target_rate // source_rate)
    num_blocks = -(-length // target)
    padded = torch.zeros((num_blocks - 1) * source + len(filters))
    inside = padded[taps_before : taps_before + len(waveform)]
    inside.copy_(waveform[: len(inside)])

    return torch.mm(padded.unfold(0, len(filters), source), filters).flatten()[:length]


def resampling_ratio(source_rate: int, target_rate: int) -> Fraction:
    """Return the ratio of two sample rates that is resampled, in the smallest numbers.

    There are as many filters as the denominator says, each longer than the numerator: for 44101 Hz
    they would take gigabytes. For such rates this is the nearest ratio of smaller numbers; the
    difference is below 0.05 %. Rates that are that near to one another have the ratio 1.
    """
    most = max(1, min(MOST_FILTERS, LONGEST_FILTER * target_rate // source_rate))
    return Fraction(source_rate, target_rate).limit_denominator(most)


@lru_cache(maxsize=64)
def _filters(source_rate: int, target_rate: int) -> tuple[torch.Tensor, int, int, int]:
    """Return the filters that turn blocks of `source` samples into `target` samples.

    Returns:
        filters (taps, target), the number of taps before the first sample, source, and target.
    """
    from torchaudio.transforms import Resample as SincResample  # slow import: one second

    ratio = resampling_ratio(source_rate, target_rate)
    if ratio == 1:  # torchaudio has no filters for equal rates
        return torch.ones(1, 1), 0, 1, 1

    module = SincResample(ratio.numerator, ratio.denominator)
    kernel: torch.Tensor = module.kernel  # pyright: ignore[reportAssignmentType] - a buffer of the module

    return kernel[:, 0].T.contiguous(), module.width, ratio.numerator, ratio.denominator
