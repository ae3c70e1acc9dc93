"""A check of texts that are too long for the frames of CTC."""

import json

import numpy as np
import pytest
import soundfile

from tests.bin.test_data_tools import tool
from tests.support.data.checking import UNITS, write
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

CONFIG = """
encoder: conformer
encoder_conf: {num_blocks: 1, output_size: 16, attention_heads: 2, linear_units: 16}
model_conf: {ctc_weight: %s}
tokenizer: char
tokenizer_conf: {symbol_table_path: %s/units.txt}
dataset_conf: {filter_conf: {max_length: 2000}, fbank_conf: {num_mel_bins: 80}}
"""
TEXTS = {"fits": "abc" * 3, "full": "ab" * 5 + "a", "long": "ab" * 6 + "ab", "repeats": "a" * 8}
"""Of 0.5 s, which are 48 frames of features and 11 of CTC; `repeats` needs 15."""


@pytest.fixture
def lists(make_utterances, tmp_path):
    (tmp_path / "units.txt").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(UNITS))
    )
    (noise,) = make_utterances(1)
    samples, rate = soundfile.read(noise.wav)
    wav = write(tmp_path / "half.wav", np.resize(samples, rate // 2), rate)
    lines = [RawLine(key, wav, text) for key, text in TEXTS.items()]
    make_raw_list(lines, str(tmp_path / "raw.list"))
    make_shard_list(
        lines, tmp_path / "shards", str(tmp_path / "shard.list"), ShardOptions(per_shard=2)
    )
    return tmp_path


@pytest.mark.parametrize("form", ["raw", "shard"])
@pytest.mark.parametrize("more", [[], ["--no_audio"]])
def test_texts_without_a_path_of_ctc_are_named_as_lost(lists, form, more):
    (lists / "train.yaml").write_text(CONFIG % (0.3, lists))
    options = ["--data_type", form, "--config", lists / "train.yaml", "--json", *more]
    done = tool("check_data.py", lists / f"{form}.list", *options)
    report = json.loads(done.stdout.splitlines()[-1])
    lost = {
        finding["key"]: finding["detail"]
        for finding in report["findings"]
        if finding["kind"] == "no_ctc_path"
    }
    assert lost == {
        "long": "14 labels need 14 frames of CTC, the audio has 11",
        "repeats": "8 labels need 15 frames of CTC, the audio has 11",
    }
    assert done.returncode == 1


def test_a_model_without_ctc_loses_none_of_them(lists):
    (lists / "train.yaml").write_text(CONFIG % (0.0, lists))
    options = ["--data_type", "raw", "--config", lists / "train.yaml", "--json"]
    done = tool("check_data.py", lists / "raw.list", *options)
    assert json.loads(done.stdout.splitlines()[-1])["counts"]["no_ctc_path"] == 0
