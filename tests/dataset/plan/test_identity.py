"""A plan is recognised by stated values, whatever the code calls them."""

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import create_model

from tests.dataset.plan.measures import measures
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.frames import FrameCount
from wenet_uio.dataset.plan import policies
from wenet_uio.dataset.plan.identity import digest_of
from wenet_uio.dataset.plan.measure import Measure, measure_of

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
