"""Operators from waveform to features, and the one place that says which features a config means."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain.dither import white_noise
from wenet_uio.dataset.chain.fbank import fbank, log_mel_spectrogram, mfcc
from wenet_uio.dataset.types import Example, SkipSample


@dataclass(frozen=True)
class Dither:
    """Add white noise, so that digital silence has a finite logarithm; drawn from the sample's own seed."""

    deviation: float
    """Standard deviation on the scale of int16."""

    def __call__(self, example: Example) -> Example:
        (noise,) = white_noise(torch.tensor([example.random]), len(example.waveform))
        return replace(example, waveform=torch.add(example.waveform, noise, alpha=self.deviation))


@dataclass(frozen=True)
class ComputeFbank:
    """Log mel filter bank energies (frames, num_mel_bins)."""

    conf: FbankConf

    def __call__(self, example: Example) -> Example:
        return _with_feats(example, fbank(example.waveform, example.sample_rate, self.conf))


@dataclass(frozen=True)
class ComputeMfcc:
    """Mel cepstra (frames, num_ceps)."""

    conf: MfccConf

    def __call__(self, example: Example) -> Example:
        return _with_feats(example, mfcc(example.waveform, example.sample_rate, self.conf))


@dataclass(frozen=True)
class ComputeLogMelSpectrogram:
    """Whisper's log mel spectrogram (frames, num_mel_bins)."""

    conf: LogMelSpectrogramConf

    def __call__(self, example: Example) -> Example:
        return _with_feats(example, log_mel_spectrogram(example.waveform, example.sample_rate, self.conf))


def feature_operators(conf: DatasetConf, *, training: bool) -> tuple:
    """Operators that compute the features of `conf`; dither is a matter of training only."""
    if conf.feats_type == "log_mel_spectrogram":
        return (ComputeLogMelSpectrogram(conf.log_mel_spectrogram_conf),)
    compute = ComputeMfcc(conf.mfcc_conf) if conf.feats_type == "mfcc" else ComputeFbank(conf.fbank_conf)
    if training and compute.conf.dither:
        return Dither(compute.conf.dither), compute
    return (compute,)


def require_frames(frames: int, example: Example) -> None:
    """Leave out what is shorter than a frame."""
    if not frames:
        raise SkipSample("too_short", f"{example.waveform.numel()} samples at {example.sample_rate} Hz make no frame")


def _with_feats(example: Example, feats: torch.Tensor) -> Example:
    require_frames(len(feats), example)
    return replace(example, feats=feats, waveform=None)
