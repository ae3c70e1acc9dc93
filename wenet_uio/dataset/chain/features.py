"""Operators that compute features from a waveform, and the choice of features by the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain.dither import white_noise
from wenet_uio.dataset.chain.fbank import fbank, log_mel_spectrogram, mfcc
from wenet_uio.dataset.types import Example, SkipSample, waveform_of


@dataclass(frozen=True)
class Dither:
    """Add white noise, drawn from the seed of the sample, so that digital silence has a finite
    logarithm.
    """

    deviation: float
    """Standard deviation on the scale of int16."""

    def __call__(self, example: Example) -> Example:
        """Change `waveform`."""
        waveform = waveform_of(example)
        (noise,) = white_noise(torch.tensor([example.random]), len(waveform))
        return replace(example, waveform=torch.add(waveform, noise, alpha=self.deviation))


@dataclass(frozen=True)
class ComputeFbank:
    """Log mel filter bank energies (frames, num_mel_bins)."""

    conf: FbankConf

    def __call__(self, example: Example) -> Example:
        """Replace `waveform` by `feats`."""
        return _with_feats(example, fbank(waveform_of(example), example.sample_rate, self.conf))


@dataclass(frozen=True)
class ComputeMfcc:
    """Mel cepstra (frames, num_ceps)."""

    conf: MfccConf

    def __call__(self, example: Example) -> Example:
        """Replace `waveform` by `feats`."""
        return _with_feats(example, mfcc(waveform_of(example), example.sample_rate, self.conf))


@dataclass(frozen=True)
class ComputeLogMelSpectrogram:
    """OpenAI's log mel spectrogram (frames, num_mel_bins)."""

    conf: LogMelSpectrogramConf

    def __call__(self, example: Example) -> Example:
        """Replace `waveform` by `feats`."""
        return _with_feats(
            example, log_mel_spectrogram(waveform_of(example), example.sample_rate, self.conf)
        )


def feature_operators(
    conf: DatasetConf, *, training: bool
) -> tuple[Callable[[Example], Example], ...]:
    """Return the operators that compute the features which `conf` selects; only training adds
    dither.
    """
    if conf.feats_type == "log_mel_spectrogram":
        return (ComputeLogMelSpectrogram(conf.log_mel_spectrogram_conf),)

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


def _with_feats(example: Example, feats: torch.Tensor) -> Example:
    require_frames(len(feats), example)
    return replace(example, feats=feats, waveform=None)
