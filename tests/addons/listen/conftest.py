"""A folder with an untrained model that can stream, and a recording of three bursts of noise."""

import json
import shutil
import sys

import numpy as np
import pytest
import soundfile
import torch
import yaml

from wenet_uio.config import load_config
from wenet_uio.models import build_model

RATE = 16000
SMALL = {"attention_heads": 2, "linear_units": 16, "num_blocks": 1}
CONFIG = {
    "encoder": "conformer",
    "encoder_conf": {
        **SMALL,
        "output_size": 16,
        "cnn_module_kernel": 3,
        "cnn_module_norm": "layer_norm",
        "causal": True,
        "use_dynamic_chunk": True,
    },
    "decoder": "bitransformer",
    "decoder_conf": {**SMALL, "r_num_blocks": 1},
    "cmvn": "global_cmvn",
    "cmvn_conf": {"cmvn_file": "global_cmvn"},
    "model_conf": {"ctc_weight": 0.3, "reverse_weight": 0.3},
    "tokenizer_conf": {"symbol_table_path": "units.txt"},
    "dataset_conf": {"fbank_conf": {"num_mel_bins": 23}},
}


@pytest.fixture
def without_silero(monkeypatch):
    """These tests use bursts of noise as speech, which a voice detector refuses."""
    monkeypatch.setitem(sys.modules, "silero_vad", None)


TRANSDUCER = {
    "model": "transducer",
    "predictor": "rnn",
    "predictor_conf": {"embed_size": 16, "output_size": 16, "hidden_size": 16, "num_layers": 1},
    "joint": "transducer_joint",
    "joint_conf": {"join_dim": 16},
    "model_conf": {
        "transducer_weight": 0.5,
        "ctc_weight": 0.3,
        "attention_weight": 0.2,
        "reverse_weight": 0.3,
    },
}
"""Sections that make a transducer of the model."""


def write_model(folder, sections=(), **encoder):
    """Write train.yaml, units.txt, global_cmvn and random weights final.pt; `encoder` changes
    encoder_conf.
    """
    folder.mkdir(parents=True, exist_ok=True)
    units = ["<blank>", "<unk>", *"abcdefgh", "▁", "<sos/eos>"]
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    (folder / "global_cmvn").write_text(
        json.dumps({"mean_stat": [100.0] * 23, "var_stat": [1100.0] * 23, "frame_num": 10})
    )
    config = CONFIG | {"encoder_conf": CONFIG["encoder_conf"] | encoder} | dict(sections)
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(3)
    model = build_model(load_config(folder / "train.yaml"))
    last_layers = [model.ctc.ctc_lo, *([model.joint.ffn_out] if "joint" in config else [])]
    for layer in last_layers:
        torch.nn.init.normal_(layer.weight, std=2.0)  # tokens that change from frame to frame
    torch.save(model.state_dict(), folder / "final.pt")
    return folder


def bursts(seconds=6, starts=(1, 3, 5), seed=1):
    """Noise at -70 dB with bursts of 0.8 s, floats from -1 to 1."""
    noise = np.random.default_rng(seed)
    samples = noise.normal(0, 0.0003, seconds * RATE)
    for start in starts:
        samples[start * RATE : start * RATE + 12800] += noise.normal(0, 0.1, 12800)
    return samples.astype(np.float32)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with exp/conformer, talk.wav and talk.mp3, which tests do not change."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("talk.wav", "talk.mp3"):
        soundfile.write(folder / name, bursts(), RATE)
    write_model(folder / "exp/conformer")
    return folder


@pytest.fixture
def model(made, tmp_path, monkeypatch):
    """The folder exp/conformer; talk.wav and talk.mp3 in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "exp/conformer"
