"""A folder with an untrained recogniser and five utterances of noise."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from tests.support.models.recogniser import CONFIG, KEYS
from wenet_uio.config import load_config
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.models import build_model
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an untrained model and five utterances, as raw list and as shards."""
    monkeypatch.chdir(tmp_path)
    units = ["<blank>", "<unk>", "<sos/eos>", *"abcdefgh"]
    Path("units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units)), encoding="utf-8"
    )
    Path("train.yaml").write_text(yaml.safe_dump(CONFIG))
    torch.manual_seed(1)
    torch.save(build_model(load_config("train.yaml")).state_dict(), "model.pt")
    noise = np.random.default_rng(0)
    lines = []
    for place, key in enumerate(KEYS):
        samples = (0.1 * noise.standard_normal(4000 + 3000 * (place * 2 % 5))).astype(np.float32)
        soundfile.write(f"{key}.wav", samples, 16000)
        lines.append(RawLine(key, str(tmp_path / f"{key}.wav"), "ab"))
    assert make_raw_list(lines, "raw.list") == []
    assert make_shard_list(lines, "shards", "shard.list", ShardOptions(per_shard=2)) == []
    return tmp_path


@pytest.fixture
def call():
    """A function that runs a command of wenet_uio/bin in this process and returns its status."""

    def run(command: str, *arguments: object) -> int:
        return import_module(f"wenet_uio.bin.{command}").main([*map(str, arguments)]) or 0

    return run
