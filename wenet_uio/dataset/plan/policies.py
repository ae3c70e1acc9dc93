"""Batch policies: how much of a batch each sample fills.

A policy gives each sample a number of *units*. The padded cost of a batch is its number of samples
times the largest units among them, and no batch costs more than the policy's bound. The planner is
the same for all policies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.lengths import tokens_of_audio

NO_BUCKET = -1
"""Bucket of samples that may share a batch with any other sample that has audio."""
TEXT_BUCKET = 1 << 20
"""Bucket of text without audio."""
WHOLE = 1 << 30
"""Bound of policies that count utterances: the units of a sample are WHOLE divided by the batch
size of its kind."""
DEFAULT_BATCH_SIZE = 16
ANY_TOKENS = int(np.iinfo(np.int64).max)
"""End of a bucket that any number of tokens fits."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of samples after speed perturbation; one row per sample."""

    frames: np.ndarray
    milliseconds: np.ndarray
    tokens: np.ndarray
    """Tokens if the index counts tokens, otherwise characters."""
    text_only: np.ndarray
    """bool: samples without audio. Their frames are their tokens, so that they are sorted by
    tokens."""
    entries: np.ndarray | None = None
    """Entry of a mixture that each sample belongs to; only policies by entry read them."""

    def select(self, chosen: np.ndarray) -> Lengths:
        """Return the lengths of some samples, without their entries."""
        return Lengths(
            self.frames[chosen],
            self.milliseconds[chosen],
            self.tokens[chosen],
            self.text_only[chosen],
        )


class Policy(ABC):
    """What the planner needs to know of a policy. Subclasses are frozen dataclasses."""

    bound: int
    """Largest padded cost of a batch."""
    fill: float = 0.94
    """Planned fill of a batch, as a share of the bound, for groups whose batches are counted before
    they are cut. A higher share would split more batches."""
    needs_tokens: bool = False
    """Whether `units` reads the number of tokens."""
    has_batches_of_text: bool = False
    """Whether the policy says how to batch text without audio."""

    @property
    def target(self) -> int:
        """Padded cost up to which batches are filled; a sample beyond the target has a batch of its
        own.
        """
        return self.bound

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the kind of the policy and the values that decide its batches, as JSON.

        Plans are resumed under the same identity only, so names in it must not change.
        """

    @abstractmethod
    def units(self, lengths: Lengths) -> np.ndarray:
        """Return units of each sample, int64; more than the bound for a sample that no batch may
        hold.
        """

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Return the bucket of each sample: samples of different buckets share no piece of a batch.
        NO_BUCKET fits all audio.
        """
        return np.where(lengths.text_only, TEXT_BUCKET, NO_BUCKET)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return units of whole shards from their totals, (shards,) each; None if the units of each
        sample must be added up.
        """
        return None


@dataclass(frozen=True)
class ChangedPolicy(Policy):
    """Another policy, which a subclass changes."""

    policy: Policy

    @property
    def bound(self) -> int:
        """As the policy says, and so are the other members."""
        return self.policy.bound

    @property
    def target(self) -> int:  # noqa: D102
        return self.policy.target

    @property
    def fill(self) -> float:  # noqa: D102
        return self.policy.fill

    @property
    def needs_tokens(self) -> bool:  # noqa: D102
        return self.policy.needs_tokens

    @property
    def has_batches_of_text(self) -> bool:  # noqa: D102
        return self.policy.has_batches_of_text

    def units(self, lengths: Lengths) -> np.ndarray:  # noqa: D102
        return self.policy.units(lengths)

    def buckets(self, lengths: Lengths) -> np.ndarray:  # noqa: D102
        return self.policy.buckets(lengths)

    def table_units(  # noqa: D102
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        return self.policy.table_units(samples, seconds, frames)


@dataclass(frozen=True)
class StaticPolicy(Policy):
    """A fixed number of utterances, texts or conversations."""

    batch_size: int
    fill = 0.99
    has_batches_of_text = True

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {"kind": "static", "batch_size": self.batch_size}

    @property
    def bound(self) -> int:
        """Utterances."""
        return self.batch_size

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return one unit per utterance."""
        return np.ones(len(lengths.frames), np.int64)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return the number of samples."""
        return samples.astype(np.float64)


@dataclass(frozen=True)
class FramesPolicy(Policy):
    """A bound on padded frames."""

    bound: int

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {"kind": "frames", "bound": self.bound}

    def units(self, lengths: Lengths) -> np.ndarray:
        """Frames."""
        return np.maximum(lengths.frames, 1).astype(np.int64)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return the number of frames."""
        return frames


@dataclass(frozen=True)
class DurationPolicy(Policy):
    """A bound on padded milliseconds (NeMo's `batch_duration`), perhaps with a quadratic term, and
    of utterances.
    """

    bound: int
    quadratic: int | None = None
    """Duration in milliseconds at which the quadratic term equals the linear term."""
    batch_size: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "duration",
            "bound": self.bound,
            "quadratic": self.quadratic,
            "batch_size": self.batch_size,
        }

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return milliseconds d, or d + d² / quadratic; with `batch_size` at least so much that no
        more utterances fit.
        """
        milliseconds = np.maximum(lengths.milliseconds, 1).astype(np.int64)
        return _units_of(milliseconds, self)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return milliseconds, if units are linear in the duration."""
        is_linear = self.quadratic is None and self.batch_size is None
        return 1000 * seconds if is_linear else None


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """A number of utterances for each range of lengths in frames; one more bucket holds the longest
    utterances.
    """

    ends: tuple[int, ...]
    """Frames, exclusive."""
    sizes: tuple[int, ...]
    bound: int = WHOLE

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "buckets",
            "ends": list(self.ends),
            "sizes": list(self.sizes),
            "bound": self.bound,
        }

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return WHOLE divided by the batch size of each utterance's bucket.

        A longer utterance never costs less, even if its bucket has a larger batch size.
        """
        bucket_units = np.maximum.accumulate(WHOLE // np.asarray(self.sizes, np.int64))
        return bucket_units[np.searchsorted(self.ends, lengths.frames, side="right")]


@dataclass(frozen=True)
class DurationBucketPolicy(Policy):
    """A number of utterances for each bin of duration, or of duration and tokens (buckets of Lhotse
    and NeMo).
    """

    ends: tuple[tuple[int, int], ...]
    """Milliseconds and tokens, inclusive, rising; tokens are ANY_TOKENS in buckets of duration
    only."""
    sizes: tuple[int, ...]
    """One size per bucket; one more size if there is a bucket for longer samples."""
    lenient: bool = False
    """In two dimensions: False looks only at the first bin of duration that fits, True at all
    bins."""
    max_tps: tuple[float, ...] | None = None
    """Largest tokens per second of each end, or of each bin of duration, in the order of the ends."""
    bound: int = WHOLE

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "duration_buckets",
            "ends": [list(end) for end in self.ends],
            "sizes": list(self.sizes),
            "lenient": self.lenient,
            "max_tps": None if self.max_tps is None else list(self.max_tps),
            "bound": self.bound,
        }

    @property
    def needs_tokens(self) -> bool:
        """True for buckets in two dimensions, and with `max_tps`."""
        return self.in_two_dimensions or self.max_tps is not None

    @property
    def in_two_dimensions(self) -> bool:
        """Whether the buckets bound tokens too."""
        return any(tokens != ANY_TOKENS for _, tokens in self.ends)

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """In two dimensions samples of different buckets share no piece of a batch."""
        return self.bucket_of(lengths) if self.in_two_dimensions else super().buckets(lengths)

    def bucket_of(self, lengths: Lengths) -> np.ndarray:
        """Return the number of the bucket of each sample, (samples,): the first that holds its
        duration and its tokens, or len(sizes) for a sample that no bucket fits.
        """
        max_milliseconds, max_tokens = np.asarray(self.ends).T  # (buckets,) each
        # (samples, buckets)
        fits = lengths.milliseconds[:, None] <= max_milliseconds
        fits &= lengths.tokens[:, None] <= max_tokens

        # Strict: only the buckets of the first bin of duration that is long enough, so that a
        # sample with many tokens is left out, and not put among longer ones.
        if not self.lenient:
            first = np.searchsorted(max_milliseconds, lengths.milliseconds, side="left")
            end_of_bin = max_milliseconds[np.minimum(first, len(max_milliseconds) - 1)]
            fits &= max_milliseconds == end_of_bin[:, None]

        if self.max_tps is not None:
            fits &= self._is_slow_enough(lengths, fits, np.asarray(self.max_tps))

        # A sample that is longer than all bins goes to the bucket of longer samples: its size, if
        # there is one, is the last of `sizes`.
        is_longer = lengths.milliseconds > max_milliseconds[-1]
        otherwise = np.where(is_longer, len(self.ends), len(self.sizes))
        return np.where(fits.any(axis=1), fits.argmax(axis=1), otherwise)

    def _is_slow_enough(
        self, lengths: Lengths, fits: np.ndarray, max_tps: np.ndarray
    ) -> np.ndarray:
        """Tell for each sample and bucket (samples, buckets) whether the tokens per second of the
        sample are within the limit of the bucket.

        With strict buckets the first bucket that fits decides, as in NeMo: a sample above the limit
        of this bucket is no sample of a later bucket.

        Args:
            lengths: of the samples.
            fits: (samples, buckets) whether the bucket is large enough for the sample.
            max_tps: one limit for each bucket, or for each bin of duration.
        """
        limits = max_tps
        if len(max_tps) != len(self.ends):
            end_of_bucket = np.asarray([milliseconds for milliseconds, _ in self.ends])
            bin_of_bucket = np.searchsorted(np.unique(end_of_bucket), end_of_bucket)
            limits = max_tps[bin_of_bucket]

        # tokens / seconds <= limit, without a division by 0
        durations = np.maximum(lengths.milliseconds[:, None], 1)
        is_allowed = 1000 * lengths.tokens[:, None] <= limits * durations
        if not self.lenient:
            first_fit = fits.argmax(axis=1)
            is_allowed &= np.take_along_axis(is_allowed, first_fit[:, None], axis=1)

        return is_allowed

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return a share of WHOLE; more than the bound for a sample that no bucket fits."""
        units = np.append(WHOLE // np.asarray(self.sizes, np.int64), WHOLE + 1)
        return units[self.bucket_of(lengths)]


@dataclass(frozen=True)
class TargetPolicy(ChangedPolicy):
    """Another policy whose batches are filled up to `size`, a target below its bound, in units of
    the policy.
    """

    size: int

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {"kind": "target", "policy": self.policy.identity(), "size": self.size}

    @property
    def target(self) -> int:
        """The target."""
        return self.size

    @property
    def fill(self) -> float:
        """The target as a share of the bound, unless that is above the fill of the policy."""
        return min(self.policy.fill, self.size / self.bound)


@dataclass(frozen=True)
class ViewsPolicy(ChangedPolicy):
    """Another policy, for batches that hold several views of each utterance: its bound is on the
    views.
    """

    views: int

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {"kind": "views", "policy": self.policy.identity(), "views": self.views}

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return the units of all views of a sample."""
        return self.views * self.policy.units(lengths)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return the units of all views of whole shards."""
        units = self.policy.table_units(samples, seconds, frames)
        return None if units is None else self.views * units


@dataclass(frozen=True)
class TextPolicy(Policy):
    """A bound on padded tokens for text without audio, and another policy for audio; no batch holds
    both.
    """

    audio: Policy
    batch_tokens: int
    quadratic: int | None = None
    """Tokens at which the quadratic term equals the linear term."""
    needs_tokens = True
    has_batches_of_text = True

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "text",
            "audio": self.audio.identity(),
            "batch_tokens": self.batch_tokens,
            "quadratic": self.quadratic,
        }

    @property
    def bound(self) -> int:
        """The bound of the audio policy; units of text are scaled to this bound."""
        return self.audio.bound

    @property
    def fill(self) -> float:
        """The fill of the audio policy."""
        return self.audio.fill

    def units(self, lengths: Lengths) -> np.ndarray:
        """For text its tokens n, or n + n² / quadratic, as a share of `batch_tokens`."""
        tokens = np.maximum(lengths.tokens, 1)
        if self.quadratic is not None:
            tokens = tokens + tokens * tokens // self.quadratic

        # Rounded up, so that no batch has more than `batch_tokens`.
        text_units = -(-tokens * self.bound // self.batch_tokens)
        return np.where(lengths.text_only, text_units, self.audio.units(lengths))

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Return one bucket for all text, besides those of the audio policy."""
        return np.where(lengths.text_only, TEXT_BUCKET, self.audio.buckets(lengths))

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """As the audio policy says; shards of text are always read."""
        return self.audio.table_units(samples, seconds, frames)


@dataclass(frozen=True)
class TextBucketsPolicy(Policy):
    """A number of texts without audio for each range of tokens, and another policy with the bound
    WHOLE for audio; no batch holds both.
    """

    audio: Policy
    ends: tuple[int, ...]
    """Most tokens of each bucket, rising."""
    sizes: tuple[int, ...]
    bound: int = WHOLE
    needs_tokens = True
    has_batches_of_text = True

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "text_buckets",
            "audio": self.audio.identity(),
            "ends": list(self.ends),
            "sizes": list(self.sizes),
            "bound": self.bound,
        }

    @property
    def fill(self) -> float:
        """The fill of the audio policy."""
        return self.audio.fill

    def units(self, lengths: Lengths) -> np.ndarray:
        """For text WHOLE divided by the batch size of its bucket; more than the bound for a text that
        no bucket fits.
        """
        units_of_buckets = np.append(WHOLE // np.asarray(self.sizes, np.int64), WHOLE + 1)
        text_units = units_of_buckets[self._text_bucket(lengths)]
        return np.where(lengths.text_only, text_units, self.audio.units(lengths))

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Texts of different buckets share no piece of a batch."""
        text_buckets = TEXT_BUCKET + self._text_bucket(lengths)
        return np.where(lengths.text_only, text_buckets, self.audio.buckets(lengths))

    def _text_bucket(self, lengths: Lengths) -> np.ndarray:
        """Return the bucket of each text: its place in `sizes`, or len(sizes) for a longer text."""
        return np.searchsorted(self.ends, lengths.tokens, side="left")


@dataclass(frozen=True)
class AudioTokens:
    """How utterances are measured in tokens."""

    seconds: float
    """Seconds of audio that count as one token."""
    with_text: bool
    """Add the tokens of the text."""

    def __call__(
        self, seconds: np.ndarray, tokens: np.ndarray, text_only: np.ndarray
    ) -> np.ndarray:
        """Return the length of each sample in tokens, int64.

        Args:
            seconds: of audio.
            tokens: of text.
            text_only: whether each sample has no audio, so that its text is its length.
        """
        lengths = tokens_of_audio(seconds, self.seconds)
        if self.with_text:
            lengths = lengths + tokens
        return np.where(text_only, tokens, lengths)


@dataclass(frozen=True)
class TokensPolicy(Policy):
    """A bound on padded tokens for audio and for text, and of samples; no batch holds both."""

    bound: int
    audio_tokens: AudioTokens
    quadratic: int | None = None
    """Tokens at which the quadratic term equals the linear term."""
    batch_size: int | None = None
    views: int = 1
    """Views of each utterance with audio in a batch."""
    needs_tokens = True
    has_batches_of_text = True

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {
            "kind": "tokens",
            "bound": self.bound,
            "seconds_of_token": self.audio_tokens.seconds,
            "with_text": self.audio_tokens.with_text,
            "quadratic": self.quadratic,
            "batch_size": self.batch_size,
            "views": self.views,
        }

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return tokens n, or n + n² / quadratic; with `batch_size` at least so much that no more
        samples fit. Audio counts once for each view.
        """
        seconds = lengths.milliseconds / 1000
        tokens = np.maximum(self.audio_tokens(seconds, lengths.tokens, lengths.text_only), 1)
        units = _units_of(tokens, self)
        return np.where(lengths.text_only, units, self.views * units)


def _units_of(lengths: np.ndarray, policy: DurationPolicy | TokensPolicy) -> np.ndarray:
    """Return lengths n, or n + n² / quadratic; with `batch_size` at least so much that no more
    samples fit.
    """
    units = lengths
    if policy.quadratic is not None:
        units = lengths + lengths * lengths // policy.quadratic
    if policy.batch_size is not None:
        least_units = policy.bound // (policy.batch_size + 1) + 1
        units = np.maximum(units, least_units)

    return units


@dataclass(frozen=True)
class BatchType:
    """What a `batch_type` of the yaml stands for."""

    policy: Callable[[BatchConf], Policy]
    """`policy(batch_conf)` returns the policy for samples with audio."""
    limit: Callable[[BatchConf, int, float], str]
    """`limit(batch_conf, frames, seconds)` names the key of batch_conf, with its value, that limits
    a batch whose longest utterance is that long: what to lower if a batch does not fit in memory."""


def audio_tokens_of(
    conf: BatchConf, filters: FilterConf, *, training: bool = True
) -> AudioTokens | None:
    """Return how audio is counted in tokens, for batches that `batch_tokens` bounds.

    None if another key bounds the batches of audio, such as their seconds. In training, the tokens
    of the text are added if `measure_total_length` asks for it; evaluation counts audio alone.
    """
    seconds = filters.token_equivalent_duration
    if conf.batch_type != "dynamic" or conf.batch_tokens is None or seconds is None:
        return None
    return AudioTokens(seconds, training and filters.measure_total_length)


def policy_of(conf: BatchConf, views: int = 1, audio_tokens: AudioTokens | None = None) -> Policy:
    """Return the policy that `batch_conf` describes.

    Args:
        conf: the batches.
        views: views of each utterance with audio in a batch.
        audio_tokens: how audio counts towards `batch_tokens`; None if batches of audio have another
            bound.
    """
    if audio_tokens is not None and conf.batch_tokens is not None:
        return TokensPolicy(
            conf.batch_tokens, audio_tokens, conf.quadratic_factor, conf.batch_size, views
        )

    policy = BATCH_TYPES[conf.batch_type].policy(conf)
    if views > 1:
        policy = ViewsPolicy(policy, views)
    if conf.token_buckets is not None:
        max_tokens, batch_sizes = zip(*conf.token_buckets, strict=True)
        return TextBucketsPolicy(policy, max_tokens, batch_sizes)
    if conf.batch_tokens is not None:
        return TextPolicy(policy, conf.batch_tokens, conf.quadratic_factor)
    return policy


def limiting_key(conf: BatchConf, frames: int, seconds: float) -> str:
    """Return the key of batch_conf, with its value, that limits the size of a batch with audio.

    `frames` and `seconds` are those of the longest utterance of the batch.
    """
    return BATCH_TYPES[conf.batch_type].limit(conf, frames, seconds)


def _static_policy_of(conf: BatchConf) -> Policy:
    return StaticPolicy(conf.batch_size or DEFAULT_BATCH_SIZE)


def _static_limit(conf: BatchConf, frames: int, seconds: float) -> str:
    return f"batch_size (now {conf.batch_size or 'absent'})"


def _dynamic_policy_of(conf: BatchConf) -> Policy:
    """Return the policy of `batch_type: dynamic`: a bound on frames, or on seconds."""
    policy: Policy
    if conf.batch_duration is None:
        units_of_target = 1  # batch_target is in frames
        policy = FramesPolicy(conf.max_frames_in_batch)
    else:
        units_of_target = 1000  # batch_target is in seconds, and units are milliseconds
        quadratic = None
        if conf.quadratic_duration is not None:
            quadratic = round(1000 * conf.quadratic_duration)
        policy = DurationPolicy(round(1000 * conf.batch_duration), quadratic, conf.batch_size)

    if conf.batch_target is not None:
        return TargetPolicy(policy, round(units_of_target * conf.batch_target))
    return policy


def _dynamic_limit(conf: BatchConf, frames: int, seconds: float) -> str:
    name = "max_frames_in_batch" if conf.batch_duration is None else "batch_duration"
    return f"{name} (now {getattr(conf, name)})"


def _bucket_policy_of(conf: BatchConf) -> Policy:
    policy = duration_bucket_policy_of(conf)
    return policy or BucketPolicy(conf.bucket_boundaries, conf.bucket_batch_sizes)


def _bucket_limit(conf: BatchConf, frames: int, seconds: float) -> str:
    """Name, for an error message, the key and the batch size of the bucket of an utterance."""
    if conf.bucket_duration_bins is None:
        name, unit = "bucket_batch_sizes", "frames"
        ends, sizes = conf.bucket_boundaries, conf.bucket_batch_sizes
        bucket = int(np.searchsorted(ends, frames, side="right"))
    else:
        name, unit = "bucket_batch_size", "seconds"
        ends = []
        for end in conf.bucket_duration_bins:
            max_seconds, _ = end if isinstance(end, tuple) else (end, ANY_TOKENS)
            ends.append(max_seconds)

        sizes = conf.bucket_batch_size
        assert sizes is not None, "BatchConf checks that bins and sizes come together"
        bucket = min(int(np.searchsorted(ends, seconds, side="left")), len(sizes) - 1)

    length = f"up to {ends[bucket]}" if bucket < len(ends) else f"above {ends[-1]}"
    return f"{name}[{bucket}] (now {sizes[bucket]}, for utterances of {length} {unit})"


def duration_bucket_policy_of(conf: BatchConf) -> DurationBucketPolicy | None:
    """Return the policy of `bucket_duration_bins`, whatever `batch_type` is; None without such
    bins.
    """
    if conf.bucket_duration_bins is None or conf.bucket_batch_size is None:
        return None

    ends: list[tuple[int, int]] = []
    for end in conf.bucket_duration_bins:
        seconds, max_tokens = end if isinstance(end, tuple) else (end, ANY_TOKENS)
        ends.append((round(1000 * seconds), max_tokens))

    return DurationBucketPolicy(
        tuple(ends),
        conf.bucket_batch_size,
        lenient=conf.bucket_choice == "lenient",
        max_tps=conf.max_tps,
    )


BATCH_TYPES: dict[str, BatchType] = {
    "static": BatchType(_static_policy_of, _static_limit),
    "dynamic": BatchType(_dynamic_policy_of, _dynamic_limit),
    "bucket": BatchType(_bucket_policy_of, _bucket_limit),
}
"""{value of batch_type: what it stands for}."""
