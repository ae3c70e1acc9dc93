import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.plan import epoch_plan as plan
from wenet_uio.dataset.plan import groups as group_plan
from wenet_uio.dataset.plan import lanes
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan

STATIC = BatchConf(batch_type="static", batch_size=7)
DYNAMIC = BatchConf(batch_type="dynamic", max_frames_in_batch=6000)
POLICIES = [
    STATIC,
    DYNAMIC,
    BatchConf(batch_type="dynamic", max_frames_in_batch=6000, batch_target=2000),
    BatchConf(batch_type="bucket", bucket_boundaries=(300, 700), bucket_batch_sizes=(16, 8, 4)),
    BatchConf(batch_type="dynamic", batch_tokens=2000),
]
FILTER = FilterConf(min_length=100, max_length=2500, token_equivalent_duration=0.08)


def small_scales():
    """Lower the limits, so that corpora of a few hundred utterances have several lanes and
    groups.
    """
    with (
        patch.object(plan, "WHOLE_CORPUS", 200),
        patch.object(group_plan, "BLOCK_BATCHES", 8),
        patch.multiple(lanes, GROUP_BATCHES=8, GROUP_SHARDS=2, GROUP_UTTERANCES=40, OPEN_SHARDS=3),
    ):
        yield


_small_scales = pytest.fixture(autouse=True, scope="module")(small_scales)


def measure(batch_conf, speeds=True, filter_conf=FILTER):
    return measure_of(
        DatasetConf(speed_perturb=speeds, batch_conf=batch_conf, filter_conf=filter_conf),
        training=True,
    )


def samples_of(batch):
    return [
        (int(s), int(r))
        for piece in batch.pieces
        for s, r in zip(piece.shards, piece.rows, strict=True)
    ]


def kept_samples(corpus, rule):
    return {
        (shard, int(row))
        for shard in range(corpus.num_shards)
        for row in np.flatnonzero(rule.keep(corpus.rows(shard))[0])
    }


corpora = st.builds(
    IndexOnlyCorpus,
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
    seed=st.integers(0, 1000),
).filter(lambda corpus: corpus.num_samples > 0)


@given(
    corpora,
    st.sampled_from(POLICIES),
    st.integers(1, 12),
    st.sampled_from([1, 8, 30]),
    st.integers(0, 3),
)
def test_every_sample_is_planned_once_and_no_batch_is_over_the_bound(
    corpus, policy, lanes, synced, epoch
):
    rule = measure(policy)
    plan = EpochPlan(corpus, rule, seed=1, epoch=epoch, division=Division(lanes, synced))
    batches = [plan.batch(index) for index in range(plan.num_batches)]
    planned = [sample for batch in batches for sample in samples_of(batch)]
    assert len(planned) == len(set(planned))
    assert set(planned) == kept_samples(corpus, rule)
    assert len(planned) + sum(plan.filtered().values()) == corpus.num_samples
    assert all(piece.cost <= rule.policy.bound for batch in batches for piece in batch.pieces)


@given(corpora, st.sampled_from(POLICIES), st.integers(1, 8), st.data())
def test_any_change_of_world_size_reads_the_rest_once_in_equal_steps(corpus, policy, lanes, data):
    rule = measure(policy)
    division = Division(lanes, data.draw(st.integers(1, 16)))
    plan = EpochPlan(corpus, rule, seed=1, epoch=0, division=division)
    seen, position = Counter(), 0
    while position < plan.num_batches:
        world_size = data.draw(st.integers(1, 64))
        steps = data.draw(st.integers(1, plan.steps_from(position, world_size)))
        fresh = EpochPlan(corpus, rule, seed=1, epoch=0, division=division)  # as after a restart
        for _ in range(steps):
            for rank in range(world_size):
                seen.update(samples_of(fresh.step(position, world_size, rank)))
            position = min(position + world_size, plan.num_batches)
    assert set(seen) == kept_samples(corpus, rule)
    assert max(seen.values(), default=1) == 1


def test_batches_do_not_depend_on_the_order_of_requests():
    corpus, rule = IndexOnlyCorpus([40] * 40), measure(DYNAMIC)
    forward, backward = (
        EpochPlan(corpus, rule, seed=1, epoch=0, division=Division(4, 4)) for _ in range(2)
    )
    in_order = [samples_of(forward.batch(index)) for index in range(forward.num_batches)]
    reversed_order = [
        samples_of(backward.batch(index)) for index in reversed(range(backward.num_batches))
    ]
    assert in_order == reversed_order[::-1]


def test_every_rank_of_the_last_step_has_samples_if_there_are_enough():
    corpus, rule = IndexOnlyCorpus([180]), measure(DYNAMIC)
    plan = EpochPlan(corpus, rule, seed=1, epoch=0, division=Division(1, 1))
    world_size = plan.num_batches + 3
    assert plan.steps_from(0, world_size) == 1
    assert all(len(plan.step(0, world_size, rank)) for rank in range(world_size))


def test_epochs_differ_in_order_and_in_batches_and_draw_speeds():
    corpus, rule = IndexOnlyCorpus([30] * 40), measure(DYNAMIC)
    first, second = (
        EpochPlan(corpus, rule, seed=1, epoch=epoch, division=Division(4, 4)) for epoch in (0, 1)
    )
    mates = [
        {
            frozenset(pair)
            for t in range(plan.num_batches)
            for s in samples_of(plan.batch(t))
            for pair in [(s, t)]
        }
        for plan in (first, second)
    ]
    assert len(mates[0] & mates[1]) < 0.1 * corpus.num_samples
    speeds = {float(speed) for piece in first.batch(0).pieces for speed in piece.speeds}
    assert speeds <= {np.float32(0.9), np.float32(1.0), np.float32(1.1)}


def test_the_sharding_of_a_small_corpus_does_not_change_its_batches():
    keys = []
    for counts in ([150], [60, 60, 30], [10] * 15):
        corpus = IndexOnlyCorpus(counts)
        plan = EpochPlan(corpus, measure(DYNAMIC), seed=1, epoch=0, division=Division(1, 1))
        ends = np.concatenate([[0], np.cumsum(counts)])
        keys.append(
            [[ends[s] + r for s, r in samples_of(plan.batch(t))] for t in range(plan.num_batches)]
        )
    assert keys[0] == keys[1] == keys[2]


def test_there_are_no_batches_if_the_filters_keep_nothing():
    rule = measure(DYNAMIC, filter_conf=FilterConf(min_length=5000, max_length=6000))
    assert (
        EpochPlan(
            IndexOnlyCorpus([100]), rule, seed=1, epoch=0, division=Division(1, 1)
        ).num_batches
        == 0
    )


def test_token_bounds_apply_while_planning_if_the_index_counts_tokens():
    conf = DatasetConf(filter_conf=FilterConf(token_max_length=30), batch_conf=STATIC)
    corpus = IndexOnlyCorpus([100])
    rule = measure_of(conf, training=True, text_length_is_tokens=True)
    too_long = int(np.count_nonzero(corpus.rows(0).text_length > 30))
    assert (
        EpochPlan(corpus, rule, seed=1, epoch=0, division=Division(1, 1)).filtered()[
            "token_max_length"
        ]
        == too_long
        > 0
    )


def test_an_utterance_longer_than_a_batch_is_filtered_in_training_and_alone_in_evaluation():
    conf = DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=1000))
    corpus = IndexOnlyCorpus([100], median=10)
    training, evaluation = (measure_of(conf, training=flag) for flag in (True, False))
    too_long = int(np.count_nonzero(corpus.rows(0).seconds > 10.015))
    assert EpochPlan(corpus, training, seed=1, epoch=0, division=Division(1, 1)).filtered() == {
        "fits_no_batch": too_long
    }
    plan = EpochPlan(corpus, evaluation, seed=1, epoch=0, division=Division(1, 1))
    batches = [plan.batch(index) for index in range(plan.num_batches)]
    assert sum(len(batch) for batch in batches) == 100
    assert all(len(piece) == 1 for batch in batches for piece in batch.pieces if piece.cost > 1000)


def test_a_report_accounts_for_every_utterance():
    corpus, rule = IndexOnlyCorpus([40] * 40), measure(DYNAMIC)
    report = report_plan(corpus, rule, seed=1, epoch=0, world_size=3)
    assert (report.lost, report.duplicated, report.over_bound) == (0, 0, 0)
    assert report.utterances + sum(report.filtered.values()) == 1600
    assert report.steps == -(-report.batches // 3)
    assert 0 < report.padding < 15
    assert report.fill > 80
    assert 1 <= report.skew < 1.3


def test_lanes_follow_the_world_size_if_there_are_enough_shards():
    corpus = IndexOnlyCorpus([10] * 100)
    assert [divide(corpus, world_size).lanes for world_size in (1, 3, 8, 16)] == [8, 9, 8, 16]
    assert [divide(corpus, world_size).synced for world_size in (1, 3, 8, 16)] == [1, 3, 8, 16]
    assert divide(IndexOnlyCorpus([100]), 8) == Division(1, 8)
    assert divide(IndexOnlyCorpus([100] * 6), 8) == Division(3, 8, 2)
    assert divide(IndexOnlyCorpus([100] * 10), 2).lanes == 4  # a multiple of the ranks


def test_groups_of_local_shards_grow_within_their_lane_and_those_of_remote_shards_do_not():
    corpus = IndexOnlyCorpus([10] * 100)
    assert divide(corpus, 1).group_shards == lanes.OPEN_SHARDS == 3
    with patch.object(lanes, "OPEN_SHARDS", 100):
        assert divide(corpus, 8).group_shards == 100 // 8
    with patch.object(lanes, "MOST_UTTERANCES", 20):
        assert divide(corpus, 8).group_shards == 2
    with patch.object(corpus, "is_remote", True):
        assert divide(corpus, 8).group_shards == 1


@pytest.mark.parametrize(("chosen", "position"), [((0, 1, 2, 3, 4, 5, 6, 7), 0), ((1, 5), 81)])
def test_the_shards_ahead_are_those_that_the_batches_are_read_from(chosen, position):
    corpus = IndexOnlyCorpus([20] * 300)
    conf = DatasetConf(batch_conf=BatchConf(batch_type="static", batch_size=7))
    epoch = EpochPlan(
        corpus, measure_of(conf, training=True), seed=3, epoch=1, division=Division(8, 8)
    )
    groups = list(epoch.shards_ahead(position, chosen))
    assert [first for first, _, _ in groups] == sorted(first for first, _, _ in groups)
    rows_left = epoch.rows - position // epoch.lanes
    covered = 0
    for first, end, shards in groups:
        lane, last_row = first % epoch.lanes, end // epoch.lanes
        covered += last_row - first // epoch.lanes
        for row in (first // epoch.lanes, last_row - 1):
            pieces = epoch.batch(row * epoch.lanes + lane).pieces
            assert {int(shard) for piece in pieces for shard in piece.shards} <= set(
                shards.tolist()
            )
    assert covered == len(chosen) * rows_left


def test_shards_ahead_of_a_small_corpus_come_in_the_order_of_their_first_use():
    corpus = IndexOnlyCorpus([10] * 20)
    conf = DatasetConf(batch_conf=BatchConf(batch_type="static", batch_size=4))
    epoch = EpochPlan(
        corpus, measure_of(conf, training=True), seed=3, epoch=1, division=Division(1, 1)
    )
    ((first, end, shards),) = epoch.shards_ahead(30, [0])
    used = [
        int(shard)
        for t in range(30, epoch.num_batches)
        for piece in epoch.batch(t).pieces
        for shard in piece.shards
    ]
    assert (first, end) == (30, epoch.num_batches)
    assert shards.tolist() == list(dict.fromkeys(used))


def test_the_plan_of_another_epoch_equals_a_new_plan_and_shares_the_costs(monkeypatch):
    corpus, rule = IndexOnlyCorpus([30] * 40), measure(DYNAMIC)
    calls = []
    shard_units = type(rule).shard_units
    monkeypatch.setattr(
        type(rule), "shard_units", lambda *args: calls.append(1) or shard_units(*args)
    )
    first = EpochPlan(corpus, rule, seed=1, epoch=0, division=Division(4, 4))
    before = samples_of(first.batch(0))
    second = first.of_epoch(seed=2, epoch=5)
    assert len(calls) == 1
    fresh = EpochPlan(corpus, rule, seed=2, epoch=5, division=Division(4, 4))
    found, expected = (
        [samples_of(plan.batch(t)) for t in range(plan.num_batches)] for plan in (second, fresh)
    )
    assert found == expected
    assert samples_of(first.batch(0)) == before != found[0]


def test_a_corpus_is_freed_with_its_plan():
    corpus = IndexOnlyCorpus([30] * 40)
    plan = EpochPlan(corpus, measure(DYNAMIC), seed=1, epoch=0, division=Division(4, 4))
    plan.batch(0)
    reference = weakref.ref(corpus)
    del corpus, plan
    assert reference() is None


def test_planning_does_not_import_torch():
    code = "import sys, wenet_uio.dataset.plan.epoch_plan, wenet_uio.dataset.corpus.base; "
    code += "sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0
    )
