"""A small Zipformer learns spoken digits with ScaledAdam and Eden, and resumes exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.test_batches import ZIPFORMER
from tests.support.train.tiny import CPU
from wenet_uio.addons.encoders.zipformer.conf import ZipformerEncoderConf
from wenet_uio.config import Config, parse_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.search.ctc_path import ctc_greedy_search
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engine_fsdp import FsdpEngine
from wenet_uio.train.engines import DdpEngine

DIGITS = ("zero", "one", "two", "three", "four")
STEPS = 130


def write_list(path: Path, corpora: Path, takes: range) -> str:
    lines = [
        {
            "key": f"{digit}_{take}",
            "wav": str(corpora / f"fsdd/recordings/{place}_george_{take}.wav"),
            "txt": digit,
        }
        for take in takes
        for place, digit in enumerate(DIGITS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("digits")
    units = ["<blank>", *DIGITS, "<sos/eos>"]
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    values: dict[str, Any] = {
        "encoder": "zipformer",
        "encoder_conf": {
            **ZIPFORMER,
            "encoder_dim": [32, 48],
            "feedforward_dim": 64,
            "schedule_speed": 300,
        },
        "decoder": "transformer",
        "decoder_conf": {"num_blocks": 1, "linear_units": 8, "attention_heads": 2},
        "model_conf": {"ctc_weight": 1.0},
        "tokenizer_conf": {
            "symbol_table_path": str(folder / "units.txt"),
            "split_with_space": True,
        },
        "dataset_conf": {
            "resample_conf": {"resample_rate": 8000},
            "fbank_conf": {"num_mel_bins": 20, "dither": 0.0},
            "batch_conf": {"batch_type": "static", "batch_size": 10},
            "spec_aug": False,
            "speed_perturb": False,
        },
        "optim": "scaled_adam",
        "optim_conf": {"lr": 0.06},
        "scheduler": "eden",
        "scheduler_conf": {"lr_batches": 300, "lr_epochs": 100, "warmup_batches": 10},
        "grad_clip": 1000.0,
    }
    return parse_config(values, "test")


def load(config: Config, data: str) -> list[Batch]:
    return list(build_loader(data, "raw", config, build_tokenizer(config), training=False))


def start(config: Config) -> Engine:
    torch.manual_seed(0)
    engine = DdpEngine(build_model(config), config, CPU, seed=3)
    engine.connect()
    return engine


def run(engine: Engine, batches: list[Batch], steps: range) -> list[float]:
    losses = []
    for step in steps:
        sums = engine.step([batches[step % len(batches)]], step, {}).sums
        losses.append(sums["loss"] / sums["utterances"])
    return losses


@pytest.mark.all
def test_130_steps_teach_five_digits(config: Config, corpora: Path, tmp_path: Path) -> None:
    engine = start(config)
    losses = run(
        engine,
        load(config, write_list(tmp_path / "train.list", corpora, range(4, 8))),
        range(1, STEPS + 1),
    )
    assert sum(losses[-10:]) < 0.1 * sum(losses[:10])
    model = engine.model.eval()
    right = []
    with torch.no_grad():
        for batch in load(config, write_list(tmp_path / "test.list", corpora, range(2))):
            frames, lengths = model.encode(batch.feats, batch.feats_lengths)
            found = ctc_greedy_search(model.ctc_log_probs(frames), lengths, 0)
            right += [
                nbest[0].tokens == (int(label),)
                for nbest, label in zip(found, batch.target[:, 0], strict=True)
            ]
    assert sum(right) >= 7, f"{sum(right)} of {len(right)}"


def test_a_state_in_the_middle_of_the_schedules_continues_bit_by_bit(
    config: Config, corpora: Path, tmp_path: Path
) -> None:
    batches = load(config, write_list(tmp_path / "train.list", corpora, range(2)))
    straight = start(config)
    run(straight, batches, range(1, 13))
    killed = start(config)
    run(killed, batches, range(1, 8))
    state = killed.state_dict()
    torch.save(state, tmp_path / "state.pt")
    resumed = DdpEngine(build_model(config), config, CPU, seed=0)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    resumed.connect()
    run(resumed, batches, range(8, 13))
    expected = straight.weights()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.weights().items())


def test_torch_fsdp_names_the_weight_that_it_cannot_share(config: Config) -> None:
    two_ranks = World(torch.device("cpu"), size=2)
    engine = FsdpEngine(
        build_model(config), config.model_copy(update={"optim": "adam"}), two_ranks, seed=3
    )
    with pytest.raises(
        ValueError, match=r"torch_fsdp cannot share encoder\..*\.log_scale.*use torch_ddp"
    ):
        engine.connect()


def test_the_card_of_a_run_has_the_sizes_of_the_encoder(config: Config) -> None:
    encoder = config.encoder_conf
    assert isinstance(encoder, ZipformerEncoderConf)
    # What model_card.py shows
    assert (encoder.num_blocks, encoder.output_size, encoder.attention_heads) == (
        2,
        48,
        2,
    )
