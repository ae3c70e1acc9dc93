"""Operators that compute features from a waveform, dither before them, and the choice of features by
the config.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain.compiled import compiled, int16_or_float32
from wenet_uio.dataset.chain.fbank import fbanks, log_mel_spectrogram, mfccs
from wenet_uio.dataset.types import BatchOperator, Example, SkipSample, waveform_of


@dataclass(frozen=True)
class Dither(BatchOperator):
    """Add white noise, drawn from the seed of the sample, so that digital silence has a finite
    logarithm.
    """

    deviation: float
    """Standard deviation on the scale of int16."""

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Change `waveform`."""
        waveforms = [waveform_of(example) for example in examples]
        sums = dithered(waveforms, [example.random for example in examples], self.deviation)
        return [
            replace(example, waveform=waveform)
            for example, waveform in zip(examples, sums, strict=True)
        ]


@dataclass(frozen=True)
class ComputeFbank(BatchOperator):
    """Log mel filter bank energies (frames, num_mel_bins)."""

    conf: FbankConf

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Replace `waveform` by `feats`."""
        return _compute_feats(examples, lambda waves, rate: fbanks(waves, rate, self.conf))


@dataclass(frozen=True)
class ComputeMfcc(BatchOperator):
    """Mel cepstra (frames, num_ceps)."""

    conf: MfccConf

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Replace `waveform` by `feats`."""
        return _compute_feats(examples, lambda waves, rate: mfccs(waves, rate, self.conf))


@dataclass(frozen=True)
class ComputeLogMelSpectrogram(BatchOperator):
    """OpenAI's log mel spectrogram (frames, num_mel_bins)."""

    conf: LogMelSpectrogramConf

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Replace `waveform` by `feats`."""
        return _compute_feats(
            examples,
            lambda waves, rate: [log_mel_spectrogram(wave, rate, self.conf) for wave in waves],
        )


def feature_operators(
    conf: DatasetConf, *, training: bool
) -> tuple[Callable[[Example], Example], ...]:
    """Return the operators that compute the features which `conf` selects; only training adds
    dither, and may leave out padding.

    What these operators call is compiled now if it is missing, so that no worker has to.
    """
    if conf.feats_type == "log_mel_spectrogram":
        mel_conf = conf.log_mel_spectrogram_conf.for_use(training=training)
        return (ComputeLogMelSpectrogram(mel_conf),)

    compiled()
    compute = (
        ComputeMfcc(conf.mfcc_conf) if conf.feats_type == "mfcc" else ComputeFbank(conf.fbank_conf)
    )
    if training and compute.conf.dither:
        return Dither(compute.conf.dither), compute

    return (compute,)


def require_frames(frames: int, example: Example) -> None:
    """Leave out an example whose waveform is too short for a frame.

    Raises:
        SkipSample: `frames` is 0.
    """
    if not frames:
        samples = waveform_of(example).numel()
        raise SkipSample(
            "too_short", f"{samples} samples at {example.sample_rate} Hz make no frame"
        )


def _compute_feats(
    examples: Sequence[Example],
    compute: Callable[[Sequence[torch.Tensor], int], Sequence[torch.Tensor]],
) -> list[Example | SkipSample]:
    """Replace the waveforms of examples by their features.

    Args:
        compute: (waveforms, their sample rate) -> the features of each.
    """
    changed: list[Example | SkipSample] = [*examples]
    for rate in {example.sample_rate for example in examples}:
        places = [place for place, example in enumerate(examples) if example.sample_rate == rate]
        feats_of_all = compute([waveform_of(examples[place]) for place in places], rate)
        for place, feats in zip(places, feats_of_all, strict=True):
            try:
                require_frames(len(feats), examples[place])
                changed[place] = replace(examples[place], feats=feats, waveform=None)
            except SkipSample as skip:
                changed[place] = skip

    return changed


LEVELS = 1 << 16
"""Number of values of the noise: quantiles of the normal distribution, up to 4.3 standard
deviations."""


GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Step of the counters, as int64."""
CHUNK = 1 << 16
"""Numbers that are mixed together on a CPU: 0.5 MB."""


def white_noise(seeds: torch.Tensor, samples: int) -> torch.Tensor:
    """Draw normal noise of standard deviation 1, (B, samples) float32 on the device of `seeds` (B,)
    int64.

    SplitMix64 (Steele et al., OOPSLA 2014) of a counter gives 64-bit numbers; each number selects
    four samples.
    """
    counters = torch.arange(1, -(-samples // 4) + 1, device=seeds.device)
    noise = _noise_of((seeds[:, None] + counters * GOLDEN).flatten())
    return noise.view(len(seeds), -1)[:, :samples]


def dithered(
    waveforms: Sequence[torch.Tensor], seeds: Sequence[int], deviation: float
) -> list[torch.Tensor]:
    """Return each waveform (samples,) plus `white_noise` of its seed times a deviation, float32 on
    the CPU.
    """
    functions = compiled().functions
    if functions is None:
        noises = white_noises(seeds, [*map(len, waveforms)])
        return [
            torch.add(waveform, noise, alpha=deviation)
            for waveform, noise in zip(waveforms, noises, strict=True)
        ]

    quantiles = _quantiles(torch.device("cpu"))
    sums: list[torch.Tensor] = []
    for waveform, seed in zip(waveforms, seeds, strict=True):
        waveform = int16_or_float32(waveform)
        sums.append(torch.empty(len(waveform)))
        functions.add_noise(
            ctypes.c_void_p(waveform.data_ptr()),
            ctypes.c_int(waveform.dtype == torch.int16),
            ctypes.c_int64(len(waveform)),
            ctypes.c_uint64(seed),
            ctypes.c_float(deviation),
            ctypes.c_void_p(quantiles.data_ptr()),
            ctypes.c_void_p(sums[-1].data_ptr()),
        )

    return sums


def white_noises(seeds: Sequence[int], samples: Sequence[int]) -> list[torch.Tensor]:
    """Return `white_noise` of each seed, with a number of samples of its own, on the CPU."""
    counts = [-(-number // 4) for number in samples]
    steps = torch.arange(1, max(counts, default=0) + 1) * GOLDEN
    numbers = torch.cat([steps[:count] + seed for seed, count in zip(seeds, counts, strict=True)])
    noise = torch.cat([_noise_of(chunk) for chunk in numbers.split(CHUNK)])

    rows = noise.split([4 * count for count in counts])
    return [row[:number] for row, number in zip(rows, samples, strict=True)]


def _noise_of(numbers: torch.Tensor) -> torch.Tensor:
    """Mix seeds plus counters (n,) in place, and return the noise (4 * n,) that they select."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        # >> fills with the sign bit
        numbers ^= (numbers >> shift).bitwise_and_((1 << (64 - shift)) - 1)
        numbers *= factor - (1 << 64)  # the int64 with the same bits

    numbers ^= (numbers >> 31).bitwise_and_((1 << 33) - 1)
    level = numbers.view(torch.int16).flatten().to(torch.int32).add_(LEVELS // 2)
    return _quantiles(numbers.device).index_select(0, level)


@lru_cache(maxsize=4)
def _quantiles(device: torch.device) -> torch.Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(middles).float().to(device)
