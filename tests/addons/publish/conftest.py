"""A hub on loopback, commands that use it, and a recogniser on it."""

import numpy as np
import pytest
import soundfile
import torch
import yaml

from tests.support import preloaded
from tests.support.hub.server import running_hub
from tests.support.models.recogniser import CONFIG
from wenet_uio.config import load_config
from wenet_uio.models import build_model

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub():
    with running_hub() as server:
        yield server


@pytest.fixture
def call(hub, tmp_path):
    """A function that runs a command of wenet_uio/bin in a process of its own."""

    def run(command, *arguments, **environment):
        return preloaded.run(
            ["-m", f"wenet_uio.bin.{command}", *map(str, arguments)],
            env=hub.environment(tmp_path / "cache", **environment),
            cwd=tmp_path,
        )

    return run


@pytest.fixture
def model(tmp_path):
    """The folder of an untrained recogniser, beside a recording `a.wav`."""
    folder = tmp_path / "exp/run"
    folder.mkdir(parents=True)
    units = ["<blank>", "<unk>", "<sos/eos>", *"abcdefgh"]
    lines = "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    (folder / "units.txt").write_text(lines, encoding="utf-8")
    (folder / "train.yaml").write_text(yaml.safe_dump(CONFIG))
    torch.manual_seed(1)
    weights = build_model(load_config(folder / "train.yaml", of_model=True)).state_dict()
    torch.save(weights, folder / "avg.pt")
    noise = np.random.default_rng(0).standard_normal(16000)
    soundfile.write(tmp_path / "a.wav", 0.1 * noise, 16000)
    return folder
