"""The documents of CAT and SpeechBrain on 1, 2 and 3 ranks, with the names and the patterns that they
print: every utterance once, equal steps.
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support import preloaded
from tests.support.data.kaldi_features import write_ark
from tests.support.data.ranks import steps_of_ranks
from tests.support.data.tars import write_tar
from wenet_uio.config import parse_config

ROOT = Path(__file__).parents[2]
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3])
RANDOM = np.random.default_rng(0)


def keys_of(steps):
    return Counter(key for step in steps for batch in step for key in batch)


# CAT: pack_data(f_scps, f_labels, d_out="./data", fmt="data-%05d.tar",
#                filter_group=["10:1000", "1000:2000"])
FRAMES = {f"u{number:03d}": 40 + 20 * number for number in range(60)}
"""Frames of each matrix; 48 have fewer than 1000."""
SHORT = [key for key, frames in FRAMES.items() if frames < 1000]
TRSETS = {
    "./data/10_1000/data-*.tar": SHORT,
    "./data/{10_1000,1000_2000}/data-*.tar": list(FRAMES),
    "./data/10_1000/data-0000{0..9}.tar": SHORT[:40],
}
"""{trset of the document: the utterances that it stands for, with four in a tar}."""


@pytest.fixture(scope="module")
def cat(tmp_path_factory):
    """The folder in which the document packs features and labels."""
    folder = tmp_path_factory.mktemp("cat")
    matrices = {
        key: RANDOM.normal(size=(frames, 10)).astype(np.float32) for key, frames in FRAMES.items()
    }
    write_ark(folder, matrices)
    (folder / "text").write_text("".join(f"{key} x y\n" for key in FRAMES))
    options = ["--filter_unit", "frames", "--filter_group", "10:1000", "1000:2000"]
    options += ["--fmt", "data-%05d.tar", "--num_utts_per_shard", "4"]
    words = [str(ROOT / "tools/make_shard_list.py"), "feats.scp", "text", "./data", "data.list"]
    done = preloaded.run([*words, *options], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@RANKS
@pytest.mark.parametrize("trset", TRSETS)
def test_the_trsets_of_cat_are_read_once_each(cat, monkeypatch, trset, ranks):
    monkeypatch.chdir(cat)
    Path("train.list").write_text(f"{trset}\n")
    batches = {"batch_type": "dynamic", "max_frames_in_batch": 6000}
    conf = {"fbank_conf": {"num_mel_bins": 10}, "batch_conf": batches}
    conf["filter_conf"] = {"max_length": 2000}
    config = parse_config({"dataset_conf": conf}, "train.yaml")
    steps = steps_of_ranks(config, "train.list", "shard", ranks)
    assert keys_of(steps) == dict.fromkeys(TRSETS[trset], 1)
    for batch in (batch for step in steps for batch in step):
        assert len(batch) * max(FRAMES[key] for key in batch) <= 6000


# SpeechBrain: wds.ShardWriter("DATA-SHARDS/shard-%06d.tar", maxcount=100) with the members
# {uttid}.audio.pth and {uttid}.text
RATE = 16000
SECONDS = {
    f"{spk}-{doc}-{n:04d}": 1.0 + n / 4 for spk in (84, 174) for doc in (7, 9) for n in range(33)
}
"""Seconds of each utterance; the keys are those of Mini Librispeech."""


@pytest.fixture(scope="module")
def speechbrain(tmp_path_factory):
    """The folder in which the document writes its shards: 11 with twelve utterances each."""
    folder = tmp_path_factory.mktemp("speechbrain")
    (folder / "DATA-SHARDS").mkdir()
    keys = RANDOM.permutation(sorted(SECONDS)).tolist()
    for shard in range(11):
        members = []
        for key in keys[shard * 12 : shard * 12 + 12]:
            file = io.BytesIO()
            torch.save(torch.from_numpy(_waveform(SECONDS[key])), file)
            members += [(f"{key}.audio.pth", file.getvalue()), (f"{key}.text", "A WORD\n")]
        write_tar(folder / f"DATA-SHARDS/shard-{shard:06d}.tar", members)
    return folder


def _waveform(seconds):
    return RANDOM.uniform(-0.1, 0.1, round(seconds * RATE)).astype(np.float32)


@RANKS
def test_the_shards_of_speechbrain_are_read_once_each_in_its_dynamic_batches(
    speechbrain, monkeypatch, ranks
):
    monkeypatch.chdir(speechbrain)
    Path("train.list").write_text("DATA-SHARDS/shard-0000{00..10}.tar\n")
    # target_batch_numel 16000 * 45, max_batch_numel 16000 * 60
    batches = {"batch_type": "dynamic", "batch_duration": 60, "batch_target": 45}
    conf = {"fbank_conf": {"num_mel_bins": 10}, "batch_conf": batches}
    config = parse_config({"dataset_conf": conf}, "train.yaml")
    steps = steps_of_ranks(config, "train.list", "shard", ranks)
    assert keys_of(steps) == dict.fromkeys(SECONDS, 1)
    padded = [len(batch) * max(SECONDS[key] for key in batch) for step in steps for batch in step]
    assert max(padded) <= 60
    assert sum(SECONDS.values()) / sum(padded) > 0.9


@pytest.mark.third
@RANKS
def test_the_nominal_epochs_of_speechbrain_continue_through_its_shards(
    speechbrain, monkeypatch, ranks
):
    """`looped_nominal_epoch=5`: five epochs of five batches on each rank."""
    monkeypatch.chdir(speechbrain)
    source = {
        "type": "shard",
        "data_list": "train.list",
        "rename": {"signal": "audio.pth", "text": "text"},
    }
    Path("train.list").write_text("DATA-SHARDS/shard-0000{00..10}.tar\n")
    conf = {"fbank_conf": {"num_mel_bins": 10}, "batch_conf": {"batch_size": 8}}
    config = parse_config({"dataset_conf": conf, "data": [source]}, "train.yaml")
    steps = steps_of_ranks(config, config.data, "raw", ranks, epochs=5, epoch_steps=5)
    assert len(steps) == 25
    times = keys_of(steps)
    passes = times.total() // len(SECONDS)
    assert set(times) == set(SECONDS)
    assert set(times.values()) <= {passes, passes + 1}
