"""The largest batch shape of each bucket of a corpus: its longest audio together with its longest
text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.plan.duration_bins import duration_bins
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.policies import (
    ANY_TOKENS,
    DurationBucketPolicy,
    Lengths,
    duration_bucket_policy_of,
)


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
        shapes.append(Shape(int(np.count_nonzero(inside)), *largest) if inside.any() else None)

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
