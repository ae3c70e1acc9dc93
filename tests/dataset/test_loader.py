import numpy as np
import pytest
import torch

from tests.support.data.loading import loader, same

COUNT = 28
"""Utterances of a list; they make about 7 batches."""


@pytest.fixture
def lists(make_lists):
    return make_lists(COUNT)


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_a_loader_summarises_the_lengths_of_its_utterances(lists, kind):
    found = loader(lists[kind], kind)
    seconds = np.concatenate(
        [found.corpus.rows(shard).seconds for shard in range(found.corpus.num_shards)]
    )
    expected = {
        "median": np.median(seconds),
        "most": np.percentile(seconds, 95),
        "longest": seconds.max(),
    }
    assert found.utterance_seconds() == pytest.approx(expected, abs=0.01)


def test_raw_and_shard_and_any_number_of_workers_give_equal_batches(lists):
    expected = list(loader(lists["raw"], "raw"))
    assert len(expected) > 3
    for kind, workers in (("shard", 0), ("raw", 4), ("shard", 1)):
        batches = list(loader(lists[kind], kind, num_workers=workers))
        assert len(batches) == len(expected)
        assert all(same(*pair) for pair in zip(batches, expected, strict=True))


@pytest.mark.parametrize("dither", [0.0, 1.0])
@pytest.mark.parametrize("bins", [23, 40, 80])
def test_features_of_an_utterance_have_the_same_bits_in_batches_of_any_size(lists, bins, dither):
    def features(kind, batch_size):
        conf = {
            "speed_perturb": False,
            "fbank_conf": {"num_mel_bins": bins, "dither": dither},
            "batch_conf": {"batch_type": "static", "batch_size": batch_size},
        }
        return {
            key: feats[:length]
            for batch in loader(lists[kind], kind, conf=conf)
            for key, feats, length in zip(batch.keys, batch.feats, batch.feats_lengths, strict=True)
        }

    alone = features("raw", 1)
    assert len(alone) == COUNT
    for kind, batch_size in (("raw", 3), ("shard", 7), ("shard", COUNT)):
        found = features(kind, batch_size)
        assert found.keys() == alone.keys()
        assert all(torch.equal(feats, alone[key]) for key, feats in found.items())


def test_deferred_features_equal_those_of_the_workers_for_any_data_type_and_number_of_workers(
    lists,
):
    expected = list(loader(lists["raw"], "raw"))
    first: list = []
    for kind, workers in (("raw", 0), ("shard", 2)):
        deferred = list(loader(lists[kind], kind, num_workers=workers, defer_features=True))
        assert all(batch.deferred is not None for batch in deferred)
        found = [batch.to("cpu") for batch in deferred]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.keys == theirs.keys
            assert torch.equal(ours.feats_lengths, theirs.feats_lengths)
            torch.testing.assert_close(ours.feats, theirs.feats, atol=1e-3, rtol=0)
        first = first or found
        assert all(same(*pair) for pair in zip(found, first, strict=True))


def test_waveforms_that_are_stored_with_16_bits_cross_processes_as_they_are(lists):
    conf = {"speed_perturb": False}
    for batch in loader(lists["shard"], "shard", conf=conf, num_workers=1, defer_features=True):
        assert batch.deferred.waveforms.dtype == torch.int16
        assert batch.deferred.waveforms.is_shared()
        memory = {
            tensor.untyped_storage().data_ptr() for tensor in batch.deferred.tensors().values()
        }
        assert len(memory) == 1


def test_features_cross_processes_in_one_shared_buffer(lists):
    for batch in loader(lists["shard"], "shard", num_workers=1):
        tensors = (batch.feats, batch.feats_lengths, batch.target, batch.target_lengths)
        assert all(tensor.is_shared() for tensor in tensors)
        assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_the_ranks_of_a_world_share_one_epoch_in_equal_steps(lists):
    alone = list(loader(lists["raw"], "raw"))
    for world_size in (2, 3, 7):
        ranks = [
            list(loader(lists["raw"], "raw", rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        steps = [sum(batch.closes_step for batch in batches) for batches in ranks]
        assert len(set(steps)) == 1
        keys = sorted(key for batches in ranks for batch in batches for key in batch.keys)
        assert keys == sorted(key for batch in alone for key in batch.keys)


def test_shares_are_whole_batches_of_the_plan_each_once(lists):
    whole = list(loader(lists["raw"], "raw", training=False))
    assert len(whole) % 3  # the last step of three ranks would split a batch
    for shares in (1, 3):
        dealt = [
            list(loader(lists["raw"], "raw", training=False).share(number, shares))
            for number in range(shares)
        ]
        for number, batches in enumerate(dealt):
            expected = whole[number::shares]
            assert len(batches) == len(expected)
            assert all(same(*pair) for pair in zip(batches, expected, strict=True))


def test_features_have_as_many_frames_as_the_plan_counted(lists):
    planned = loader(lists["raw"], "raw", conf={"spec_trim": False})
    for index, batch in enumerate(loader(lists["raw"], "raw", conf={"spec_trim": False})):
        (piece,) = planned.cursor.plan.batch(index).pieces
        assert sorted(batch.feats_lengths.tolist()) == sorted(piece.frames.tolist())
        assert batch.feats.shape[0] * batch.feats.shape[1] <= 400


def test_a_state_resumes_at_the_next_batch_on_another_world_size(lists):
    whole = sorted(key for batch in loader(lists["raw"], "raw") for key in batch.keys)
    first = [
        loader(lists["raw"], "raw", rank=rank, world_size=2, num_workers=rank) for rank in (0, 1)
    ]
    seen, streams = [], [iter(rank) for rank in first]
    for _ in range(2):
        seen += [key for stream in streams for key in next(stream).keys]
    states = [rank.state_dict() for rank in first]
    assert states[0] == states[1]
    assert len(str(states[0])) < 1024
    for rank in range(3):
        resumed = loader(lists["shard"], "shard", rank=rank, world_size=3)
        resumed.load_state_dict(states[0])
        seen += [key for batch in resumed for key in batch.keys]
        assert (resumed.epoch, resumed.cursor.position) == (1, 0)
    assert sorted(seen) == whole


def test_the_last_batch_before_a_stop_is_not_read_again(lists):
    one = loader(lists["raw"], "raw")
    batches = iter(one)
    read = [next(batches), next(batches)]
    other = loader(lists["raw"], "raw")
    other.load_state_dict(one.state_dict())
    rest = list(other)
    assert all(same(*pair) for pair in zip(read + rest, loader(lists["raw"], "raw"), strict=True))


def test_epochs_reshuffle_in_training_and_repeat_in_evaluation(lists):
    for training in (True, False):
        one = loader(lists["raw"], "raw", training=training)
        first, second = ([batch.keys for batch in one] for _ in range(2))
        assert (first != second) == training
        assert sorted(sum(first, ())) == sorted(sum(second, ()))


def test_evaluation_leaves_features_alone_and_keeps_every_utterance(lists):
    strict = {"filter_conf": {"min_length": 60}, "fbank_conf": {"num_mel_bins": 20, "dither": 1.0}}
    runs = [
        list(loader(lists["raw"], "raw", training=False, seed=seed, conf=strict)) for seed in (1, 2)
    ]
    feats = [
        {key: batch.feats[row] for batch in run for row, key in enumerate(batch.keys)}
        for run in runs
    ]
    assert len(feats[0]) == COUNT
    for key, one in feats[0].items():
        size = min(len(one), len(feats[1][key]))
        assert torch.equal(one[:size], feats[1][key][:size])
    assert sum(len(batch) for batch in loader(lists["raw"], "raw", conf=strict)) < COUNT


def test_a_changed_policy_is_refused_within_an_epoch_and_taken_between_epochs(lists):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    other = loader(lists["raw"], "raw", conf={"batch_conf": {"batch_size": 3}})
    with pytest.raises(
        ValueError, match=r"dataset_conf .* changed since the checkpoint, which is inside epoch 0"
    ):
        other.load_state_dict(one.state_dict())
    one.set_epoch(4)
    other.load_state_dict(one.state_dict())
    assert other.epoch == 4


def test_a_state_of_another_version_is_refused(lists):
    one = loader(lists["raw"], "raw")
    state = one.state_dict()
    del state["lanes"]
    with pytest.raises(
        ValueError, match=r"another version of wenet_uio \(it lacks lanes\): .* --checkpoint"
    ):
        one.load_state_dict(state)


def test_a_changed_data_set_is_refused_within_an_epoch(lists, tmp_path):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    (tmp_path / "less.list").write_text("".join(open(lists["raw"]).readlines()[:-1]))
    with pytest.raises(ValueError, match="the data set .*less.list changed"):
        loader(str(tmp_path / "less.list"), "raw").load_state_dict(one.state_dict())


def test_a_nominal_epoch_continues_where_the_last_one_stopped(lists):
    steps = len(loader(lists["raw"], "raw"))
    one = loader(lists["raw"], "raw", epoch_steps=steps + 2)
    first, second = list(one), list(one)
    assert (one.epoch, one.cursor.data_pass, one.cursor.position) == (2, 2, 4)
    assert len(first) == len(second) == steps + 2
    passes = loader(lists["raw"], "raw")
    plain = [*passes, *passes, *passes]
    assert all(same(*pair) for pair in zip(first + second, plain, strict=False))


@pytest.mark.parametrize("stop", [1, 7])
def test_a_nominal_epoch_resumes_anywhere(lists, stop):
    one = loader(lists["raw"], "raw", epoch_steps=9, num_workers=1)
    whole = [*one, *one]
    other = loader(lists["raw"], "raw", epoch_steps=9)
    stream = iter(other)
    read = [next(stream) for _ in range(stop)]
    resumed = loader(lists["raw"], "raw", epoch_steps=9)
    resumed.load_state_dict(other.state_dict())
    assert len(resumed) == 9 - stop
    assert all(same(*pair) for pair in zip([*read, *resumed, *resumed], whole, strict=True))


def test_without_partition_every_rank_reads_everything_in_its_own_order(lists):
    # Orders that need different numbers of batches
    batch_conf = {
        "batch_type": "dynamic",
        "max_frames_in_batch": 300,
    }
    conf = {"partition": False, "batch_conf": batch_conf}
    ranks = [list(loader(lists["raw"], "raw", rank=r, world_size=3, conf=conf)) for r in range(3)]
    assert len({sum(batch.closes_step for batch in batches) for batches in ranks}) == 1
    keys = [[key for batch in batches for key in batch.keys] for batches in ranks]
    assert all(sorted(order) == sorted(keys[0]) for order in keys)
    assert len(set(keys[0])) == len(keys[0]) == COUNT
    assert keys[0] != keys[1]


def test_a_change_can_be_allowed_and_starts_the_pass_over(lists):
    one = loader(lists["raw"], "raw")
    stream = iter(one)
    next(stream)
    other = loader(lists["raw"], "raw", conf={"batch_conf": {"batch_size": 3}})
    other.load_state_dict(one.state_dict(), allow_changes=True)
    assert (other.epoch, other.cursor.position) == (0, 0)
    assert sum(len(batch) for batch in other) == COUNT
