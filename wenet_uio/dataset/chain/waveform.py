"""Operators on waveforms: rates and speeds, silence and shifts, lossy codecs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.encoding import Lossy, encode_audio
from wenet_uio.audio.read import read_audio
from wenet_uio.config.augmentation import CodecConf, QuietConf, ShiftConf, TrimConf
from wenet_uio.dataset.types import Example, waveform_of

MOST_FILTERS, LONGEST_FILTER = 1000, 4000
"""Largest number and length of resampling filters, in total 16 MB. Common sample rates need far
less."""
MOST_KEPT_BYTES = 1 << 26
"""Bytes of all filters that are kept. Clients of a server may send any sample rate."""


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


class _Filters(NamedTuple):
    """Filters that turn blocks of `source` samples into `target` samples."""

    filters: torch.Tensor
    """(taps, target)."""
    taps_before: int
    """Taps before the first sample."""
    source: int
    target: int


_kept_filters: dict[tuple[int, int], _Filters] = {}
"""{source and target rate: filters}, the longest unused first. Two threads may use it: no step of
another thread can come between the parts of one call of a dictionary."""


def _filters(source_rate: int, target_rate: int) -> _Filters:
    """Return the filters for two sample rates, and keep them for the next waveform."""
    rates = source_rate, target_rate
    kept = _kept_filters.pop(rates, None)
    if kept is not None:
        _kept_filters[rates] = kept
        return kept

    made = _kept_filters[rates] = _make_filters(*rates)
    size = 0
    for older_rates, filters in reversed(list(_kept_filters.items())):
        size += filters.filters.nbytes
        if size > MOST_KEPT_BYTES:
            _kept_filters.pop(older_rates, None)
    return made


def _make_filters(source_rate: int, target_rate: int) -> _Filters:
    """Compute the filters of torchaudio for two sample rates."""
    from torchaudio.transforms import Resample as SincResample  # slow import: one second

    ratio = resampling_ratio(source_rate, target_rate)
    if ratio == 1:  # torchaudio has no filters for equal rates
        return _Filters(torch.ones(1, 1), 0, 1, 1)

    module = SincResample(ratio.numerator, ratio.denominator)
    kernel: torch.Tensor = module.kernel  # pyright: ignore[reportAssignmentType] - a buffer of the module

    filters = kernel[:, 0].T.contiguous()
    return _Filters(filters, module.width, ratio.numerator, ratio.denominator)


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


SILENT = 50.0
"""dB below the loudest frame; fainter frames at the ends are quiet that may be cut."""
DIGITAL = 0.25
"""Share of the changed utterances without noise."""


@dataclass(frozen=True)
class ChangeQuiet:
    """Cut or add quiet before and behind the speech, each to a drawn length."""

    conf: QuietConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`. The plan counts the length before, so batches may become larger."""
        random = Random(f"quiet {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform = waveform_of(example).float()
        start, end = speech_bounds(waveform, SILENT)
        before, behind = (
            round(random.uniform(*self.conf.seconds) * example.sample_rate) for _ in range(2)
        )
        # `pad` cuts where a length is below 0.
        changed = pad(waveform, (before - start, behind - (len(waveform) - end)))

        is_digital, level = random.random() < DIGITAL, random.uniform(*self.conf.level)
        if not is_digital:
            generator = torch.Generator().manual_seed(random.getrandbits(62))
            noise = torch.randn(len(changed), generator=generator)
            changed += INT16_SCALE * 10 ** (level / 20) * noise
        return replace(example, waveform=changed)


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


TELEPHONE = 8000
"""Sample rate of mu-law, in Hz."""


@dataclass(frozen=True)
class LossyCodec:
    """Apply a drawn codec or band limit. Codecs clip the waveform at full scale."""

    conf: CodecConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays."""
        random = Random(f"codec {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform, rate = waveform_of(example), example.sample_rate
        codec = random.choice(self.conf.codecs)
        if codec == "band_limit":
            changed = _degrade(waveform, rate, random.choice(self.conf.band_rates), None)
        else:
            rate_of_codec = TELEPHONE if codec == "mulaw" else rate
            changed = _degrade(waveform, rate, rate_of_codec, codec)

        return replace(example, waveform=changed)


def _degrade(waveform: torch.Tensor, rate: int, lower: int, codec: Lossy | None) -> torch.Tensor:
    """Return what is left of a waveform at a lower rate and after a codec: at its rate, and as long
    as before.

    Args:
        lower: Hz; a rate that is not lower changes nothing.
        codec: None: no codec.
    """
    is_resampled = lower < rate
    changed = resample(waveform, rate, lower) if is_resampled else waveform
    if codec is not None:
        encoded = encode_audio(changed.numpy()[:, None], min(lower, rate), codec)
        changed = torch.from_numpy(read_audio(encoded)[0])
    if is_resampled:
        changed = resample(changed, lower, rate)

    # Filters and codecs change the number of samples a little.
    missing = len(waveform) - len(changed)
    if missing > 0:
        return torch.nn.functional.pad(changed, (0, missing))
    return changed[: len(waveform)]
