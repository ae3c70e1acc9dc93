"""Batch policies: how much of a batch each sample fills.

A policy gives each sample a number of *units*; the padded cost of a batch is its number of samples times the largest
units among them, and no batch costs more than the policy's bound. One planner serves every policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from wenet_uio.config.dataset import BatchConf

WHOLE = 1 << 30
"""Bound where a policy counts utterances: a sample's units are this over the batch size of its kind."""
DEFAULT_BATCH_SIZE = 16
ANY_TOKENS = int(np.iinfo(np.int64).max)
NO_BUCKET = -1
TEXT_BUCKET = 1 << 20
"""Bucket of all that is text alone."""


def no_buckets(lengths: Lengths) -> np.ndarray:
    """What `buckets` says of samples that may share a batch with any other."""
    return np.full(len(lengths.frames), NO_BUCKET)


@dataclass(frozen=True)
class Lengths:
    """Of samples as they will be played; one row a sample."""

    frames: np.ndarray
    milliseconds: np.ndarray
    tokens: np.ndarray
    """Or characters, where the tokenizer does not make one token of each."""
    text_only: np.ndarray
    """bool: samples without audio; their frames are their tokens, so that they are sorted by those."""


class Policy(Protocol):
    """What the planner asks of a policy."""

    bound: int
    """Largest padded cost of a batch."""
    fill: ClassVar[float]
    """Share of the bound that a batch is to fill where its group is planned unseen; more would split batches."""
    needs_tokens: bool
    """Whether `units` looks at tokens."""

    def units(self, lengths: Lengths) -> np.ndarray:
        """Units of each sample, int64; more than the bound for one that no batch may hold."""
        ...

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Bucket of each sample where batches keep buckets apart, else NO_BUCKET."""
        ...

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        """Units of whole shards from their totals; None where the samples must be looked at."""
        ...


@dataclass(frozen=True)
class StaticPolicy:
    """A number of utterances."""

    batch_size: int
    fill: ClassVar[float] = 0.99
    needs_tokens: ClassVar[bool] = False

    @property
    def bound(self) -> int:
        return self.batch_size

    def units(self, lengths: Lengths) -> np.ndarray:
        return np.ones(len(lengths.frames), np.int64)

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return no_buckets(lengths)

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return samples.astype(np.float64)


@dataclass(frozen=True)
class FramesPolicy:
    """Padded frames."""

    bound: int
    fill: ClassVar[float] = 0.94
    needs_tokens: ClassVar[bool] = False

    def units(self, lengths: Lengths) -> np.ndarray:
        return np.maximum(lengths.frames, 1).astype(np.int64)

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return no_buckets(lengths)

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return frames


@dataclass(frozen=True)
class DurationPolicy:
    """Padded milliseconds, with a quadratic term and a limit of utterances where asked for (NeMo's batch_duration)."""

    bound: int
    quadratic: int | None = None
    """Milliseconds at which an utterance counts twice."""
    batch_size: int | None = None
    fill: ClassVar[float] = 0.94
    needs_tokens: ClassVar[bool] = False

    def units(self, lengths: Lengths) -> np.ndarray:
        units = np.maximum(lengths.milliseconds, 1).astype(np.int64)
        if self.quadratic is not None:
            units = units + units * units // self.quadratic
        if self.batch_size is not None:
            units = np.maximum(units, self.bound // (self.batch_size + 1) + 1)
        return units

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return no_buckets(lengths)

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return 1000 * seconds if self.quadratic is None and self.batch_size is None else None


@dataclass(frozen=True)
class BucketPolicy:
    """A number of utterances for each range of lengths in frames; beyond the last end there is one bucket more."""

    ends: tuple[int, ...]
    """Frames, exclusive."""
    sizes: tuple[int, ...]
    bound: int = WHOLE
    fill: ClassVar[float] = 0.94
    needs_tokens: ClassVar[bool] = False

    def units(self, lengths: Lengths) -> np.ndarray:
        units = np.maximum.accumulate(WHOLE // np.asarray(self.sizes, np.int64))
        return units[np.searchsorted(self.ends, lengths.frames, side="right")]

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return no_buckets(lengths)

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return None


@dataclass(frozen=True)
class DurationBucketPolicy:
    """A number of utterances for each bin of duration, or of duration and tokens (Lhotse's and NeMo's buckets)."""

    ends: tuple[tuple[int, int], ...]
    """Milliseconds and tokens, inclusive, rising; tokens of the largest integer where only duration counts."""
    sizes: tuple[int, ...]
    """One more than the ends where longer samples have a bucket too."""
    lenient: bool = False
    max_tps: tuple[float, ...] | None = None
    """Tokens per second that each duration keeps, in the order of the ends."""
    bound: int = WHOLE
    fill: ClassVar[float] = 0.94

    @property
    def needs_tokens(self) -> bool:
        return self._two_dimensions or self.max_tps is not None

    @property
    def _two_dimensions(self) -> bool:
        return any(tokens != ANY_TOKENS for _, tokens in self.ends)

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return self.bucket_of(lengths) if self._two_dimensions else no_buckets(lengths)

    def bucket_of(self, lengths: Lengths) -> np.ndarray:
        """Bucket of each sample; the number of sizes where none fits."""
        milliseconds, tokens = (np.asarray(column) for column in zip(*self.ends, strict=True))
        fits = (lengths.milliseconds[:, None] <= milliseconds) & (lengths.tokens[:, None] <= tokens)
        if not self.lenient:
            first = np.searchsorted(milliseconds, lengths.milliseconds, side="left")
            own = milliseconds[np.minimum(first, len(milliseconds) - 1)]
            fits &= milliseconds == own[:, None]
        if self.max_tps is not None:
            limits = np.asarray(self.max_tps)[np.searchsorted(np.unique(milliseconds), milliseconds)]
            fits &= 1000 * lengths.tokens[:, None] <= limits * np.maximum(lengths.milliseconds[:, None], 1)
        found = fits.any(axis=1)
        beyond = np.where(lengths.milliseconds > milliseconds[-1], len(self.ends), len(self.sizes))
        return np.where(found, fits.argmax(axis=1), beyond)

    def units(self, lengths: Lengths) -> np.ndarray:
        units = np.append(WHOLE // np.asarray(self.sizes, np.int64), WHOLE + 1)
        return units[self.bucket_of(lengths)]

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return None


@dataclass(frozen=True)
class TextPolicy:
    """A number of padded tokens for what is text alone, and another policy for what has audio; no batch holds both."""

    audio: Policy
    batch_tokens: int
    quadratic: int | None = None
    """Tokens at which a text counts twice."""
    needs_tokens: ClassVar[bool] = True

    @property
    def bound(self) -> int:
        return self.audio.bound

    @property
    def fill(self) -> float:
        return self.audio.fill

    def units(self, lengths: Lengths) -> np.ndarray:
        tokens = np.maximum(lengths.tokens, 1)
        if self.quadratic is not None:
            tokens = tokens + tokens * tokens // self.quadratic
        return np.where(lengths.text_only, -(-tokens * self.bound // self.batch_tokens), self.audio.units(lengths))

    def buckets(self, lengths: Lengths) -> np.ndarray:
        return np.where(lengths.text_only, TEXT_BUCKET, self.audio.buckets(lengths))

    def table_units(self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
        return self.audio.table_units(samples, seconds, frames)


def policy_of(conf: BatchConf) -> Policy:
    """The policy that `batch_conf` asks for."""
    policy = _audio_policy_of(conf)
    return policy if conf.batch_tokens is None else TextPolicy(policy, conf.batch_tokens, conf.quadratic_factor)


def _audio_policy_of(conf: BatchConf) -> Policy:
    if conf.batch_type == "static":
        return StaticPolicy(conf.batch_size or DEFAULT_BATCH_SIZE)
    if conf.batch_type == "dynamic":
        if conf.batch_duration is None:
            return FramesPolicy(conf.max_frames_in_batch)
        quadratic = None if conf.quadratic_duration is None else round(1000 * conf.quadratic_duration)
        return DurationPolicy(round(1000 * conf.batch_duration), quadratic, conf.batch_size)
    if conf.bucket_duration_bins is None:
        return BucketPolicy(conf.bucket_boundaries, conf.bucket_batch_sizes)
    ends = tuple(end if isinstance(end, tuple) else (end, ANY_TOKENS) for end in conf.bucket_duration_bins)
    return DurationBucketPolicy(
        tuple((round(1000 * seconds), tokens) for seconds, tokens in ends),
        conf.bucket_batch_size,
        lenient=conf.bucket_choice == "lenient",
        max_tps=conf.max_tps,
    )
