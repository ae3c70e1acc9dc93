"""Count feature frames from the number of samples of a waveform."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class FrameCount:
    """How many feature frames the chain computes from a waveform."""

    sample_rate: int
    """Hz, after resampling."""
    window: int
    """Samples."""
    shift: int
    """Samples."""
    snip_edges: bool = True
    """True: only windows inside the waveform. False: one frame for each shift."""
    padding: int = 0
    """Samples of silence appended to each waveform."""
    fixed_samples: int | None = None
    """Length in samples to which every waveform is padded or trimmed; None keeps the lengths."""

    def __call__(self, num_samples: np.ndarray | int) -> np.ndarray:
        """Return the number of frames of waveforms of `num_samples` samples at `sample_rate`."""
        num_samples = np.asarray(num_samples)
        if self.fixed_samples is not None:
            num_samples = np.full_like(num_samples, self.fixed_samples)

        num_samples = num_samples + self.padding
        if self.snip_edges:
            return np.maximum(0, 1 + (num_samples - self.window) // self.shift)

        return (num_samples + self.shift // 2) // self.shift


def tokens_of_audio(seconds: np.ndarray | float, seconds_of_token: float) -> np.ndarray:
    """Return the tokens that audio counts, int64: rounded up, at least 1."""
    # 0.24 s are 3 tokens of 0.08 s; 0.24 / 0.08 is a little more than 3
    tokens = np.ceil(np.round(np.asarray(seconds) / seconds_of_token, 6))
    return np.maximum(tokens, 1).astype(np.int64)


def frame_count(conf: DatasetConf) -> FrameCount:
    """Return the frame count of the features that `conf` selects."""
    rate = conf.resample_conf.resample_rate
    if conf.feats_type == "log_mel_spectrogram":
        mel = conf.log_mel_spectrogram_conf
        fixed = rate * mel.max_duration if mel.pad_or_trim else None

        # num_samples // hop_length: both ends are padded by half a window, and the last frame is
        # dropped. A window of one shift counts the same.
        return FrameCount(
            sample_rate=rate,
            window=mel.hop_length,
            shift=mel.hop_length,
            snip_edges=True,
            padding=0 if fixed else mel.padding,
            fixed_samples=fixed,
        )

    feats = conf.mfcc_conf if conf.feats_type == "mfcc" else conf.fbank_conf
    window = int(rate * feats.frame_length * 0.001)  # lengths are in milliseconds
    shift = int(rate * feats.frame_shift * 0.001)
    return FrameCount(rate, window, shift, feats.snip_edges)


def resampled_length(
    num_samples: np.ndarray, source_rate: np.ndarray | int, target_rate: int
) -> np.ndarray:
    """Return the number of samples after resampling: ceil(n * target / source)."""
    return -(-num_samples * target_rate // source_rate)


def seconds_of(example: Example) -> float:
    """Return seconds of the waveform of an example, or of its stored features, before the chain
    changes them.
    """
    signal = example.waveform if example.feats is None else example.feats
    return 0.0 if signal is None else len(signal) / example.sample_rate
