from functools import cache
from random import Random

import numpy as np
import pytest

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, WeightedCorpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan

FRAMES = {"batch_type": "dynamic", "max_frames_in_batch": 12000}
LARGE = (1000,) * 300
"""Utterances of the shards of a corpus that has several lanes."""
corpus_of = cache(IndexOnlyCorpus)


@cache
def report(counts, world_size=1, **batch_conf):
    conf = DatasetConf(batch_conf=BatchConf(**{**FRAMES, **batch_conf}))
    return report_plan(
        corpus_of(counts), measure_of(conf, training=True), seed=1, epoch=0, world_size=world_size
    )


def test_dynamic_batches_of_a_small_corpus_pad_at_most_1_6_percent():
    whole = report((1000,) * 20, world_size=8)
    assert whole.padding <= 1.6
    assert whole.fill >= 92


def test_batches_of_lanes_pad_as_little_and_ranks_are_balanced():
    lanes = report(LARGE, world_size=8)
    assert lanes.lanes == 8
    assert lanes.padding <= 1.6
    assert lanes.fill >= 92
    assert lanes.skew <= 1.05
    assert (lanes.lost, lanes.duplicated, lanes.over_bound) == (0, 0, 0)


def test_few_batch_mates_of_a_small_corpus_meet_again_in_the_next_epoch_at_little_padding():
    small = report((1000,) * 3, world_size=1)
    assert small.mates_again <= 0.2
    assert small.padding <= 2.5


def test_a_larger_jitter_mixes_small_corpora_more_and_pads_more_and_none_sorts_exactly():
    exact, little, much = (report((3000,), length_jitter=jitter) for jitter in (0.0, 0.5, 1.5))
    assert exact.mates_again > 0.9 > little.mates_again > much.mates_again + 0.1
    assert exact.padding < little.padding < much.padding


@pytest.mark.parametrize("samples", [300, 1000])
def test_tiny_corpora_are_mixed_over_at_most_1_percent_of_their_batches(samples):
    exact, tiny = (report((samples,), length_jitter=jitter) for jitter in (0.0, 50.0))
    assert tiny.padding < exact.padding + 2
    assert tiny.mates_again < exact.mates_again - 0.1


def test_corpora_of_1024_batches_or_more_change_lengths_by_1_percent_whatever_the_jitter():
    plans = [report((1000,) * 20, length_jitter=jitter).digest for jitter in (0.5, 3.0)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    "batch_conf", [{"batch_type": "static", "batch_size": 16}, {"batch_type": "bucket"}]
)
def test_jitter_mixes_small_corpora_under_every_policy(batch_conf):
    exact, mixed = (report((3000,), length_jitter=jitter, **batch_conf) for jitter in (0.0, 1.25))
    assert mixed.mates_again < 0.5 * exact.mates_again
    assert mixed.padding < exact.padding + 3


def test_every_source_is_mixed_within_itself():
    measure = measure_of(DatasetConf(batch_conf=BatchConf(**FRAMES)), training=True)
    corpora = [IndexOnlyCorpus([3000], seed=seed) for seed in range(4)]
    mix = Mixture("mixture", [WeightedCorpus(corpus, 0.25) for corpus in corpora], 12_000, True)
    found = report_plan(mix, measure, seed=1, epoch=0, world_size=1)
    assert found.mates_again < 0.3


def test_consecutive_steps_of_a_rank_have_unlike_lengths_and_ranks_of_a_step_like_lengths():
    lanes = report(LARGE, world_size=8)
    assert lanes.lanes == 8
    assert abs(lanes.length_correlation) < 0.1
    assert lanes.skew <= 1.05


def test_consecutive_steps_of_a_single_rank_have_unlike_lengths():
    corpus = corpus_of(LARGE)
    measure = measure_of(DatasetConf(batch_conf=BatchConf(**FRAMES)), training=True)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=divide(corpus, 1))
    assert plan.lanes == 8
    frames = [
        np.concatenate([piece.frames for piece in plan.batch(index).pieces]).mean()
        for index in range(2000)
    ]
    assert abs(np.corrcoef(frames[:-1], frames[1:])[0, 1]) < 0.1


@pytest.mark.parametrize(("counts", "shards"), [(LARGE, 300 // 8), ((300,) * 1400, 128)])
def test_batches_of_a_large_corpus_mix_the_shards_of_a_lane_and_at_most_128(counts, shards):
    corpus, measure = corpus_of(counts), measure_of(DatasetConf(), training=True)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=divide(corpus, 8))
    chances = []
    for index in range(0, 8 * 200, 8):  # one lane
        found = np.bincount(np.concatenate([piece.shards for piece in plan.batch(index).pieces]))
        chances.append((found * (found - 1)).sum() / (found.sum() * (found.sum() - 1)))
    assert np.mean(chances) <= 1.2 / shards


def shuffle_buffer(shards, per_shard, size, seed):
    """The order of WebDataset: shuffled shards, and samples drawn from a buffer of `size`."""
    random = Random(seed)
    order, buffer = list(range(shards)), []
    random.shuffle(order)
    for shard in order:
        for row in range(per_shard):
            buffer.append((shard, row))
            if len(buffer) >= size:
                chosen = int(random.random() * len(buffer))
                buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
                yield buffer.pop()
    random.shuffle(buffer)
    yield from buffer


@pytest.mark.parametrize("shards", [20, 300])
def test_batches_mix_shards_and_epochs_as_well_as_a_shuffle_buffer_of_10000(shards):
    planned = report((1000,) * shards, world_size=8)
    order = [shard for shard, _ in shuffle_buffer(shards, 1000, 10000, seed=0)]
    chances = []
    for first in range(0, len(order) - 20, 20):
        counts = np.bincount(order[first : first + 20])
        chances.append((counts * (counts - 1)).sum() / (20 * 19))
    assert planned.same_shard <= np.mean(chances) * 1.02
    assert abs(planned.order_correlation) < 0.05
