import json
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.ledger import Ledger, reconciled, tally
from wenet_uio.dataset.measure import Measure
from wenet_uio.dataset.plan import EpochPlan
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5})
CONF = {
    "speed_perturb": True,
    "spec_sub": True,
    "spec_trim": True,
    "fbank_conf": {"num_mel_bins": 20, "dither": 1.0},
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 400},
}


class FakeConfig:
    def __init__(self, **conf):
        self.dataset_conf = DatasetConf(**{**CONF, **conf})


def loader(data_list, data_type, training=True, conf=None, **options):
    return build_loader(data_list, data_type, FakeConfig(**(conf or {})), TOKENIZER, training=training, **options)


def same(left, right):
    return (
        left.keys == right.keys
        and torch.equal(left.feats, right.feats)
        and torch.equal(left.target, right.target)
        and left.closes_step == right.closes_step
    )


@pytest.fixture
def lists(make_lists):
    return make_lists(40)


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_it_says_how_long_the_utterances_are(lists, kind):
    found = loader(lists[kind], kind)
    seconds = np.concatenate([found.corpus.rows(shard).seconds for shard in range(found.corpus.num_shards)])
    expected = {"median": np.median(seconds), "most": np.percentile(seconds, 95), "longest": seconds.max()}
    assert found.utterance_seconds() == pytest.approx(expected, abs=0.01)


def test_raw_and_shard_and_any_number_of_workers_give_equal_batches(lists):
    expected = list(loader(lists["raw"], "raw"))
    assert len(expected) > 5
    for kind, workers in (("shard", 0), ("raw", 4), ("shard", 1)):
        batches = list(loader(lists[kind], kind, num_workers=workers))
        assert len(batches) == len(expected)
        assert all(same(*pair) for pair in zip(batches, expected, strict=True))


def test_features_left_to_the_device_are_those_of_the_workers_in_raw_and_shard_mode_with_any_number_of_workers(lists):
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
        memory = {tensor.untyped_storage().data_ptr() for tensor in batch.deferred.tensors().values()}
        assert len(memory) == 1


def test_features_cross_processes_in_one_shared_buffer(lists):
    for batch in loader(lists["shard"], "shard", num_workers=1):
        tensors = (batch.feats, batch.feats_lengths, batch.target, batch.target_lengths)
        assert all(tensor.is_shared() for tensor in tensors)
        assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def test_the_ranks_of_a_world_share_one_epoch_in_equal_steps(lists):
    alone = list(loader(lists["raw"], "raw"))
    for world_size in (2, 3, 7):
        ranks = [list(loader(lists["raw"], "raw", rank=rank, world_size=world_size)) for rank in range(world_size)]
        steps = [sum(batch.closes_step for batch in batches) for batches in ranks]
        assert len(set(steps)) == 1
        keys = sorted(key for batches in ranks for batch in batches for key in batch.keys)
        assert keys == sorted(key for batch in alone for key in batch.keys)


def test_shares_are_whole_batches_of_the_plan_each_once(lists):
    whole = list(loader(lists["raw"], "raw", training=False))
    assert len(whole) % 3  # the last step of three ranks would split a batch
    for shares in (1, 3):
        dealt = [list(loader(lists["raw"], "raw", training=False).share(number, shares)) for number in range(shares)]
        for number, batches in enumerate(dealt):
            expected = whole[number::shares]
            assert len(batches) == len(expected)
            assert all(same(*pair) for pair in zip(batches, expected, strict=True))


def test_features_have_as_many_frames_as_the_plan_counted(lists):
    planned = loader(lists["raw"], "raw", conf={"spec_trim": False})
    for index, batch in enumerate(loader(lists["raw"], "raw", conf={"spec_trim": False})):
        (piece,) = planned.plan.batch(index).pieces
        assert sorted(batch.feats_lengths.tolist()) == sorted(piece.frames.tolist())
        assert batch.feats.shape[0] * batch.feats.shape[1] <= 400


def test_a_state_resumes_at_the_next_batch_on_another_world_size(lists):
    whole = sorted(key for batch in loader(lists["raw"], "raw") for key in batch.keys)
    first = [loader(lists["raw"], "raw", rank=rank, world_size=2, num_workers=rank) for rank in (0, 1)]
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
        assert (resumed.epoch, resumed.position) == (1, 0)
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
    runs = [list(loader(lists["raw"], "raw", training=False, seed=seed, conf=strict)) for seed in (1, 2)]
    feats = [{key: batch.feats[row] for batch in run for row, key in enumerate(batch.keys)} for run in runs]
    assert len(feats[0]) == 40
    for key, one in feats[0].items():
        size = min(len(one), len(feats[1][key]))
        assert torch.equal(one[:size], feats[1][key][:size])
    assert sum(len(batch) for batch in loader(lists["raw"], "raw", conf=strict)) < 40


def test_a_changed_policy_is_refused_within_an_epoch_and_taken_between_epochs(lists):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    other = loader(lists["raw"], "raw", conf={"batch_conf": {"batch_size": 3}})
    with pytest.raises(ValueError, match=r"dataset_conf .* changed since the checkpoint, which stands within epoch 0"):
        other.load_state_dict(one.state_dict())
    one.set_epoch(4)
    other.load_state_dict(one.state_dict())
    assert other.epoch == 4


def test_a_state_of_another_version_is_refused(lists):
    one = loader(lists["raw"], "raw")
    state = one.state_dict()
    del state["lanes"]
    with pytest.raises(ValueError, match="of another version .it lacks lanes.: use --checkpoint"):
        one.load_state_dict(state)


def test_a_changed_data_set_is_refused_within_an_epoch(lists, tmp_path):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    (tmp_path / "less.list").write_text("".join(open(lists["raw"]).readlines()[:-1]))
    with pytest.raises(ValueError, match="the data set .*less.list changed"):
        loader(str(tmp_path / "less.list"), "raw").load_state_dict(one.state_dict())


def test_bad_samples_shrink_their_batch_and_are_counted(lists):
    lines = open(lists["raw"]).readlines()
    broken = [line.split('"wav": "')[1].split('"')[0] for line in lines[:3]]
    one = loader(lists["raw"], "raw")
    steps = len(one)
    for path in broken:
        open(path, "wb").close()
    batches = list(iter(one))
    assert sum(batch.closes_step for batch in batches) == steps
    skipped = [sample for batch in batches for sample in batch.skipped]
    assert sorted(sample.key for sample in skipped) == ["utt0000", "utt0001", "utt0002"]
    assert {sample.reason for sample in skipped} == {"unreadable"}
    assert sum(len(batch) for batch in batches) == 37


def test_too_many_bad_samples_stop_the_run(lists):
    one = loader(lists["raw"], "raw")
    for line in open(lists["raw"]).readlines()[:15]:
        open(line.split('"wav": "')[1].split('"')[0], "wb").close()
    with pytest.raises(
        ListError, match="11 bad samples in epoch 0, more than max_bad_ratio 0.01 allows; the last is utt"
    ):
        list(one)


def test_a_bug_in_an_operator_is_not_bad_data(lists):
    one = loader(lists["raw"], "raw", num_workers=1)

    def buggy(example):
        return replace(example, key=example.key / 2)

    one._loader.dataset.chain += (buggy,)
    with pytest.raises(TypeError):
        list(one)


def test_token_filters_are_counted_as_filtered(lists):
    one = loader(lists["raw"], "raw", conf={"filter_conf": {"token_max_length": 2}})
    kept = sum(len(batch) for batch in one)
    assert kept == 40 - one.plan.filtered()["token_max_length"] == 27


def test_nominal_epochs_go_on_where_the_last_one_stopped(lists):
    steps = len(loader(lists["raw"], "raw"))
    one = loader(lists["raw"], "raw", epoch_steps=steps + 2)
    first, second = list(one), list(one)
    assert (one.epoch, one.data_pass, one.position) == (2, 2, 4)
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
    ranks = [list(loader(lists["raw"], "raw", rank=r, world_size=3, conf={"partition": False})) for r in range(3)]
    assert len({len(batches) for batches in ranks}) == 1
    keys = [[key for batch in batches for key in batch.keys] for batches in ranks]
    assert all(sorted(order) == sorted(keys[0]) for order in keys)
    assert len(set(keys[0])) == len(keys[0]) == 40
    assert keys[0] != keys[1]


def test_a_change_can_be_allowed_and_starts_the_pass_over(lists):
    one = loader(lists["raw"], "raw")
    stream = iter(one)
    next(stream)
    other = loader(lists["raw"], "raw", conf={"batch_conf": {"batch_size": 3}})
    other.load_state_dict(one.state_dict(), allow_changes=True)
    assert (other.epoch, other.position) == (0, 0)
    assert sum(len(batch) for batch in other) == 40


def break_wavs(raw_list, numbers):
    for number in numbers:
        line = open(raw_list).readlines()[number]
        open(line.split('"wav": "')[1].split('"')[0], "wb").close()


def accounts(ranks):
    """Read an epoch on every rank; their counts together."""
    counts = Counter()
    for one in ranks:
        epoch = one.epoch
        counts += tally(one) + one.left_out(epoch)
    return counts


@pytest.mark.parametrize("world_size", [1, 3])
def test_read_and_filtered_and_bad_are_all_there_is(lists, tmp_path, world_size):
    with open(lists["raw"], "a") as file:
        file.write("no JSON\n")
        file.write('{"key": "lost", "wav": "nowhere.wav", "txt": "a"}\n')
    filters = {"filter_conf": {"token_max_length": 2, "min_length": 50, "max_output_input_ratio": 0.02}}
    tokens_late = Tokenizer(CharSplitter(split_with_space=True), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2})
    ranks = [
        build_loader(lists["raw"], "raw", FakeConfig(**filters), tokens_late, training=True, rank=rank,
                     world_size=world_size, ledger=Ledger(tmp_path / "bad.jsonl"))
        for rank in range(world_size)
    ]  # fmt: skip
    break_wavs(lists["raw"], range(4))
    for _ in range(2):
        account = reconciled(accounts(ranks))
        assert account.all == 42
        assert account.bad["not_indexed"] == 2
        assert {"min_length"} <= set(account.filtered) <= {"min_length", "max_output_input_ratio"}
    lines = [json.loads(line) for line in open(tmp_path / "bad.jsonl")]
    first, second = ([line for line in lines if line["pass"] == number] for number in (0, 1))
    unread = sorted(line["key"] for line in second)
    assert set(unread) <= {f"utt{number:04d}" for number in range(4)}
    assert len(unread) == account.bad["unreadable"] > 0
    assert sorted(line["key"] for line in first) == sorted([*unread, "lost", f"{lists['raw']}:41"])
    assert {line["reason"] for line in first} == {"unreadable", "not_indexed"}
    assert all(line["list"] == lists["raw"] and line["detail"] for line in lines)


def test_what_filters_leave_out_of_a_list_is_counted_once_a_run_and_of_a_mixture_every_pass(lists, tmp_path):
    mixture = tmp_path / "mixture.yaml"
    mixture.write_text(f"sources: [{{type: raw, data_list: {lists['raw']}}}]\nutterances_per_epoch: 30\n")
    for data_list, counted in ((lists["raw"], 1), (str(mixture), 3)):
        one = loader(data_list, "raw", conf={"filter_conf": {"min_length": 50}})
        with patch.object(Measure, "filtered", autospec=True, side_effect=Measure.filtered) as count:
            found = [reconciled(accounts([one])) for _ in range(3)]
        assert count.call_count == counted
        assert all(account.filtered["min_length"] > 0 for account in found)


def test_an_epoch_under_way_and_one_of_nominal_length_have_no_total(lists):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    assert one.left_out(0) == Counter()
    nominal = loader(lists["raw"], "raw", epoch_steps=3)
    batches = list(nominal)
    account = reconciled(tally(batches) + nominal.left_out(0))
    assert account.all == account.read == sum(len(batch) for batch in batches) < 40


def test_without_partition_every_rank_accounts_for_everything(lists):
    ranks = [loader(lists["raw"], "raw", rank=rank, world_size=3, conf={"partition": False}) for rank in range(3)]
    account = reconciled(accounts(ranks))
    assert account.all == account.read == 3 * 40


def test_what_is_read_again_after_a_resume_is_in_the_ledger_once(lists, tmp_path):
    def make():
        return loader(lists["raw"], "raw", ledger=Ledger(tmp_path / "bad.jsonl"), num_workers=1)

    one = make()
    break_wavs(lists["raw"], range(10))
    stream, state, steps = iter(one), one.state_dict(), len(one)
    for number in range(steps - 2):
        next(stream)
        if number == steps // 2:
            state = one.state_dict()
    other = make()
    other.load_state_dict(state)
    list(other)
    keys = [json.loads(line)["key"] for line in open(tmp_path / "bad.jsonl")]
    assert sorted(keys) == [f"utt{number:04d}" for number in range(10)]


def test_what_is_bad_in_the_next_pass_of_a_nominal_epoch_is_in_the_ledger_once_as_of_that_pass(
    lists, tmp_path, monkeypatch
):
    def in_two(plan, *place):
        planned = step(plan, *place)
        return replace(planned, pieces=[half for piece in planned.pieces for half in (piece[:1], piece[1:])])

    def make():
        return loader(lists["raw"], "raw", ledger=Ledger(tmp_path / "bad.jsonl"), epoch_steps=30)

    step = EpochPlan.step
    monkeypatch.setattr(EpochPlan, "step", in_two)
    one = make()
    first = one.plan_of(1).step(0, 1, 0).pieces[0].rows[0]
    stream = iter(one)
    for _ in range(2 * one.plan.num_batches):
        next(stream)
    state = one.state_dict()
    break_wavs(lists["raw"], [first])
    piece = next(stream)
    assert not piece.closes_step
    (lost,) = piece.skipped
    other = make()
    other.load_state_dict(state)
    assert next(iter(other)).skipped == (lost,)
    (line,) = [json.loads(line) for line in open(tmp_path / "bad.jsonl")]
    assert (line["pass"], line["batch"], line["key"]) == (1, 0, lost.key)


def test_a_validation_list_is_in_the_ledger_once_however_often_it_is_read(lists, tmp_path):
    def make():
        return loader(lists["raw"], "raw", training=False, ledger=Ledger(tmp_path / "bad.jsonl"))

    for _ in range(2):
        one = make()
        break_wavs(lists["raw"], [7])
        list(one)
        list(one)
    make()  # a start that finds the run complete
    (line,) = open(tmp_path / "bad.jsonl")
    assert json.loads(line)["key"] == "utt0007"


def test_a_list_whose_index_left_too_much_out_is_refused_at_once(lists):
    with open(lists["raw"], "a") as file:
        file.writelines(f'{{"key": "x{number}", "wav": "nowhere.wav", "txt": "a"}}\n' for number in range(11))
    with pytest.raises(ListError, match=r"11 bad samples in epoch 0, .*; the first is x0: .*nowhere.wav: No such file"):
        loader(lists["raw"], "raw")
