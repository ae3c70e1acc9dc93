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
    ordered = np.sort(seconds)
    return tuple(float(end) for end in _equal_parts(ordered, ordered, count))


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
    limits: list[float] = []
    outliers, low = 0, -np.inf

    for end in duration_bins(seconds, count):
        inside = (seconds > low) & (seconds <= end)
        rate = tokens[inside] / seconds[inside]
        kept = np.abs(rate - rate.mean()) <= outlier * rate.std() + 1e-9
        ordered = np.sort(tokens[inside][kept])
        ends += [(end, int(most)) for most in _equal_parts(ordered, ordered, per_bin)]
        limits.append(float(rate[kept].max()))
        outliers += int(np.count_nonzero(~kept))
        low = end

    return TokenBins(tuple(ends), tuple(limits), outliers)


def _equal_parts(ordered: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return values of `ordered` where the running sum of `weights` passes each of `count` equal
    parts; and the last value.
    """
    running = np.cumsum(weights, dtype=np.float64)
    passes = np.searchsorted(running, running[-1] * np.arange(1, count) / count, side="left")
    return np.unique(np.append(ordered[passes], ordered[-1]))


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
    lengths = _lengths(corpus, measure)
    if not len(lengths.frames):
        raise ValueError(
            f"{corpus.data_list}: no audio is left by dataset_conf.filter_conf; relax its bounds"
        )

    policy = duration_bucket_policy_of(conf)
    if policy is None:
        ends = duration_bins(lengths.milliseconds, num_bins)
        policy = DurationBucketPolicy(
            tuple((int(end), ANY_TOKENS) for end in ends), (1,) * len(ends)
        )

    number = policy.bucket_of(lengths)
    shapes: list[Shape | None] = []
    for bucket in range(len(policy.ends) + 1):
        inside = number == bucket
        largest = [
            int(column[inside].max(initial=0)) for column in (lengths.frames, lengths.tokens)
        ]
        utterances = int(np.count_nonzero(inside))
        shapes.append(Shape(utterances, *largest) if utterances else None)

    return policy, shapes[:-1] if shapes[-1] is None else shapes


def _lengths(corpus: Corpus, measure: Measure) -> Lengths:
    """Return lengths of all samples with audio, at every speed."""
    columns_of_parts = []
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        has_audio = measure.keep(rows)[0] & (rows.sample_rate != TEXT_ONLY)
        for speed in measure.speeds:
            # The fields of Lengths in their order; the last one, entries, is None here.
            columns = vars(measure.lengths(rows, speed)).values()
            columns_of_parts.append([column[has_audio] for column in columns if column is not None])

    return Lengths(*map(np.concatenate, zip(*columns_of_parts, strict=True)))
