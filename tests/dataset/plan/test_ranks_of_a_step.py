"""The ranks of a step take batches of similar length, also if there are fewer lanes than ranks."""

from dataclasses import replace

import numpy as np
import pytest

from tests.dataset.plan.test_epoch_plan import samples_of, small_scales
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan import groups
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan

POLICIES = {
    "static": {"batch_type": "static", "batch_size": 16},
    "dynamic": {"batch_type": "dynamic", "max_frames_in_batch": 12000},
    "bucket": {
        "batch_type": "bucket",
        "bucket_boundaries": (400, 600, 1000),
        "bucket_batch_sizes": (16, 12, 8, 4),
    },
}
ONE_LANE = IndexOnlyCorpus([3000])


def rule_of(policy, **keys):
    return measure_of(DatasetConf(batch_conf=BatchConf(**POLICIES[policy], **keys)), training=True)


def lengths(plan):
    """(batches,) frames of the longest utterance of each batch."""
    batches = (plan.batch(index) for index in range(plan.num_batches))
    return np.array(
        [max(piece.frames.max(initial=0) for piece in batch.pieces) for batch in batches]
    )


def spread(values, world_size):
    """Largest value of the ranks of a step divided by their mean, averaged over the whole steps."""
    steps = values[: len(values) // world_size * world_size].reshape(-1, world_size)
    return (steps.max(axis=1) / steps.mean(axis=1)).mean()


def planned(corpus, rule, division, epoch=0):
    return EpochPlan(corpus, rule, seed=1, epoch=epoch, division=division)


@pytest.mark.parametrize("world_size", [4, 8])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_of_a_corpus_of_one_lane_has_similar_lengths_on_all_ranks(policy, world_size):
    rule = rule_of(policy)
    before = spread(lengths(planned(ONE_LANE, rule, Division(1, 1))), world_size)
    plan = planned(ONE_LANE, rule, divide(ONE_LANE, world_size))
    assert plan.lanes == 1
    assert before > 1.5
    assert spread(lengths(plan), world_size) < 1.15


def test_the_padded_frames_of_static_batches_are_as_many_on_all_ranks():
    found = report_plan(ONE_LANE, rule_of("static"), seed=1, epoch=0, world_size=4)
    assert found.skew < 1.005
    assert found.frame_skew < 1.05
    random = report_plan(
        ONE_LANE, rule_of("static", length_order="random"), seed=1, epoch=0, world_size=4
    )
    assert random.frame_skew > 1.5


def test_consecutive_steps_of_a_corpus_of_one_lane_have_unlike_lengths_and_every_rank_has_short_and_long_batches():
    found = lengths(planned(IndexOnlyCorpus([20_000]), rule_of("static"), Division(1, 4)))
    steps = found[: len(found) // 4 * 4].reshape(-1, 4)
    assert abs(np.corrcoef(steps[:-1, 0], steps[1:, 0])[0, 1]) < 0.15
    np.testing.assert_allclose(
        np.bincount(steps.argmax(axis=1), minlength=4) / len(steps), 0.25, atol=0.1
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_ranks_change_the_order_of_the_batches_of_one_lane_and_not_the_batches(policy):
    rule = rule_of(policy)
    found = []
    for world_size in (1, 2, 8):
        plan = planned(ONE_LANE, rule, divide(ONE_LANE, world_size))
        found.append([tuple(samples_of(plan.batch(index))) for index in range(plan.num_batches)])
    assert sorted(found[0]) == sorted(found[1]) == sorted(found[2])
    assert found[0] != found[1] != found[2]


def test_the_planner_of_one_lane_depends_on_the_ranks():
    assert [divide(ONE_LANE, world_size).planner for world_size in (1, 2, 8)] == [2, 3, 3]


@pytest.mark.parametrize("order", ["random", "rising"])
def test_other_orders_of_length_do_not_depend_on_the_ranks(order):
    rule = rule_of("static", length_order=order)
    found = [
        lengths(planned(ONE_LANE, rule, divide(ONE_LANE, world_size))).tolist()
        for world_size in (1, 8)
    ]
    assert found[0] == found[1]


def test_an_incomplete_last_step_has_similar_lengths_too():
    plan = planned(ONE_LANE, rule_of("static"), Division(1, 8))
    rest = lengths(plan)[plan.num_batches // 8 * 8 :]
    assert len(rest) == 4  # 188 batches
    assert rest.max() / rest.mean() < 1.2


@pytest.mark.parametrize("world_size", [8, 5])
def test_a_step_of_fewer_lanes_than_ranks_has_similar_lengths_on_all_ranks(world_size):
    corpus, rule = IndexOnlyCorpus([50] * 60), rule_of("static")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "BLOCK_BATCHES", 64)
        for scales in small_scales():
            assert scales is None
            division = Division(3, world_size, 10)
            before = spread(lengths(planned(corpus, rule, replace(division, synced=3))), world_size)
            after = spread(lengths(planned(corpus, rule, division)), world_size)
    assert after < 1.35 < before


def in_turns(sources, utterances, per_source=None):
    """A mixture of sources that take turns, and the source of each batch of a plan of it."""
    counts = per_source or [utterances // sources] * sources
    parts = [
        WeightedCorpus(
            IndexOnlyCorpus([count], seed=seed, median=4.0 + 4 * seed), count / sum(counts)
        )
        for seed, count in enumerate(counts)
    ]
    corpus = Passes(Mixture("mixture", parts, sum(counts), "round_robin")).corpus_of(0)

    def of_batches(plan):
        firsts = [plan.batch(index).pieces[0].shards[:1] for index in range(plan.num_batches)]
        return np.array([int(corpus.shard_sources.entries(first)[0]) for first in firsts])

    return corpus, of_batches


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
@pytest.mark.parametrize("sources", [2, 3])
@pytest.mark.parametrize("order", ["synced", "random", "rising"])
def test_sources_take_turns_by_step_and_every_rank_reads_all_of_them(world_size, sources, order):
    corpus, of_batches = in_turns(sources, 4002)
    rule = rule_of("static", length_order=order)
    plan = planned(corpus, rule, divide(corpus, world_size))
    found = of_batches(plan)
    equal_share = np.bincount(found)[0]
    whole = equal_share // world_size * sources
    steps = found[: whole * world_size].reshape(whole, world_size)
    assert (steps == steps[:, :1]).all()
    assert steps[:, 0].tolist() == [step % sources for step in range(whole)]
    assert np.bincount(found).tolist() == [equal_share] * sources
    assert len(found) - steps.size < sources * world_size


def test_sources_take_turns_by_batch_on_one_rank():
    corpus, of_batches = in_turns(2, 4000)
    rule = rule_of("static")
    found = of_batches(planned(corpus, rule, divide(corpus, 1)))
    assert found.tolist() == [0, 1] * (len(found) // 2)


def test_turns_of_sources_of_unequal_length_are_spread_over_the_steps():
    sources = np.array([0] * 90 + [1] * 30)
    order = groups._turns_by_step(sources, np.full(30, 4))
    turns = sources[order].reshape(30, 4)
    assert sorted(order) == list(range(120))
    assert (turns == turns[:, :1]).sum() >= 29 * 4
    assert np.diff(np.flatnonzero(turns[:, 0] == 1)).max() <= 5


def test_sources_that_take_turns_have_similar_lengths_in_a_step_each():
    corpus, of_batches = in_turns(2, 4000)
    rule = rule_of("static")
    for division, width in ((Division(1, 4), 2), (divide(corpus, 4), 4)):
        plan = planned(corpus, rule, division)
        sources, found = of_batches(plan), lengths(plan)
        for source in (0, 1):
            assert spread(found[sources == source], width) < 1.05
            by_batch = lengths(planned(corpus, rule, Division(1, 1)))
            assert spread(by_batch[sources == source], width) > 1.25
