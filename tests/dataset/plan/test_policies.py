import numpy as np
import pytest

from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.config.base import ConfigError
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.plan.entry_policy import entry_policy_of
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.plan.policies import Lengths, policy_of

BINS = ((4.0, 20), (4.0, 40), (8.0, 30), (8.0, 60))
SIZES = (16, 12, 8, 4)


def lengths(seconds, tokens=1):
    seconds = np.atleast_1d(np.asarray(seconds, float))
    tokens = np.broadcast_to(np.asarray(tokens), seconds.shape)
    return Lengths((seconds * 100).astype(int), (seconds * 1000).astype(int), tokens, seconds == 0)


def batches(conf, counts=(400,), **filters):
    corpus = IndexOnlyCorpus(counts)
    dataset = DatasetConf(batch_conf=conf, filter_conf=filters)
    measure = measure_of(dataset, training=True, text_length_is_tokens=True)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=Division(1, 1))
    rows = [[(corpus.rows(int(s)), int(r)) for s, r in zip(p.shards, p.rows, strict=True)]
            for t in range(plan.num_batches) for p in plan.batch(t).pieces]  # fmt: skip
    seconds = [np.array([float(row.seconds[r]) for row, r in piece]) for piece in rows]
    tokens = [np.array([int(row.text_length[r]) for row, r in piece]) for piece in rows]
    return seconds, tokens, plan


def largest_batch(conf, one):
    policy = policy_of(conf)
    return int(policy.bound // policy.units(one)[0])


def test_buckets_of_frames_hold_their_batch_sizes():
    conf = BatchConf(
        batch_type="bucket", bucket_boundaries=(500, 1000), bucket_batch_sizes=(8, 4, 2)
    )
    assert [largest_batch(conf, lengths(s)) for s in (4.99, 5.0, 9.99, 10.0)] == [8, 4, 4, 2]


def test_batch_duration_bounds_padded_seconds():
    seconds, _, _ = batches(BatchConf(batch_type="dynamic", batch_duration=60))
    assert max(len(batch) * batch.max() for batch in seconds) <= 60
    assert np.mean([len(batch) * batch.max() for batch in seconds]) > 50


def test_a_quadratic_term_makes_long_utterances_cost_more():
    conf = BatchConf(batch_type="dynamic", batch_duration=60, quadratic_duration=20)
    assert largest_batch(conf, lengths(20.0)) == 1
    assert largest_batch(conf, lengths(2.0)) == 27
    seconds, _, _ = batches(conf)
    assert max(len(b) * (b.max() + b.max() ** 2 / 20) for b in seconds) <= 60.1


@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_batch_size_caps_a_duration(size):
    conf = BatchConf(batch_type="dynamic", batch_duration=60, batch_size=size)
    assert largest_batch(conf, lengths(0.5)) == size
    assert max(map(len, batches(conf)[0])) <= size


def test_duration_bins_include_their_end_and_may_have_a_bucket_for_longer_utterances():
    conf = BatchConf(
        batch_type="bucket", bucket_duration_bins=(4.0, 8.0), bucket_batch_size=(16, 8, 2)
    )
    assert [largest_batch(conf, lengths(s)) for s in (4.0, 4.01, 8.0, 20.0)] == [16, 8, 8, 2]
    closed = conf.model_copy(update={"bucket_batch_size": (16, 8)})
    assert largest_batch(closed, lengths(20.0)) == 0


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("strict", {(3, 15): 16, (3, 30): 12, (3, 50): 0, (6, 50): 4, (9, 5): 0}),
        ("lenient", {(3, 50): 4, (9, 5): 0}),
    ],
)
def test_buckets_in_two_dimensions_are_chosen_as_in_lhotse(choice, expected):
    conf = BatchConf(
        batch_type="bucket",
        bucket_duration_bins=BINS,
        bucket_batch_size=SIZES,
        bucket_choice=choice,
    )
    found = {(s, n): largest_batch(conf, lengths(float(s), n)) for s, n in expected}
    assert found == expected


@pytest.mark.parametrize("counts", [(400,), (40,) * 40])
def test_a_batch_in_two_dimensions_has_the_shape_of_one_bucket(counts):
    conf = BatchConf(batch_type="bucket", bucket_duration_bins=BINS, bucket_batch_size=SIZES)
    seconds, tokens, plan = batches(conf, counts)
    for batch, text in zip(seconds, tokens, strict=True):
        fitting = [
            size
            for (end, most), size in zip(BINS, SIZES, strict=True)
            if batch.max() <= end + 1e-3 and text.max() <= most
        ]
        assert fitting
        assert len(batch) <= max(fitting)
    dropped = plan.filtered()
    assert dropped["fits_no_batch"] > 0
    assert sum(map(len, seconds)) + sum(dropped.values()) == sum(counts)


def test_tokens_per_second_are_filtered():
    seconds, tokens, plan = batches(BatchConf(), max_tps=6.0, min_tps=1.0)
    rates = np.concatenate(tokens) / np.concatenate(seconds)
    assert rates.max() <= 6
    assert rates.min() >= 1
    assert {"max_tps", "min_tps"} <= set(plan.filtered())


def test_each_duration_has_its_own_limit_of_tokens_per_second():
    bins, sizes = (4.0, 8.0), (16, 8)
    conf = BatchConf(
        batch_type="bucket", bucket_duration_bins=bins, bucket_batch_size=sizes, max_tps=(5.0, 2.0)
    )
    assert [
        largest_batch(conf, lengths(s, n)) for s, n in ((4, 20), (4, 21), (8, 16), (8, 17))
    ] == [16, 0, 8, 0]


def test_semi_sorted_batches_pad_more_the_more_noise_they_have():
    def padding(**options):
        seconds, _, _ = batches(BatchConf(batch_size=8, **options))
        return 1 - sum(b.sum() for b in seconds) / sum(len(b) * b.max() for b in seconds)

    little, much = (
        padding(use_semi_sorted_batching=True, randomization_factor=r) for r in (0.01, 0.5)
    )
    assert little < 0.05 < much


def test_rising_order_sorts_the_epoch_by_length():
    seconds, _, _ = batches(BatchConf(length_order="rising"))
    means = [batch.mean() for batch in seconds]
    assert means == sorted(means)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (BatchConf(batch_size=7), "StaticPolicy(batch_size=7)"),
        (BatchConf(batch_type="dynamic"), "FramesPolicy(bound=12000)"),
        (
            BatchConf(batch_type="dynamic", batch_duration=60, quadratic_duration=20),
            "DurationPolicy(bound=60000, quadratic=20000, batch_size=None)",
        ),
        (
            BatchConf(batch_type="bucket", bucket_boundaries=(300,), bucket_batch_sizes=(8, 4)),
            f"BucketPolicy(ends=(300,), sizes=(8, 4), bound={1 << 30})",
        ),
        (
            BatchConf(batch_type="bucket", bucket_duration_bins=(4.0,), bucket_batch_size=(8,)),
            f"DurationBucketPolicy(ends=((4000, {2**63 - 1}),), sizes=(8,), lenient=False, "
            "max_tps=None, "
            f"bound={1 << 30})",
        ),
        (
            BatchConf(batch_tokens=300),
            "TextPolicy(audio=StaticPolicy(batch_size=16), batch_tokens=300, quadratic=None)",
        ),
    ],
)
def test_the_repr_of_a_policy_stays_so_that_saved_states_still_fit(conf, expected):
    assert repr(policy_of(conf)) == expected


@pytest.mark.parametrize("counts", [(400,), (30, 370)])
def test_batches_are_filled_to_the_target_and_longer_utterances_are_alone(counts):
    conf = {"batch_type": "dynamic", "batch_duration": 60}
    bounded, targeted = (
        batches(BatchConf(**conf, **more), counts)[0] for more in ({}, {"batch_target": 12})
    )
    assert sum(map(len, bounded)) == sum(map(len, targeted))
    costs = np.array([len(batch) * batch.max() for batch in targeted])
    alone = np.array([len(batch) == 1 for batch in targeted])
    assert (costs[~alone] <= 12.001).all()
    assert costs[alone].max() > 12  # an utterance beyond the target, within the bound
    assert np.mean(costs[~alone]) > 9


def test_the_order_of_utterances_of_equal_batches_does_not_depend_on_a_target_at_the_bound():
    conf = {"batch_type": "dynamic", "max_frames_in_batch": 6000}
    plain, same = (batches(BatchConf(**conf, **more))[0] for more in ({}, {"batch_target": 6000}))
    assert all(np.array_equal(*pair) for pair in zip(plain, same, strict=True))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batch_target": 70}, "batch_target 70 is above batch_duration 60"),
        ({"batch_target": 7, "batch_type": "static"}, "goes with batch_type: dynamic"),
        ({"batch_target": 7, "batch_tokens": 100}, "without batch_tokens"),
    ],
)
def test_a_target_has_a_bound_above_it(more, message):
    with pytest.raises(ValueError, match=message):
        BatchConf(**{"batch_type": "dynamic", "batch_duration": 60, **more})


def test_a_target_is_refused_where_sources_have_batches_of_their_own():
    with pytest.raises(ConfigError, match="not where sources have a batch_conf of their own"):
        entry_policy_of([BatchConf(), BatchConf(batch_type="dynamic", batch_target=100)])
