"""Every utterance of an epoch is counted as read, filtered or bad; the ledger names every bad one
once.
"""

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.data.loading import FakeConfig, loader
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.ledger import Ledger, reconciled, tally
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

COUNT = 24
"""Utterances of a list."""


@pytest.fixture
def lists(make_lists):
    return make_lists(COUNT)


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
    assert sum(len(batch) for batch in batches) == COUNT - 3


def test_too_many_bad_samples_stop_the_run(lists):
    one = loader(lists["raw"], "raw")
    for line in open(lists["raw"]).readlines()[:15]:
        open(line.split('"wav": "')[1].split('"')[0], "wb").close()
    with pytest.raises(
        ListError,
        match="11 bad samples in epoch 0, more than max_bad_ratio 0.01 allows; the last is utt",
    ):
        list(one)


def test_a_bug_in_an_operator_is_not_bad_data(lists):
    one = loader(lists["raw"], "raw", num_workers=1)

    def buggy(example):
        return replace(example, key=example.key / 2)

    chains = one.reader.chains
    one.reader.use_chains(chains._replace(audio=(*chains.audio, buggy)))
    with pytest.raises(TypeError):
        list(one)


def test_token_filters_are_counted_as_filtered(lists):
    one = loader(lists["raw"], "raw", conf={"filter_conf": {"token_max_length": 2}})
    kept = sum(len(batch) for batch in one)
    assert kept == COUNT - one.cursor.plan.filtered()["token_max_length"] == 16


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
def test_read_filtered_and_bad_samples_add_up_to_all(lists, tmp_path, world_size):
    with open(lists["raw"], "a") as file:
        file.write("no JSON\n")
        file.write('{"key": "lost", "wav": "nowhere.wav", "txt": "a"}\n')
    filters = {
        "filter_conf": {"token_max_length": 2, "min_length": 50, "max_output_input_ratio": 0.02}
    }
    tokens_late = Tokenizer(
        CharSplitter(split_with_space=True), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2}
    )
    ranks = [
        build_loader(lists["raw"], "raw", FakeConfig(**filters), tokens_late, training=True,
                     options=LoaderOptions(rank, world_size, ledger=Ledger(tmp_path / "bad.jsonl")))
        for rank in range(world_size)
    ]  # fmt: skip
    break_wavs(lists["raw"], range(4))
    for _ in range(2):
        account = reconciled(accounts(ranks))
        assert account.all == COUNT + 2
        assert account.bad["not_indexed"] == 2
        assert {"min_length"} <= set(account.filtered) <= {"min_length", "max_output_input_ratio"}
    lines = [json.loads(line) for line in open(tmp_path / "bad.jsonl")]
    first, second = ([line for line in lines if line["pass"] == number] for number in (0, 1))
    unread = sorted(line["key"] for line in second)
    assert set(unread) <= {f"utt{number:04d}" for number in range(4)}
    assert len(unread) == account.bad["unreadable"] > 0
    assert sorted(line["key"] for line in first) == sorted(
        [*unread, "lost", f"{lists['raw']}:{COUNT + 1}"]
    )
    assert {line["reason"] for line in first} == {"unreadable", "not_indexed"}
    assert all(line["list"] == lists["raw"] and line["detail"] for line in lines)


def test_filtered_samples_of_a_list_are_counted_once_a_run_and_of_a_mixture_in_every_pass(
    lists, tmp_path
):
    mixture = tmp_path / "mixture.yaml"
    mixture.write_text(
        f"sources: [{{type: raw, data_list: {lists['raw']}}}]\nutterances_per_epoch: 20\n"
    )
    for data_list, counted in ((lists["raw"], 1), (str(mixture), 3)):
        one = loader(data_list, "raw", conf={"filter_conf": {"min_length": 50}})
        with patch.object(
            Measure, "filtered", autospec=True, side_effect=Measure.filtered
        ) as count:
            found = [reconciled(accounts([one])) for _ in range(3)]
        assert count.call_count == counted
        assert all(account.filtered["min_length"] > 0 for account in found)


def test_an_unfinished_epoch_and_a_nominal_epoch_have_no_total(lists):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    assert one.left_out(0) == Counter()
    nominal = loader(lists["raw"], "raw", epoch_steps=3)
    batches = list(nominal)
    account = reconciled(tally(batches) + nominal.left_out(0))
    assert account.all == account.read == sum(len(batch) for batch in batches) < COUNT


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_pass_of_nominal_epochs_says_at_its_start_what_an_epoch_says_at_its_end(
    lists, world_size
):
    conf = {"filter_conf": {"min_length": 50}}
    of_ranks = {"world_size": world_size, "conf": conf}
    whole = [loader(lists["raw"], "raw", rank=rank, **of_ranks) for rank in range(world_size)]
    ended = accounts(whole)
    nominal = [
        loader(lists["raw"], "raw", rank=rank, epoch_steps=3, **of_ranks)
        for rank in range(world_size)
    ]
    at_start = sum((one.left_out_of_pass() for one in nominal), Counter())
    assert at_start["filtered/min_length"] > 0
    assert at_start == Counter({name: ended[name] for name in at_start})


def test_without_partition_every_rank_accounts_for_all_samples(lists):
    ranks = [
        loader(lists["raw"], "raw", rank=rank, world_size=3, conf={"partition": False})
        for rank in range(3)
    ]
    account = reconciled(accounts(ranks))
    assert account.all == account.read == 3 * COUNT


def test_samples_read_again_after_a_resume_are_in_the_ledger_once(lists, tmp_path):
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


def test_bad_samples_of_the_next_pass_in_a_nominal_epoch_are_in_the_ledger_once_under_that_pass(
    lists, tmp_path, monkeypatch
):
    def in_two(plan, *place):
        planned = step(plan, *place)
        return replace(
            planned, pieces=[half for piece in planned.pieces for half in (piece[:1], piece[1:])]
        )

    def make():
        return loader(lists["raw"], "raw", ledger=Ledger(tmp_path / "bad.jsonl"), epoch_steps=30)

    step = EpochPlan.step
    monkeypatch.setattr(EpochPlan, "step", in_two)
    one = make()
    planned = one.cursor.plan_of(1).step(0, 1, 0).pieces[0]
    first = 10 * planned.shards[0] + planned.rows[0]
    stream = iter(one)
    for _ in range(2 * one.cursor.plan.num_batches):
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


def test_a_list_with_too_many_samples_that_cannot_be_indexed_is_refused_at_once(lists):
    with open(lists["raw"], "a") as file:
        file.writelines(
            f'{{"key": "x{number}", "wav": "nowhere.wav", "txt": "a"}}\n' for number in range(11)
        )
    with pytest.raises(
        ListError,
        match=r"11 bad samples in epoch 0, .*; the first is x0: .*nowhere.wav: No such file",
    ):
        loader(lists["raw"], "raw")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_shrinks_while_it_is_read_costs_its_samples_by_name(make_lists, workers):
    shards = make_lists(40, per_shard=10)["shard"]
    conf = {"max_bad_ratio": 1.0, "batch_conf": {"batch_size": 4}}
    one = loader(shards, "shard", conf=conf, num_workers=workers, prefetch=1)
    batches = iter(one)
    read = [*next(batches).keys]
    tar = Path(Path(shards).read_text().splitlines()[0])
    os.truncate(tar, tar.stat().st_size // 2)
    lost = []
    for batch in batches:
        read += batch.keys
        lost += [sample.key for sample in batch.skipped]
        assert all("changed since it was indexed" in sample.detail for sample in batch.skipped)
    assert sorted(read + lost) == sorted({*read, *lost})
    assert len(read) + len(lost) == 40
    assert 0 < len(lost) < 10
