"""Find bins of duration that hold equal amounts of audio, and bins of tokens inside each of
them; and the largest batch shape of each bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.policies import (
    ANY_TOKENS,
    DurationBucketPolicy,
    Lengths,
    duration_bucket_policy_of,
)

OUTLIER = 4.0
"""Standard deviations from the mean of a bin beyond which an utterance is an outlier."""


@dataclass(frozen=True)
class TokenBins:
    """Bins of duration and tokens."""

    ends: tuple[tuple[float, int], ...]
    """Upper ends in seconds and tokens, inclusive."""
    max_tps: tuple[float, ...]
    """Largest tokens per second of each bin of duration, without outliers."""
    outliers: int
    """Utterances left out because of their tokens per second."""


def duration_bins(seconds: np.ndarray, count: int) -> tuple[float, ...]:
    """Return the upper ends, inclusive, of at most `count` bins of duration that hold about the
    same amount of audio each.

    The last bin ends at the longest utterance. The unit is that of `seconds`.

    Raises:
        ValueError: no utterances, or no bins.
    """
    if not len(seconds) or count < 1:
        raise ValueError(f"{len(seconds)} utterances cannot be put into {count} bins")
    return tuple(float(end) for end in _ends_of_equal_parts(seconds, count))


def token_bins(
    seconds: np.ndarray,
    tokens: np.ndarray,
    count: int,
    per_bin: int,
    outlier: float = OUTLIER,
) -> TokenBins:
    """Return `count` bins of duration, each cut into at most `per_bin` bins that hold about the
    same number of tokens each.

    Outliers by tokens per second are left out first: those that differ from the mean of their bin
    of duration by more than `outlier` standard deviations.
    """
    ends: list[tuple[float, int]] = []
    max_tps: list[float] = []
    num_outliers = 0
    previous_end = -np.inf

    for end in duration_bins(seconds, count):
        is_in_bin = (seconds > previous_end) & (seconds <= end)
        tokens_in_bin = tokens[is_in_bin]
        rate = tokens_in_bin / seconds[is_in_bin]

        is_kept = np.abs(rate - rate.mean()) <= outlier * rate.std() + 1e-9
        max_tps.append(float(rate[is_kept].max()))
        num_outliers += int(np.count_nonzero(~is_kept))

        for most_tokens in _ends_of_equal_parts(tokens_in_bin[is_kept], per_bin):
            ends.append((end, int(most_tokens)))
        previous_end = end

    return TokenBins(tuple(ends), tuple(max_tps), num_outliers)


def _ends_of_equal_parts(lengths: np.ndarray, count: int) -> np.ndarray:
    """Return the longest length of each of `count` parts of the lengths, from short to long, whose
    sums are about equal; fewer if two of them are the same.
    """
    ordered = np.sort(lengths)
    running_sum = np.cumsum(ordered, dtype=np.float64)
    sums_at_ends = running_sum[-1] * np.arange(1, count) / count
    ends = np.searchsorted(running_sum, sums_at_ends, side="left")
    return np.unique(np.append(ordered[ends], ordered[-1]))


@dataclass(frozen=True)
class Shape:
    """Largest padded shape of the utterances of a bucket."""

    utterances: int
    """Utterances in the bucket. With speed perturbation every speed of an utterance counts as an
    utterance."""
    frames: int
    tokens: int


def worst_shapes(
    corpus: Corpus, measure: Measure, conf: BatchConf, num_bins: int
) -> tuple[DurationBucketPolicy, list[Shape | None]]:
    """Return the buckets, and the largest shape of each; None for a bucket without utterances.

    If utterances are longer than all buckets, the list of shapes has one more entry for them.

    Args:
        corpus: one pass over the data, whose index counts tokens.
        measure: its filters and speeds apply; its policy is ignored.
        conf: its bucket_duration_bins are the buckets.
        num_bins: without bucket_duration_bins, largest number of buckets, which hold equal amounts
            of audio.

    Raises:
        ValueError: the filters leave no audio.
    """
    lengths = _lengths_of_audio(corpus, measure)
    if not len(lengths.frames):
        raise ValueError(
            f"{corpus.data_list}: no audio is left by dataset_conf.filter_conf; relax its bounds"
        )

    policy = duration_bucket_policy_of(conf)
    if policy is None:
        ends = tuple(
            (int(end), ANY_TOKENS) for end in duration_bins(lengths.milliseconds, num_bins)
        )
        policy = DurationBucketPolicy(ends, sizes=(1,) * len(ends))

    bucket_of_sample = policy.bucket_of(lengths)
    shapes: list[Shape | None] = []
    for bucket in range(len(policy.ends) + 1):
        in_bucket = lengths.select(bucket_of_sample == bucket)
        shape = None
        if len(in_bucket.frames):
            shape = Shape(
                utterances=len(in_bucket.frames),
                frames=int(in_bucket.frames.max()),
                tokens=int(in_bucket.tokens.max()),
            )
        shapes.append(shape)

    # The last bucket is that of utterances longer than all bins.
    if shapes[-1] is None:
        shapes.pop()
    return policy, shapes


def _lengths_of_audio(corpus: Corpus, measure: Measure) -> Lengths:
    """Return lengths of all samples with audio that the filters keep, at every speed."""
    parts: list[Lengths] = []
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        is_kept, _ = measure.keep(rows)
        has_audio = rows.sample_rate != TEXT_ONLY
        for speed in measure.speeds:
            parts.append(measure.lengths(rows, speed).select(is_kept & has_audio))

    return Lengths(
        np.concatenate([part.frames for part in parts]),
        np.concatenate([part.milliseconds for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.text_only for part in parts]),
    )
