"""The largest batch shape that each bucket of a corpus can ask for: its longest audio with its longest text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.dataset import BatchConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.plan.duration_bins import duration_bins
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.policies import ANY_TOKENS, DurationBucketPolicy, Lengths, policy_of


@dataclass(frozen=True)
class Shape:
    """What the utterances of a bucket are padded to at most."""

    utterances: int
    """In the bucket; with speed perturbation, at any of the speeds."""
    frames: int
    tokens: int


def worst_shapes(
    corpus: Corpus, measure: Measure, conf: BatchConf, num_bins: int
) -> tuple[DurationBucketPolicy, list[Shape | None]]:
    """Buckets and the shape of each, None of one without utterances; one bucket more where some are longer than all.

    Args:
        corpus: of one pass; its rows count tokens.
        measure: its filters and speeds count, its policy does not.
        conf: its bucket_duration_bins are the buckets; without, at most `num_bins` that hold equal amounts of audio.

    Raises:
        ValueError: the filters leave no audio.
    """
    lengths = _lengths(corpus, measure)
    if not len(lengths.frames):
        raise ValueError(f"{corpus.data_list}: no audio is left by dataset_conf.filter_conf")
    if conf.bucket_duration_bins is None:
        ends = duration_bins(lengths.milliseconds, num_bins).ends
        policy = DurationBucketPolicy(tuple((int(end), ANY_TOKENS) for end in ends), (1,) * len(ends))
    else:
        policy = policy_of(conf.model_copy(update={"batch_type": "bucket", "batch_tokens": None}))
    number = policy.bucket_of(lengths)
    shapes: list[Shape | None] = []
    for bucket in range(len(policy.ends) + 1):
        inside = number == bucket
        largest = [int(column[inside].max(initial=0)) for column in (lengths.frames, lengths.tokens)]
        shapes.append(Shape(int(np.count_nonzero(inside)), *largest) if inside.any() else None)
    return policy, shapes[:-1] if shapes[-1] is None else shapes


def _lengths(corpus: Corpus, measure: Measure) -> Lengths:
    """Of what has audio, at every speed."""
    parts = []
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        heard = measure.keep(rows)[0] & (rows.sample_rate != TEXT_ONLY)
        for speed in measure.speeds:
            found = measure.lengths(rows, speed)
            parts.append([column[heard] for column in vars(found).values()])
    return Lengths(*(np.concatenate(column) for column in zip(*parts, strict=True)))
