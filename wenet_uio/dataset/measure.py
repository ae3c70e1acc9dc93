"""From the columns of an index to what a plan needs: who takes part, and how many frames each has."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from wenet_uio.config.dataset import DatasetConf, FilterConf
from wenet_uio.dataset.batching import Policy, policy_of
from wenet_uio.dataset.index import Rows

FILTER_FRAMES_PER_SECOND = 100
"""filter_conf counts frames of 10 ms, whatever the features' frame shift."""


@dataclass(frozen=True)
class FrameCount:
    """Frames that the chain makes of a waveform."""

    sample_rate: int
    """Hz, after resampling."""
    window: int
    """Samples."""
    shift: int
    """Samples."""
    snip_edges: bool = True
    """True: only whole windows; False: one frame a shift."""
    padding: int = 0
    """Samples of silence behind each waveform."""
    fixed_samples: int | None = None
    """Length that every waveform is brought to, where it is."""

    def __call__(self, num_samples: np.ndarray) -> np.ndarray:
        """Frames of waveforms of `num_samples` at `sample_rate`."""
        if self.fixed_samples is not None:
            num_samples = np.full_like(num_samples, self.fixed_samples)
        num_samples = num_samples + self.padding
        if self.snip_edges:
            return np.maximum(0, 1 + (num_samples - self.window) // self.shift)
        return (num_samples + self.shift // 2) // self.shift


def frame_count(conf: DatasetConf) -> FrameCount:
    """How the features of `conf` count frames."""
    rate = conf.resample_conf.resample_rate
    if conf.feats_type == "log_mel_spectrogram":
        mel = conf.log_mel_spectrogram_conf
        fixed = rate * mel.max_duration if mel.pad_or_trim else None
        return FrameCount(rate, mel.hop_length, mel.hop_length, True, 0 if fixed else mel.padding, fixed)
    feats = conf.mfcc_conf if conf.feats_type == "mfcc" else conf.fbank_conf
    window, shift = (int(rate * ms * 0.001) for ms in (feats.frame_length, feats.frame_shift))
    return FrameCount(rate, window, shift, feats.snip_edges)


def resampled_length(num_samples: np.ndarray, source_rate: np.ndarray | int, target_rate: int) -> np.ndarray:
    """Samples that resampling leaves: ceil(n * target / source)."""
    return -(-num_samples * target_rate // source_rate)


@dataclass(frozen=True)
class Measure:
    """Which samples take part in an epoch, and what each costs."""

    policy: Policy
    frame_count: FrameCount
    filter: FilterConf | None = None
    """None keeps every sample: evaluation leaves nothing out."""
    speeds: tuple[float, ...] = (1.0,)
    """Drawn from for each sample and epoch."""
    text_length_is_tokens: bool = False
    """True where the tokenizer makes one token a character, so that token bounds can be checked from the index."""

    def digest(self) -> str:
        """Of everything here: a plan is only resumed under the policy it was made with."""
        return hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()

    def keep(self, rows: Rows) -> tuple[np.ndarray, Counter[str]]:
        """Which rows take part (bool), and how many the others are by reason."""
        kept = np.ones(len(rows), bool)
        reasons: Counter[str] = Counter()
        for reason, bad in self._filters(rows):
            reasons[reason] += int(np.count_nonzero(kept & bad))
            kept &= ~bad
        return kept, +reasons

    def frames(self, num_samples: np.ndarray, sample_rate: np.ndarray, speeds: np.ndarray | float = 1.0) -> np.ndarray:
        """Frames of samples as stored, played at `speeds`."""
        rate = self.frame_count.sample_rate
        count = resampled_length(num_samples.astype(np.int64), sample_rate.astype(np.int64), rate)
        return self.frame_count(np.ceil(count / speeds).astype(np.int64))

    def shard_can_lose(self, shortest: np.ndarray, longest: np.ndarray) -> np.ndarray:
        """Whether a shard with these extremes (seconds) may hold samples that `keep` leaves out."""
        if self.filter is None:
            return np.zeros(len(shortest), bool)
        if self.text_length_is_tokens:
            return np.ones(len(shortest), bool)
        low, high = (bound / FILTER_FRAMES_PER_SECOND for bound in (self.filter.min_length, self.filter.max_length))
        return (shortest < low) | (longest > min(high, self._longest_seconds()))

    def _longest_seconds(self) -> float:
        """Length above which a sample alone may be over the bound of a batch; infinite unless batches are dynamic."""
        if self.policy.kind != "dynamic":
            return np.inf
        return self.policy.bound * self.frame_count.shift / self.frame_count.sample_rate * min(self.speeds)

    def _filters(self, rows: Rows) -> list[tuple[str, np.ndarray]]:
        if self.filter is None:
            return []
        frames = rows.seconds * FILTER_FRAMES_PER_SECOND
        units = self.policy.units(self.frames(rows.num_samples, rows.sample_rate, min(self.speeds)))
        fastest = self.frames(rows.num_samples, rows.sample_rate, max(self.speeds))
        filters = [
            ("max_length", frames > self.filter.max_length),
            ("min_length", (frames < self.filter.min_length) | (fastest < 1)),
            ("longer_than_a_batch", units > self.policy.bound),
        ]
        if self.text_length_is_tokens:
            tokens = rows.text_length.astype(np.int64)
            filters += [(reason, np.asarray(bad)) for reason, bad in token_filters(self.filter, tokens, frames)]
        return filters


def token_filters(
    conf: FilterConf, tokens: np.ndarray | int, frames: np.ndarray | float
) -> list[tuple[str, np.ndarray]]:
    """Reasons to leave a sample out for its text, with whether each holds.

    `frames` are of 10 ms, of the audio as stored.
    """
    ratio = np.asarray(tokens) / np.maximum(frames, 1e-6)
    return [
        ("token_max_length", np.asarray(tokens) > conf.token_max_length),
        ("token_min_length", np.asarray(tokens) < conf.token_min_length),
        ("min_output_input_ratio", ratio < conf.min_output_input_ratio),
        ("max_output_input_ratio", ratio > conf.max_output_input_ratio),
    ]


def measure_of(conf: DatasetConf, *, training: bool, text_length_is_tokens: bool = False) -> Measure:
    """The measure that `dataset_conf` asks for; evaluation filters nothing and perturbs nothing."""
    if not training:
        return Measure(policy_of(conf.batch_conf), frame_count(conf))
    speeds = conf.speed_perturb_conf.speeds if conf.speed_perturb else (1.0,)
    return Measure(policy_of(conf.batch_conf), frame_count(conf), conf.filter_conf, speeds, text_length_is_tokens)
