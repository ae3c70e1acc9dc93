import dataclasses
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from tests.dataset.plan.measures import measures
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.corpus.index import Rows, shard_table, summary_of
from wenet_uio.dataset.lengths import FrameCount
from wenet_uio.dataset.plan import measure as measure_module
from wenet_uio.dataset.plan import policies
from wenet_uio.dataset.plan.measure import Measure, digest_of, measure_of

SUMMED = [
    BatchConf(batch_type="dynamic", batch_duration=21, batch_target=9),
    BatchConf(batch_type="static", batch_size=7),
    BatchConf(batch_type="dynamic", max_frames_in_batch=2100),
    BatchConf(batch_type="dynamic", batch_duration=21),
]
"""Policies whose units of whole shards follow from the table of shards."""
LOOKED_INTO = [
    BatchConf(batch_type="bucket", bucket_boundaries=(300, 700), bucket_batch_sizes=(16, 8, 4)),
    BatchConf(
        batch_type="bucket", bucket_duration_bins=((2, 5), (20, 9)), bucket_batch_size=(8, 2)
    ),
    BatchConf(batch_type="dynamic", batch_tokens=400, quadratic_factor=90),
]
"""Policies that read the index of each sample."""
POLICIES = SUMMED + LOOKED_INTO


class EdgeCorpus(IndexOnlyCorpus):
    """Samples at unusual rates; some are one sample shorter or longer than a bound."""

    def __init__(self, counts, seed):
        super().__init__(counts, seed)
        random = np.random.default_rng(seed)
        total = len(self._rows)
        rate = random.choice([8000, 11025, 16000, 44100, 768000], total)
        seconds = (
            random.choice([1.0, 2.0, 5.0, 20.0], total)
            if random.random() < 0.5
            else random.uniform(1, 20, total)
        )
        num_samples = np.round(seconds * rate).astype(np.int64) + random.integers(-1, 2, total)
        self._rows = replace(
            self._rows,
            sample_rate=rate.astype(np.uint32),
            num_samples=num_samples.astype(np.uint32),
        )
        table = shard_table(self.run(shard) for shard in range(len(counts)))
        super(IndexOnlyCorpus, self).__init__("edges", table, [], summary_of(table), self.facts)
        self.looked_into = []

    def rows(self, shard) -> Rows:
        self.looked_into.append(shard)
        return self.run(shard)


def measure(policy, **bounds):
    if policy.batch_tokens is not None:
        bounds = {"token_equivalent_duration": 0.1, **bounds}
    conf = DatasetConf(speed_perturb=True, batch_conf=policy, filter_conf=FilterConf(**bounds))
    return measure_of(conf, training=True, text_length_is_tokens=True)


corpora = st.builds(
    EdgeCorpus, st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(0, 10_000)
)
bounds = st.fixed_dictionaries(
    {},
    optional={
        "min_length": st.sampled_from([50, 100, 200]),
        "max_length": st.sampled_from([200, 500, 2000]),
        "min_duration": st.sampled_from([1.0, 2.0]),
        "max_duration": st.sampled_from([5.0, 20.0]),
        "token_max_length": st.integers(5, 60),
        "min_output_input_ratio": st.sampled_from([0.001, 0.01, 0.1]),
        "max_tps": st.sampled_from([3.0, 30.0, 300.0]),
        "token_equivalent_duration": st.sampled_from([0.08, 1.0]),
        "min_tokens": st.sampled_from([5, 20]),
        "max_tokens": st.sampled_from([25, 100]),
        "measure_total_length": st.booleans(),
    },
)


@given(corpora, st.sampled_from(POLICIES), bounds, st.integers(1, 5))
def test_filtered_samples_are_counted_exactly_by_any_number_of_ranks(corpus, policy, bounds, ranks):
    rule = measure(policy, **bounds)
    expected = sum(
        (rule.keep(corpus.run(shard))[1] for shard in range(corpus.num_shards)), Counter()
    )
    assert rule.filtered(corpus) == expected
    assert sum((rule.filtered(corpus, rank, ranks) for rank in range(ranks)), Counter()) == expected


@given(corpora, st.sampled_from(LOOKED_INTO), bounds, st.sampled_from([1, 5, 1000]))
def test_units_of_shards_are_the_sums_of_their_samples(corpus, policy, bounds, at_once):
    rule = measure(policy, **bounds)
    rows = [corpus.run(shard) for shard in range(corpus.num_shards)]
    speed = 1 / float(np.mean(1 / np.asarray(rule.speeds)))
    expected = [
        int(rule.policy.units(rule.lengths(each, speed))[rule.keep(each)[0]].sum()) for each in rows
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure_module, "SAMPLES_AT_ONCE", at_once)
        assert rule.shard_units(corpus).tolist() == expected
        assert rule.shard_units(corpus, slice(2, 7)).tolist() == expected[2:7]


@pytest.mark.parametrize("policy", SUMMED)
def test_counting_reads_the_index_only_of_shards_that_a_filter_may_change(policy):
    corpus = EdgeCorpus([3] * 40, seed=3)
    seconds = [corpus.run(shard).seconds for shard in range(40)]
    corpus.looked_into.clear()
    long = [shard for shard in range(40) if seconds[shard].max() > 15]
    assert 0 < len(long) < 40
    rule = measure(policy, min_length=10, max_length=1500)
    assert sum(rule.filtered(corpus).values()) > 0
    assert corpus.looked_into == long


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("batch_conf", POLICIES)
@pytest.mark.parametrize("counts", [(), (0,), (0, 3, 0)])
def test_shards_without_samples_give_no_units_and_no_warning(batch_conf, counts):
    corpus = IndexOnlyCorpus(counts)
    measure = measure_of(DatasetConf(batch_conf=batch_conf), training=True)
    units = measure.shard_units(corpus)
    assert len(units) == len(counts)
    assert not any(units[np.asarray(counts) == 0])
    assert measure.filtered(corpus).total() <= sum(counts)


DIGESTS = json.loads(Path(__file__).with_name("digests.json").read_text())
"""Digests of `measures()`. A change refuses the states of all runs inside an epoch."""


def test_digests_do_not_change():
    assert {name: measure.digest() for name, measure in measures().items()} == DIGESTS


def test_other_values_are_another_plan():
    digests = {json.dumps(each.identity()): each.digest() for each in measures().values()}
    assert len(set(digests.values())) == len(digests)


def test_every_value_of_a_measure_is_part_of_its_identity():
    """A field that is forgotten would resume a plan with other batches."""
    measure = measures()["filters"]
    changes = {
        "policy": policies.FramesPolicy(7),
        "frame_count": FrameCount(8000, 200, 80),
        "filter": None,
        "entry_filters": (FilterConf(),),
        "speeds": (1.0, 1.1),
        "text_length_is_tokens": False,
        "noise": 0.3,
        "length_order": "rising",
        "length_jitter": 3.0,
    }
    assert changes.keys() == {field.name for field in dataclasses.fields(Measure)}
    for name, value in changes.items():
        assert dataclasses.replace(measure, **{name: value}).digest() != measure.digest(), name
    for field in dataclasses.fields(FrameCount):
        value = {"snip_edges": False, "fixed_samples": 9}.get(field.name, 7)
        count = dataclasses.replace(measure.frame_count, **{field.name: value})
        assert dataclasses.replace(measure, frame_count=count).digest() != measure.digest(), field
    for name in FilterConf.model_fields:
        value = {"measure_total_length": False}.get(name, 5.5)
        changed = measure.filter.model_copy(update={name: value})
        assert dataclasses.replace(measure, filter=changed).digest() != measure.digest(), name


@pytest.mark.parametrize("name", [name for name in sorted(DIGESTS) if "eval" not in name])
def test_every_field_of_a_policy_is_part_of_its_identity(name):
    policy = measures()[name].policy
    stated = policy.identity().keys() - {"kind"}
    if isinstance(policy, policies.TokensPolicy):  # states both fields of `audio_tokens` itself
        stated = stated - {"seconds_of_token", "with_text"} | {"audio_tokens"}
    assert stated == {field.name for field in dataclasses.fields(policy)}


def test_classes_may_be_renamed_and_fields_reordered():
    """The class of a policy, of a measure and of a section gets another name and order."""
    before = measures()["filters"].digest()
    renamed_filter = create_model("Sieve", __base__=FilterConf)
    conf = DatasetConf(filter_conf={"min_length": 100, "max_duration": 20.0})
    values = dict(reversed({"min_length": 100, "max_duration": 20.0, "min_tpt": 0.5}.items()))
    conf = conf.model_copy(update={"filter_conf": renamed_filter(max_tpt=3.0, **values)})

    class BatchOfTheSameSize(policies.StaticPolicy):
        pass

    class Yardstick(Measure):
        pass

    measure = measure_of(conf, training=True, text_length_is_tokens=True)
    fields = {field.name: getattr(measure, field.name) for field in dataclasses.fields(measure)}
    fields["policy"] = BatchOfTheSameSize(measure.policy.batch_size)
    renamed = Yardstick(**dict(reversed(fields.items())))
    assert repr(renamed) != repr(measure)
    assert renamed.digest() == measure.digest() == before
    assert digest_of(dict(reversed(renamed.identity().items()))) == before


def test_batch_sizes_are_told_apart():
    sizes = [
        measure_of(DatasetConf(batch_conf=BatchConf(batch_size=size)), training=True).digest()
        for size in (1, 2)
    ]
    assert sizes[0] != sizes[1]
