import numpy as np
import pytest

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_page import SeriesCollector, plan_charts
from wenet_uio.prepare.diagnose.plan_report import report_plan


def measure(**batch_conf):
    return measure_of(DatasetConf(batch_conf=BatchConf(**batch_conf)), training=True)


FRAMES_6000 = measure(batch_type="dynamic", max_frames_in_batch=6000)


def planned(corpus, rule, world_size):
    collector = SeriesCollector(Passes(corpus).corpus_of(0), rule, world_size)
    report = report_plan(corpus, rule, seed=1, epoch=0, world_size=world_size, on_batch=collector)
    return collector.series(), report


def mixture(sizes):
    corpora = [IndexOnlyCorpus(counts, seed=number) for number, counts in enumerate(sizes)]
    for number, corpus in enumerate(corpora):
        corpus.data_list = f"$source_{number}$"
    shares = [sum(counts) / sum(map(sum, sizes)) for counts in sizes]
    sources = [WeightedCorpus(corpus, share) for corpus, share in zip(corpora, shares, strict=True)]
    return Mixture("mixture", sources, sum(map(sum, sizes)), False)


def test_five_utterances_of_a_second_in_batches_of_two_on_two_ranks():
    corpus = IndexOnlyCorpus([3, 2], shortest=1.0, longest=1.0)
    series, _ = planned(corpus, measure(batch_type="static", batch_size=2), world_size=2)
    np.testing.assert_allclose(series.seconds, [0.98] * 5)  # 98 windows of 25 ms every 10 ms
    np.testing.assert_allclose(series.padding, [0, 0, 0])
    assert sorted(series.cost) == [50, 100, 100]
    assert series.mix.shape == (3, 1)
    assert sorted(series.mix[:, 0]) == [1, 2, 2]
    # The first step: batches as planned. The second: one batch of one or two, halved between the
    # ranks.
    whole = series.cost[:2]
    np.testing.assert_allclose(
        series.skew, [whole.max() / whole.mean(), 1 if series.cost[2] == 100 else 2]
    )


def test_the_numbers_are_those_of_the_plan():
    corpus = IndexOnlyCorpus([100, 50])
    series, report = planned(corpus, FRAMES_6000, world_size=3)
    plan = EpochPlan(corpus, FRAMES_6000, seed=1, epoch=0, division=divide(corpus, 3))
    batches = [plan.batch(index).pieces[0].frames for index in range(plan.num_batches)]
    np.testing.assert_allclose(series.seconds, np.concatenate(batches) * 0.01)
    np.testing.assert_allclose(
        series.cost, [100 * len(frames) * max(frames) / 6000 for frames in batches]
    )
    np.testing.assert_allclose(
        series.padding, [100 * np.mean(1 - frames / max(frames)) for frames in batches]
    )
    steps = [
        [plan.step(first, 3, rank).cost for rank in range(3)]
        for first in range(0, plan.num_batches, 3)
    ]
    np.testing.assert_allclose(series.skew, [max(costs) * 3 / sum(costs) for costs in steps])
    assert (len(series.seconds), len(series.skew)) == (report.utterances, report.steps)
    assert series.cost.mean() == pytest.approx(report.fill, abs=0.01)
    assert series.skew.mean() == pytest.approx(report.skew, abs=1e-4)


def test_the_mix_counts_each_source_in_consecutive_parts():
    corpus = mixture([[50] * 6, [30] * 3, [20]])
    series, report = planned(corpus, FRAMES_6000, world_size=2)
    assert dict(zip(series.sources, series.mix.sum(axis=0), strict=True)) == report.sources
    one_pass = Passes(corpus).corpus_of(0)
    plan = EpochPlan(one_pass, FRAMES_6000, seed=1, epoch=0, division=divide(one_pass, 2))
    first = [
        index
        for index in range(plan.num_batches)
        if index * len(series.mix) // plan.num_batches == 0
    ]
    shards = np.concatenate([piece.shards for index in first for piece in plan.batch(index).pieces])
    np.testing.assert_array_equal(
        series.mix[0], np.bincount(one_pass.shard_sources.numbers(shards), minlength=3)
    )


@pytest.mark.parametrize(
    "sizes", [[[0]], [[1]], [[20]] * 12], ids=["empty", "one utterance", "twelve sources"]
)
def test_any_plan_is_drawn(sizes):
    corpus = mixture(sizes) if len(sizes) > 1 else IndexOnlyCorpus(sizes[0])
    rule = measure(batch_type="static", batch_size=4)
    collector = SeriesCollector(Passes(corpus).corpus_of(0), rule, 2)
    plan = EpochPlan(Passes(corpus).corpus_of(0), rule, seed=1, epoch=0, division=Division(1, 1))
    for index in range(plan.num_batches):
        collector(plan.batch(index))
    charts = plan_charts(collector.series())
    assert len(charts) == (5 if len(sizes) > 1 else 4)
    assert charts[-1].count("$source_") == (6 if len(sizes) > 1 else 0)
