from collections import Counter

import pytest

from tests.dataset.support.mixtures import MEASURE, mixture, taken
from wenet_uio.dataset.corpus.mixture import exact_quotas
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.diagnose.plan_report import report_plan


def by_source(mix, times):
    """Times that utterances of each source were planned."""
    counts = Counter()
    for (shard, _), count in times.items():
        counts[int(mix.source_of(shard))] += count
    return [counts[number] for number in range(len(mix.sources))]


def test_quotas_are_exact_and_sum_to_the_total():
    assert exact_quotas([0.5, 0.3, 0.2], 101) == [51, 30, 20]
    assert sum(exact_quotas([1, 1, 1], 100)) == 100


@pytest.mark.parametrize("shares", [(0.1, 0.2, 0.7), (0.98, 0.01, 0.01)])
def test_every_pass_takes_the_quota_of_every_source(shares):
    mix = mixture(shares)
    for data_pass in range(3):
        assert by_source(mix, taken(Passes(mix), data_pass)[0]) == mix.quotas


def test_a_source_rotates_through_all_its_utterances_before_it_repeats_one():
    mix = mixture((0.25, 0.25, 0.5), per_pass=200)
    seen = Counter()
    for data_pass in range(6):
        seen += taken(Passes(mix), data_pass)[0]
    for number, (size, quota) in enumerate(zip((300, 90, 20), mix.quotas, strict=True)):
        counts = [count for (shard, _), count in seen.items() if mix.source_of(shard) == number]
        assert sum(counts) == 6 * quota
        assert len(counts) == size
        assert max(counts) - min(counts) <= 1


def test_a_batch_mixes_sources_unless_per_batch_is_set():
    mixed, pure = mixture((0.4, 0.3, 0.3)), mixture((0.4, 0.3, 0.3), per_batch=True)
    assert max(len(set(mixed.source_of(shards))) for shards in taken(Passes(mixed), 0)[1]) > 1
    times, batches = taken(Passes(pure), 0)
    assert {len(set(pure.source_of(shards))) for shards in batches} == {1}
    assert sum(times.values()) == sum(pure.quotas)


def test_an_utterance_taken_twice_is_augmented_differently():
    corpus = Passes(mixture((0.05, 0.05, 0.9))).corpus_of(0)
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=0, division=Division(1))
    seeds = [int(s) for t in range(plan.num_batches) for piece in plan.batch(t).pieces for s in piece.seeds]
    assert len(set(seeds)) == len(seeds) == 410


def test_a_report_counts_the_utterances_of_every_source():
    report = report_plan(mixture((0.5, 0.3, 0.2)), MEASURE, seed=1, epoch=2, world_size=2)
    assert report.sources == {"source 0": 205, "source 1": 123, "source 2": 82}
    assert (report.lost, report.duplicated) == (0, 0)
