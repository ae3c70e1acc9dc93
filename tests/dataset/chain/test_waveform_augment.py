"""Augmented waveforms in the loader: the same bits on any number of workers and ranks, and after
resume.
"""

import json
import pickle
from dataclasses import replace

import pytest
import torch

from tests.dataset.chain.test_noise import hiss, noise_list
from tests.support.data.loading import loader, same
from wenet_uio.base.files import read_lines
from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform_augment import AUGMENTATION_STEPS, waveform_augmentations
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.ledger import Ledger, reconciled, tally

MADE = {
    "trim_conf": {"top_db": 20},
    "quiet_conf": {"prob": 0.5},
    "shift_conf": {"prob": 0.5},
    "white_noise_conf": {"prob": 0.5},
    "reverb_conf": {"rooms": 3, "rt60": (0.05, 0.1)},
    "overlap_conf": {"prob": 0.5},
    "noise_conf": {"made": ["babble", "pink"], "prob": 0.7},
    "codec_conf": {"prob": 0.5},
    "gain_conf": {},
}


@pytest.fixture
def lists(make_lists):
    return make_lists(24)


def read(lists, kind="raw", conf=None, **options):
    return list(loader(lists[kind], kind, conf=MADE if conf is None else conf, **options))


def equal(found, expected):
    return len(found) == len(expected) and all(
        same(*pair) for pair in zip(found, expected, strict=True)
    )


def test_raw_and_shard_and_any_number_of_workers_give_equal_batches(lists, tmp_path):
    data_list, _ = noise_list(tmp_path, hiss(9000), hiss(30000, 1))
    conf = {**MADE, "noise_conf": {**MADE["noise_conf"], "data_list": data_list}}
    expected = read(lists, conf=conf)
    assert not equal(read(lists, conf={}), expected)
    for kind, workers in (("shard", 0), ("raw", 1), ("shard", 2)):
        assert equal(read(lists, kind, conf, num_workers=workers), expected)


def test_ranks_read_what_one_process_reads(lists):
    expected = {batch.keys: batch for batch in read(lists)}
    found = [batch for rank in (0, 1) for batch in read(lists, rank=rank, world_size=2)]
    assert {batch.keys for batch in found} == expected.keys()
    for batch in found:
        assert same(batch, expected[batch.keys])


def test_a_resumed_loader_continues_with_the_same_bits(lists):
    whole = read(lists)
    begun = loader(lists["raw"], "raw", conf=MADE)
    for _ in zip(range(3), begun, strict=False):
        pass
    resumed = loader(lists["raw"], "raw", conf=MADE, num_workers=1)
    resumed.load_state_dict(begun.state_dict())
    assert equal(list(resumed), whole[3:])


def test_an_utterance_has_other_noise_in_another_epoch(lists):
    conf = {
        **MADE,
        "shuffle": True,
        "speed_perturb": False,
        "spec_aug": False,
        "spec_sub": False,
        "spec_trim": False,
    }
    conf["fbank_conf"] = {"num_mel_bins": 20}
    one = loader(lists["raw"], "raw", conf=conf)
    epochs = [
        {
            key: feats[:length]
            for batch in one
            for key, feats, length in zip(batch.keys, batch.feats, batch.feats_lengths, strict=True)
        }
        for _ in range(2)
    ]
    assert sum(not torch.equal(feats, epochs[1][key]) for key, feats in epochs[0].items()) > 20


def test_a_probability_of_zero_equals_no_augmentation_bit_for_bit(lists):
    off = {name: {**section, "prob": 0} for name, section in MADE.items()}
    del off["trim_conf"]  # it changes every utterance
    assert equal(read(lists, conf=off), read(lists, conf={}))


def test_deferred_features_are_those_of_the_augmented_waveforms(lists):
    for found, expected in zip(read(lists, defer_features=True), read(lists), strict=True):
        feats = found.to("cpu").feats
        torch.testing.assert_close(feats, expected.feats, atol=2e-3, rtol=0)


def test_validation_is_not_augmented(lists):
    plain = list(loader(lists["raw"], "raw", training=False))
    assert equal(list(loader(lists["raw"], "raw", training=False, conf=MADE)), plain)


def test_unreadable_noise_is_counted_and_listed_once(lists, tmp_path, caplog):
    data_list, _ = noise_list(tmp_path, hiss(9000), hiss(9000, 1))
    ledger = Ledger(tmp_path / "bad_samples.jsonl")
    conf = {"noise_conf": {"data_list": data_list, "prob": 1}}
    train = loader(lists["raw"], "raw", conf=conf, ledger=ledger)
    (tmp_path / "noise0.wav").unlink()
    batches = list(train)
    account = reconciled(tally(batches) + train.left_out(0))
    assert account.read == account.all == 24
    assert account.unreadable_noise > 3
    assert str(account).endswith(f"unreadable noise was drawn {account.unreadable_noise} times")
    assert [(line["key"], line["reason"]) for line in read_lines(ledger.path)] == [
        ("noise0", "unreadable_noise")
    ]
    assert caplog.text.count("noise noise0 cannot be read, other noise takes its place") == 1


def test_babble_of_remote_audio_is_refused_in_one_line(lists, monkeypatch):
    corpus = open_list(lists["raw"], "raw")
    monkeypatch.setattr(corpus, "is_remote", True)
    for section in ({"noise_conf": {"made": ["babble"]}}, {"overlap_conf": {}}):
        with pytest.raises(
            ConfigError, match=r"^dataset_conf\.(noise|overlap)_conf[^\n]* is remote; [^\n]*$"
        ):
            waveform_augmentations(DatasetConf.model_validate(section), corpus, training=True)


def test_texts_without_audio_are_no_babble(lists, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("abc\n" * 40)
    sources = {
        "sources": [
            {"type": "raw", "data_list": lists["raw"]},
            {"type": "txt", "paths": str(texts)},
        ]
    }
    mixture = tmp_path / "mixture.yaml"
    mixture.write_text(json.dumps(sources))
    conf = {
        **MADE,
        "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 400, "batch_tokens": 200},
    }
    both = [list(loader(str(mixture), "raw", conf=conf, num_workers=workers)) for workers in (0, 1)]
    assert equal(*both)
    assert sum(len(batch) for batch in both[0]) == 64
    assert not any(batch.unreadable or batch.skipped for batch in both[0])


def test_operators_of_the_user_may_follow_each_step(lists):
    expected = read(lists)
    for step in AUGMENTATION_STEPS:
        own = {
            "operators": [{"use": "tests.dataset.chain.test_waveform_augment:Halve", "after": step}]
        }
        assert not equal(read(lists, conf={**MADE, **own}), expected)


class Halve:
    def __call__(self, example):
        return replace(example, waveform=example.waveform / 2)


def test_operators_can_be_sent_to_processes_that_are_spawned(lists):
    found = loader(lists["shard"], "shard", conf=MADE)
    reader = pickle.loads(pickle.dumps(found.reader))
    (work, *_) = (work for _, work in found.cursor.upcoming())
    assert same(reader[work], found.reader[work])
