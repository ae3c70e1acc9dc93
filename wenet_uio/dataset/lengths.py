"""Lengths that the plan and the chain count alike: feature frames, and tokens of audio; and the filters
on tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
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


def frame_count(conf: DatasetConf, *, training: bool = False) -> FrameCount:
    """Return the frame count of the features that `conf` selects, in training or evaluation."""
    rate = conf.resample_conf.resample_rate
    if conf.feats_type == "log_mel_spectrogram":
        mel = conf.log_mel_spectrogram_conf.for_use(training=training)
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


FILTER_FRAMES_PER_SECOND = 100
"""`filter_conf` counts frames of 10 ms; the frame shift of the features does not matter."""


def token_count_filters(
    conf: FilterConf, tokens: np.ndarray | int, text_only: np.ndarray | bool
) -> list[tuple[str, np.ndarray]]:
    """Return filters on the number of tokens: (reason, whether it leaves each sample out).

    Args:
        conf: the bounds.
        tokens: of each sample.
        text_only: whether each sample is a text without audio, a pair or a conversation, which
            `min_tokens` and `max_tokens` bound.
    """
    tokens, text_only = np.asarray(tokens), np.asarray(text_only)
    bounds = (
        ("max_tokens", "token_max_length", np.greater),
        ("min_tokens", "token_min_length", np.less),
    )
    filters = []
    for key_for_text, key_for_all, is_out in bounds:
        text_bound, bound = getattr(conf, key_for_text), getattr(conf, key_for_all)
        leaves_out = is_out(tokens, bound)
        if text_bound is None:
            filters.append((key_for_all, leaves_out))
        else:
            filters.append((key_for_text, is_out(tokens, text_bound) & text_only))
            filters.append((key_for_all, leaves_out & ~text_only))

    return filters


def bounds_audio_tokens(conf: FilterConf) -> bool:
    """Tell whether `min_tokens` or `max_tokens` bound utterances with audio."""
    has_bounds = conf.min_tokens is not None or conf.max_tokens is not None
    return has_bounds and conf.token_equivalent_duration is not None


def audio_token_filters(conf: FilterConf, tokens: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return filters on the length of utterances in tokens: (reason, whether it leaves each out)."""
    filters = []
    if conf.max_tokens is not None:
        filters.append(("max_tokens", tokens > conf.max_tokens))
    if conf.min_tokens is not None:
        filters.append(("min_tokens", tokens < conf.min_tokens))
    return filters


def token_rate_filters(
    conf: FilterConf, tokens: np.ndarray | int, frames: np.ndarray | float
) -> list[tuple[str, np.ndarray]]:
    """Return filters on tokens per unit of time: (reason, whether it leaves each sample out).

    `frames` are frames of 10 ms of the stored audio, before speed perturbation.
    """
    ratio = np.asarray(tokens) / np.maximum(frames, 1e-6)
    filters = [
        ("min_output_input_ratio", ratio < conf.min_output_input_ratio),
        ("max_output_input_ratio", ratio > conf.max_output_input_ratio),
        ("min_tps", ratio * FILTER_FRAMES_PER_SECOND < conf.min_tps),
    ]
    if conf.max_tps is not None:
        filters.append(("max_tps", ratio * FILTER_FRAMES_PER_SECOND > conf.max_tps))

    return filters


def token_ratio_filters(
    conf: FilterConf, tokens: int, source_tokens: int
) -> list[tuple[str, np.ndarray]]:
    """Return filters on tokens of the second text of a pair per token of the first: (reason,
    whether it applies).
    """
    ratio = np.asarray(tokens / max(source_tokens, 1))
    filters = [("min_tpt", ratio < conf.min_tpt)]
    if conf.max_tpt is not None:
        filters.append(("max_tpt", ratio > conf.max_tpt))
    return filters
