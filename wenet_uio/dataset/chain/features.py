"""Operators that compute features from a waveform, and the choice of features by the config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain.compiled import compiled
from wenet_uio.dataset.chain.dither import dithered
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
        return _with_feats(examples, lambda waves, rate: fbanks(waves, rate, self.conf))


@dataclass(frozen=True)
class ComputeMfcc(BatchOperator):
    """Mel cepstra (frames, num_ceps)."""

    conf: MfccConf

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Replace `waveform` by `feats`."""
        return _with_feats(examples, lambda waves, rate: mfccs(waves, rate, self.conf))


@dataclass(frozen=True)
class ComputeLogMelSpectrogram(BatchOperator):
    """OpenAI's log mel spectrogram (frames, num_mel_bins)."""

    conf: LogMelSpectrogramConf

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Replace `waveform` by `feats`."""
        return _with_feats(
            examples,
            lambda waves, rate: [log_mel_spectrogram(wave, rate, self.conf) for wave in waves],
        )


def feature_operators(
    conf: DatasetConf, *, training: bool
) -> tuple[Callable[[Example], Example], ...]:
    """Return the operators that compute the features which `conf` selects; only training adds
    dither.

    What these operators call is compiled now if it is missing, so that no worker has to.
    """
    if conf.feats_type == "log_mel_spectrogram":
        return (ComputeLogMelSpectrogram(conf.log_mel_spectrogram_conf),)

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


def _with_feats(
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
