import json
from collections import Counter

import numpy as np
import pytest

from tests.support.data.mixtures import MEASURE, mixture, taken
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus, exact_quotas
from wenet_uio.dataset.cursor import Cursor
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan


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
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=0, division=Division(1, 1))
    seeds = [
        int(s)
        for t in range(plan.num_batches)
        for piece in plan.batch(t).pieces
        for s in piece.seeds
    ]
    assert len(set(seeds)) == len(seeds) == 410


def test_a_report_counts_the_utterances_of_every_source():
    report = report_plan(mixture((0.5, 0.3, 0.2)), MEASURE, seed=1, epoch=2, world_size=2)
    assert report.sources == {"source 0": 205, "source 1": 123, "source 2": 82}
    assert (report.lost, report.duplicated) == (0, 0)


FRAMES = DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=6000))
LONG = ((300,), (700,), (1000,))


def balanced(medians, sizes, per_batch, measure):
    """A mixture whose quotas give every source the same cost, as `open_corpus` sets them."""
    corpora = [
        IndexOnlyCorpus(counts, seed=seed, median=median)
        for seed, (counts, median) in enumerate(zip(sizes, medians, strict=True))
    ]
    shares = np.asarray(
        [corpus.num_samples / measure.shard_units(corpus).sum() for corpus in corpora]
    )
    sources = [
        WeightedCorpus(corpus, share)
        for corpus, share in zip(corpora, shares / shares.sum(), strict=True)
    ]
    return Mixture("mixture", sources, 3000, per_batch)


@pytest.mark.parametrize(
    "batch_conf", [{"batch_type": "dynamic", "max_frames_in_batch": 6000}, {"batch_size": 7}]
)
def test_with_round_robin_all_sources_have_equally_many_batches_in_strict_turns(batch_conf):
    measure = measure_of(DatasetConf(batch_conf=BatchConf(**batch_conf)), training=True)
    mix = balanced((2.0, 6.0, 11.0), LONG, "round_robin", measure)
    corpus = Passes(mix).corpus_of(1)
    plan = EpochPlan(corpus, measure, seed=1, epoch=1, division=Division(1, 1))
    batches = [plan.batch(t) for t in range(plan.num_batches)]
    of_batch = [
        {int(n) for piece in b.pieces for n in corpus.shard_sources.numbers(piece.shards)}
        for b in batches
    ]
    assert all(len(found) == 1 for found in of_batch)
    order = [found.pop() for found in of_batch]
    counts = np.bincount(order)
    assert counts.max() == counts.min()
    assert order == [number % 3 for number in range(len(order))]
    planned = sum(len(batch) for batch in batches)
    assert planned + sum(plan.filtered().values()) == corpus.num_samples
    assert all(piece.cost <= measure.policy.bound for batch in batches for piece in batch.pieces)


def test_with_round_robin_no_batch_is_empty_if_a_source_has_few_long_utterances():
    measure = measure_of(FRAMES, training=True)
    corpora = [
        IndexOnlyCorpus([5], median=29, shortest=25),
        IndexOnlyCorpus([400], seed=1, median=5),
    ]
    mix = Mixture(
        "mixture",
        [WeightedCorpus(corpora[0], 5 / 405), WeightedCorpus(corpora[1], 400 / 405)],
        405,
        "round_robin",
    )
    corpus = Passes(mix).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    batches = [plan.batch(t) for t in range(plan.num_batches)]
    assert all(len(piece) for batch in batches for piece in batch.pieces)
    assert sum(len(batch) for batch in batches) + sum(plan.filtered().values()) == 405


def test_the_state_of_a_mixture_takes_30_bytes_a_source():
    corpora = [IndexOnlyCorpus([50], seed=seed) for seed in range(200)]
    mix = Mixture("mixture", [WeightedCorpus(corpus, 1 / 200) for corpus in corpora], 10_000, False)
    cursor = Cursor(mix, MEASURE, LoaderOptions())
    cursor.set_epoch(999)
    plain = len(json.dumps(Cursor(corpora[0], MEASURE, LoaderOptions()).state_dict()))
    assert plain < 600
    assert len(json.dumps(cursor.state_dict())) < plain + 30 * 200
