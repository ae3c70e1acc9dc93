"""Mixtures of synthetic corpora, and what a pass takes from them."""

from collections import Counter

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, WeightedCorpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of

MEASURE = measure_of(
    DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=6000)), training=True
)


def mixture(shares, sizes=((50,) * 6, (30,) * 3, (20,)), per_pass=None, per_batch=False):
    corpora = [IndexOnlyCorpus(counts, seed=number) for number, counts in enumerate(sizes)]
    for number, corpus in enumerate(corpora):
        corpus.data_list = f"source {number}"
    sources = [
        WeightedCorpus(corpus, share, {"from": corpus.data_list})
        for corpus, share in zip(corpora, shares, strict=True)
    ]
    return Mixture("mixture", sources, per_pass or sum(map(sum, sizes)), per_batch)


def taken(passes, data_pass, measure=MEASURE):
    """Times that a pass plans each (shard, row) of a corpus, and the shards of each batch."""
    corpus = passes.corpus_of(data_pass)
    plan = EpochPlan(corpus, measure, seed=1, epoch=data_pass, division=Division(1, 1))
    times, batches = Counter(), []
    for index in range(plan.num_batches):
        for piece in plan.batch(index).pieces:
            shards, rows = corpus.origin(piece.shards, piece.rows)
            batches.append(shards)
            times.update(zip(shards.tolist(), rows.tolist(), strict=True))
    return times, batches
