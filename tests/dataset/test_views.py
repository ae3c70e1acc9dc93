"""Two views of each utterance in the batches of a loader, and the batches that are planned for
them.
"""

import json

import numpy as np
import pytest
import torch

from tests.support.data.loading import loader, same
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf, ViewsConf
from wenet_uio.dataset.plan.entry_policy import entry_policy_of
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.plan.policies import Lengths, policy_of

TWO = ViewsConf(number=2, time_mask_ratio=2.5)
VIEWS = {"views": TWO, "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 800}}
POLICIES = [
    BatchConf(batch_type="static", batch_size=8),
    BatchConf(batch_type="dynamic", max_frames_in_batch=8000),
    BatchConf(batch_type="dynamic", batch_duration=80, batch_size=20),
    BatchConf(batch_type="bucket", bucket_boundaries=(500, 1000), bucket_batch_sizes=(16, 8, 4)),
    BatchConf(
        batch_type="bucket", bucket_duration_bins=((5.0, 50), (40.0, 90)), bucket_batch_size=(8, 4)
    ),
]


@pytest.fixture
def lists(make_lists):
    return make_lists(24)


def same_views(left, right):
    return same(left, right) and torch.equal(left.other_feats, right.other_feats)


def test_views_are_equal_on_any_worker_and_storage_and_after_a_resume(lists):
    expected = list(loader(lists["raw"], "raw", conf=VIEWS))
    assert len(expected) > 5
    for kind, workers in (("shard", 0), ("raw", 2)):
        found = list(loader(lists[kind], kind, conf=VIEWS, num_workers=workers))
        assert all(same_views(*pair) for pair in zip(found, expected, strict=True))
    one = loader(lists["raw"], "raw", conf=VIEWS)
    for _ in zip(range(3), one, strict=False):
        pass
    other = loader(lists["raw"], "raw", conf=VIEWS)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert all(same_views(*pair) for pair in zip(other, expected[3:], strict=True))


def test_views_of_another_epoch_or_seed_differ(lists):
    one = loader(lists["raw"], "raw", conf=VIEWS)
    masked = [
        {
            key: row[:30] == 0
            for batch in batches
            for key, row in zip(batch.keys, batch.other_feats, strict=True)
        }
        for batches in (one, one, loader(lists["raw"], "raw", conf=VIEWS, seed=5))
    ]
    for other in masked[1:]:
        equal = sum(torch.equal(mask, other[key]) for key, mask in masked[0].items())
        assert equal < len(other) / 2


def test_validation_reads_one_view_in_batches_of_the_whole_bound(lists):
    plain = list(loader(lists["raw"], "raw", training=False, conf={**VIEWS, "views": ViewsConf()}))
    for batch, expected in zip(
        loader(lists["raw"], "raw", training=False, conf=VIEWS), plain, strict=True
    ):
        assert batch.other_feats is None
        assert batch.keys == expected.keys


def lengths(seconds):
    seconds = np.asarray(seconds, float)
    return Lengths(
        (seconds * 100).astype(int),
        (seconds * 1000).astype(int),
        np.full(len(seconds), 9),
        seconds == 0,
    )


@pytest.mark.parametrize("conf", POLICIES)
def test_a_batch_holds_half_as_many_utterances(conf):
    plain, doubled = policy_of(conf), policy_of(conf, views=2)
    for seconds in (3.0, 7.0, 12.0):
        held = [
            int(policy.bound // policy.units(lengths([seconds]))[0]) for policy in (plain, doubled)
        ]
        assert held[1] == held[0] // 2


@pytest.mark.parametrize("conf", POLICIES)
def test_both_views_of_a_planned_batch_stay_within_the_bound(conf):
    corpus = IndexOnlyCorpus((400,))
    dataset = DatasetConf(batch_conf=conf, views=TWO)
    measure = measure_of(dataset, training=True, text_length_is_tokens=True)
    one_view = measure_of(
        dataset.model_copy(update={"views": ViewsConf()}), training=True, text_length_is_tokens=True
    )
    assert measure.digest() != one_view.digest()
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    planned = 0
    for t in range(plan.num_batches):
        for piece in plan.batch(t).pieces:
            seconds = corpus.rows(0).seconds[piece.rows]
            units = one_view.policy.units(
                Lengths(
                    one_view.frame_count((seconds * 16000).astype(int)),
                    np.ceil(1000 * seconds).astype(int),
                    corpus.rows(0).text_length[piece.rows].astype(int),
                    np.zeros(len(seconds), bool),
                )
            )
            assert 2 * len(seconds) * units.max() <= one_view.policy.bound
            planned += len(seconds)
    left_out = measure.filtered(corpus)
    assert planned + left_out.total() == 400


def test_text_without_audio_has_one_view():
    conf = BatchConf(batch_type="dynamic", max_frames_in_batch=8000, batch_tokens=100)
    text = Lengths(np.array([10]), np.array([0]), np.array([10]), np.array([True]))
    assert policy_of(conf, views=2).units(text) == policy_of(conf).units(text)


def test_entries_of_a_mixture_with_batches_of_their_own_are_halved_too():
    plain, doubled = entry_policy_of(POLICIES[:2]), entry_policy_of(POLICIES[:2], views=2)
    both = Lengths(*vars(lengths([3.0, 3.0])).values())
    both = Lengths(both.frames, both.milliseconds, both.tokens, both.text_only, np.array([0, 1]))
    assert (plain.bound // doubled.units(both)).tolist() == [4, 13]


def test_an_utterance_whose_views_exceed_the_bound_is_left_out_and_counted(lists):
    conf = {**VIEWS, "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 100}}
    one = loader(lists["raw"], "raw", conf=conf)
    read = sum(len(batch.keys) for batch in one)
    filtered = one.cursor.plan.filtered()
    assert filtered["fits_no_batch"] > 0
    assert read + filtered.total() == 24
