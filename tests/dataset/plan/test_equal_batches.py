"""`round_robin` and `zip`: equally many batches of every source, under every policy and mix of
policies.
"""

import numpy as np
import pytest

from tests.dataset.plan.test_joined_entries import POLICIES, TextOnly
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of

COUNTS, MEDIANS = (600, 900, 1500), (2.0, 5.0, 8.0)
BY_LENGTH = {
    f"{name}, semi-sorted": {**conf, "use_semi_sorted_batching": True}
    for name, conf in POLICIES.items()
}
MIXED = [
    ("static", "text"),
    ("dynamic", "static text"),
    ("duration", "buckets", "text"),
    ("two dimensions", "static"),
]


def batches_by_source(confs, per_batch, by_entry, world_size):
    """(steps, sources): number of batches of each source that all ranks have in each step of a
    pass.
    """
    batches = tuple(BatchConf(**conf) for _, conf in confs)
    conf = DatasetConf(batch_conf=batches[0], filter_conf={"max_length": 4000})
    measure = measure_of(
        conf, training=True, text_length_is_tokens=True, by_entry=batches if by_entry else ()
    )
    corpora = [
        TextOnly([count], seed=n)
        if "text" in name
        else IndexOnlyCorpus([count], seed=n, median=median)
        for n, ((name, _), count, median) in enumerate(zip(confs, COUNTS, MEDIANS, strict=False))
    ]
    for number, corpus in enumerate(corpora):
        corpus.data_list = str(number)
    costs = [
        measure.of_entry(n).shard_units(corpus).sum() / corpus.num_samples
        for n, corpus in enumerate(corpora)
    ]
    shares = (1 / np.asarray(costs)) / (1 / np.asarray(costs)).sum()
    has_entries = by_entry or per_batch == "zip"
    sources = [
        WeightedCorpus(corpus, share, {}, n if has_entries else None)
        for n, (corpus, share) in enumerate(zip(corpora, shares, strict=True))
    ]
    corpus = Passes(Mixture("mixture", sources, 1200, per_batch)).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    steps = np.zeros((-(-plan.num_batches // world_size), len(corpora)), np.int64)
    seen = 0
    for number in range(len(steps)):
        for rank in range(world_size):
            step = plan.step(number * world_size, world_size, rank)
            for piece in filter(len, step.pieces):
                (source,) = set(corpus.shard_sources.numbers(piece.shards).tolist())
                steps[number, source] += 1
                seen += len(piece)
    assert seen + sum(plan.filtered().values()) == corpus.num_samples
    return steps


@pytest.mark.third
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("name", sorted({**POLICIES, **BY_LENGTH}))
def test_sources_of_one_policy_have_equally_many_batches(name, world_size):
    confs = [(name, {**POLICIES, **BY_LENGTH}[name])] * 3
    for per_batch in ("round_robin", "zip"):
        counts = batches_by_source(confs, per_batch, False, world_size)
        check(counts, per_batch, world_size)


@pytest.mark.parametrize("names", MIXED, ids=" and ".join)
def test_sources_with_policies_of_their_own_have_equally_many_batches(names):
    confs = [(name, POLICIES[name]) for name in names]
    for per_batch in ("round_robin", "zip"):
        check(batches_by_source(confs, per_batch, True, 2), per_batch, 2)


def check(counts, per_batch, world_size):
    whole = counts[:-1]  # the last step shares what is left
    assert len(whole) > 3
    totals = whole.sum(axis=0)
    assert totals.max() - totals.min() <= (world_size if per_batch == "round_robin" else 0)
    if per_batch == "zip":
        assert (whole == world_size).all()
