from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.plan.duration_bins import Shape, duration_bins, token_bins, worst_shapes
from wenet_uio.dataset.plan.measure import Measure, measure_of
from wenet_uio.dataset.plan.policies import DurationBucketPolicy

RANDOM = np.random.default_rng(0)
SECONDS = np.clip(RANDOM.lognormal(np.log(6), 0.6, 20000), 0.5, 30)
TOKENS = np.maximum(1, (SECONDS * RANDOM.normal(3, 0.5, 20000)).astype(int))


@pytest.mark.parametrize("count", [1, 2, 10, 30])
def test_bins_hold_equal_amounts_of_audio(count):
    ends = np.asarray(duration_bins(SECONDS, count))
    assert len(ends) == count
    assert ends[-1] == SECONDS.max()
    held = np.bincount(np.searchsorted(ends, SECONDS), weights=SECONDS)
    assert held.max() / held.min() < 1.02


def test_equal_lengths_make_fewer_bins():
    assert duration_bins(np.full(100, 2.0), 30) == (2.0,)


def test_token_bins_split_each_bin_of_duration_evenly():
    bins = token_bins(SECONDS, TOKENS, 5, 3)
    assert len(bins.ends) == 15
    assert [end for end, _ in bins.ends] == sorted(end for end, _ in bins.ends)
    ends = sorted({end for end, _ in bins.ends})
    inside = ends[0] >= SECONDS
    most = [tokens for end, tokens in bins.ends if end == ends[0]]
    held = np.bincount(
        np.searchsorted(most, TOKENS[inside & (most[-1] >= TOKENS)]),
        weights=TOKENS[inside & (most[-1] >= TOKENS)],
    )
    assert held.max() / held.min() < 1.6  # tokens are whole numbers


def test_outliers_of_tokens_per_second_do_not_stretch_their_bin():
    tokens = TOKENS.copy()
    tokens[:5] = 5000
    bins = token_bins(SECONDS, tokens, 5, 2)
    assert bins.outliers >= 5
    assert max(most for _, most in bins.ends) < 200
    assert max(bins.max_tps) < 10


def test_no_utterances_are_an_error():
    with pytest.raises(ValueError, match="0 utterances cannot be put into 3 bins"):
        duration_bins(np.empty(0), 3)


@pytest.fixture
def corpus(make_lists: Any) -> Corpus:
    """20 utterances of 0.3 to 1.2 s and 1 to 3 tokens."""
    return open_list(make_lists(20)["raw"], "raw")


def measure(**keys: Any) -> Measure:
    return measure_of(DatasetConf(**keys), training=True, text_length_is_tokens=True)


def bins(*ends: Any, **keys: Any) -> BatchConf:
    return BatchConf(
        batch_type="bucket", bucket_duration_bins=ends, bucket_batch_size=[1] * len(ends), **keys
    )


def columns(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    rows = [corpus.rows(shard) for shard in range(corpus.num_shards)]
    return np.concatenate([r.num_samples for r in rows]), np.concatenate(
        [r.text_length for r in rows]
    )


def shapes(
    corpus: Corpus, measure: Measure, conf: BatchConf, num_bins: int = 4
) -> list[Shape | None]:
    return worst_shapes(corpus, measure, conf, num_bins)[1]


def test_a_shape_combines_the_longest_audio_and_the_longest_text_of_a_bucket(
    corpus: Corpus,
) -> None:
    samples, tokens = columns(corpus)
    short = samples <= 0.7 * 16000
    expected = [
        Shape(
            int(inside.sum()),
            1 + (int(samples[inside].max()) - 400) // 160,
            int(tokens[inside].max()),
        )
        for inside in (short, ~short)
    ]
    assert shapes(corpus, measure(), bins(0.7, 1.2)) == expected
    assert shapes(corpus, measure(), bins(0.1, 0.7)) == [None, *expected], (
        "longer utterances have their own bucket"
    )


def test_shapes_respect_filters_and_the_slowest_speed(corpus: Corpus) -> None:
    plain = shapes(corpus, measure(), bins(9.0))[0]
    slow = shapes(
        corpus, measure(speed_perturb=True, speed_perturb_conf={"speeds": [0.5, 1.0]}), bins(9.0)
    )[0]
    assert slow.frames == pytest.approx(2 * plain.frames, abs=3)
    assert (slow.utterances, slow.tokens) == (40, 3)
    short = shapes(corpus, measure(filter_conf={"token_max_length": 1}), bins(9.0))[0]
    assert (short.utterances, short.tokens) == (7, 1)
    with pytest.raises(ValueError, match="no audio is left"):
        shapes(corpus, measure(filter_conf={"min_duration": 9.0}), bins(9.0))


def test_shapes_of_token_buckets_do_not_exceed_their_tokens(corpus: Corpus) -> None:
    found = shapes(corpus, measure(), bins((1.3, 1), (1.3, 2), (1.3, 3)))
    assert [shape.tokens for shape in found] == [1, 2, 3]


def test_without_bins_in_the_config_bins_for_all_utterances_are_found(corpus: Corpus) -> None:
    policy, found = worst_shapes(corpus, measure(), BatchConf(), 4)
    assert isinstance(policy, DurationBucketPolicy)
    assert len(policy.ends) == len(found) == 4
    assert sum(shape.utterances for shape in found) == 20
