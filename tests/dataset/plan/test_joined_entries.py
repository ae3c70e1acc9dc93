"""`per_batch: zip`: every step has a batch of every entry on every rank, under every policy."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.index import TEXT_ONLY, shard_table, summary_of
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan.entry_policy import entry_policy_of
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.plan.policies import WHOLE

POLICIES = {
    "static": {"batch_size": 7},
    "dynamic": {"batch_type": "dynamic", "max_frames_in_batch": 6000},
    "duration": {
        "batch_type": "dynamic",
        "batch_duration": 60.0,
        "quadratic_duration": 30.0,
        "batch_size": 20,
    },
    "buckets": {
        "batch_type": "bucket",
        "bucket_duration_bins": [4.0, 9.0, 40.0],
        "bucket_batch_size": [12, 6, 2],
    },
    "two dimensions": {
        "batch_type": "bucket",
        "bucket_duration_bins": [[8.0, 20], [8.0, 60], [40.0, 60]],
        "bucket_batch_size": [10, 8, 3],
    },
    "text": {"batch_type": "dynamic", "batch_tokens": 300},
    "static text": {"batch_size": 9},
}


class TextOnly(IndexOnlyCorpus):
    """Text without audio, of 1 to 59 tokens."""

    def __init__(self, counts, seed=0):
        super().__init__(counts, seed)
        for column, value in (("num_samples", 0), ("sample_rate", TEXT_ONLY)):
            getattr(self._rows, column)[:] = value
        table = shard_table(self.run(shard) for shard in range(len(counts)))
        super(IndexOnlyCorpus, self).__init__("text", table, [], summary_of(table), self.facts)


def joined(confs, sizes, per_pass, shards=1):
    """A mixture of entries with these policies, and its measure; the first entry has two
    sources.
    """
    conf = DatasetConf(filter_conf={"max_length": 4000})
    batches = tuple(BatchConf(**POLICIES[name]) for name in confs)
    measure = measure_of(conf, training=True, text_length_is_tokens=True, by_entry=batches)
    corpora, entries = [], []
    for entry, (name, size) in enumerate(zip(confs, sizes, strict=True)):
        for part in range(1 if entry else 2):
            kind = TextOnly if "text" in name else IndexOnlyCorpus
            corpora.append(
                kind([size // shards] * shards if entry == 0 else [size], seed=10 * entry + part)
            )
            corpora[-1].data_list = f"{entry} {part}"
            entries.append(entry)
    costs = [
        measure.of_entry(entry).shard_units(corpus).sum() / corpus.num_samples
        for entry, corpus in zip(entries, corpora, strict=True)
    ]
    shares = 1 / np.asarray(costs)
    shares[:2] /= 2
    sources = [
        WeightedCorpus(c, s, {}, e)
        for c, s, e in zip(corpora, shares / shares.sum(), entries, strict=True)
    ]
    return Mixture("joined", sources, per_pass, "zip"), measure


def steps_of(plan, world_size):
    position = 0
    while position < plan.num_batches:
        yield [plan.step(position, world_size, rank) for rank in range(world_size)]
        position += world_size


def entries_in(corpus, piece):
    return set(corpus.shard_sources.entries(piece.shards).tolist())


@given(
    confs=st.lists(st.sampled_from(sorted(POLICIES)), min_size=2, max_size=3),
    size=st.integers(40, 300),
    per_pass=st.integers(60, 900),
    world_size=st.sampled_from([1, 2, 5]),
)
@example(["buckets", "text"], 200, 500, 5)
@example(["static", "static"], 40, 60, 5)
def test_every_rank_has_a_batch_of_every_entry_in_every_step(confs, size, per_pass, world_size):
    mixture, measure = joined(confs, [size + 10 * n for n in range(len(confs))], per_pass)
    corpus = Passes(mixture).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    seen = []
    for number, step in enumerate(steps_of(plan, world_size), 1):
        for batch in step:
            found = [entries_in(corpus, piece) for piece in batch.pieces if len(piece)]
            assert all(len(entries) == 1 for entries in found)
            assert all(piece.cost <= WHOLE for piece in batch.pieces)
            if number * world_size <= plan.num_batches:  # the last step shares what is left
                assert set().union(*found) == set(range(len(confs)))
            seen += [
                (s, r)
                for piece in batch.pieces
                for s, r in zip(piece.shards, piece.rows, strict=True)
            ]
    assert len(seen) == len(set(seen))
    assert len(seen) + sum(plan.filtered().values()) == corpus.num_samples


@pytest.mark.parametrize("world_size", [2, 4, None])
def test_in_the_last_step_every_rank_has_samples_of_every_entry_if_there_are_enough(world_size):
    mixture, measure = joined(["static", "text"], [100, 300], 301)
    corpus = Passes(mixture).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    world_size = world_size or plan.num_batches - 1
    last = list(steps_of(plan, world_size))[-1]
    assert len(last) == world_size
    per_rank = [
        set().union(*(entries_in(corpus, piece) for piece in batch.pieces)) for batch in last
    ]
    per_entry = [sum(entry in found for found in per_rank) for entry in (0, 1)]
    totals = [
        sum(len(p) for b in last for p in b.pieces if entries_in(corpus, p) == {entry})
        for entry in (0, 1)
    ]
    assert per_entry == [min(total, world_size) for total in totals]


def test_a_batch_is_as_large_as_the_policy_of_its_entry_allows():
    mixture, measure = joined(["static", "text"], [300, 900], 1300)
    corpus = Passes(mixture).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    sizes = {0: [], 1: []}
    for index in range(plan.num_batches):
        for piece in plan.batch(index).pieces:
            (entry,) = entries_in(corpus, piece)
            sizes[entry].append(len(piece) if entry == 0 else len(piece) * int(piece.frames.max()))
    assert max(sizes[0]) == 7
    assert 200 < max(sizes[1]) <= 300
    assert abs(len(sizes[0]) - len(sizes[1])) <= 1


def test_a_division_into_lanes_has_all_entries_in_every_row():
    mixture, measure = joined(["dynamic", "static"], [4000, 9000], 12000, shards=40)
    corpus = Passes(mixture).corpus_of(0)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(2, 2))
    rows = [plan.batch(t) for t in range(plan.num_batches)]
    assert sum(map(len, rows)) + sum(plan.filtered().values()) == corpus.num_samples
    counted = [set().union(*(entries_in(corpus, piece) for piece in row.pieces)) for row in rows]
    assert all(found == {0, 1} for found in counted)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_scaled_units_allow_exactly_the_batches_of_the_policy(name):
    conf = BatchConf(**POLICIES[name])
    plain = measure_of(DatasetConf(batch_conf=conf), training=True, text_length_is_tokens=True)
    corpus = TextOnly([500]) if "text" in name else IndexOnlyCorpus([500])
    lengths = plain.lengths(corpus.rows(0))
    units = plain.policy.units(lengths)
    policy = entry_policy_of([conf]).policies[0]
    scaled = policy.units(lengths)
    assert (np.argsort(units, kind="stable") == np.argsort(scaled, kind="stable")).all()
    for ours, theirs in itertools.islice(zip(scaled.tolist(), units.tolist(), strict=True), 100):
        if theirs <= plain.policy.bound:
            assert policy.bound // ours == plain.policy.bound // theirs or name == "text"
        else:
            assert ours > policy.bound
