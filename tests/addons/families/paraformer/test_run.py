"""A paraformer trains on real digits by the commands of a recipe, resumes after a kill, and
recognises.
"""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.models.tiny_paraformer import tiny_paraformer
from tests.support.train.killed_run import count_down, die
from tools import compute_cmvn_stats
from wenet_uio.bin import recognize, train
from wenet_uio.train.engine import Engine

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STEPS = 80
SHORT = ("--override_config", "epoch_steps=8", "max_epoch=2", "save_interval=5")
SIZES = {"output_size": 32, "linear_units": 64, "dropout_rate": 0.0, "positional_dropout_rate": 0.0}
CONFIG = {
    "tokenizer_conf": {"symbol_table_path": "units.txt", "split_with_space": True},
    "cmvn": "global_cmvn",
    "cmvn_conf": {"cmvn_file": "global_cmvn"},
    "model_conf": {"ctc_weight": 0.3},
    "predictor_conf": {"dropout": 0.0, "cnn_groups": 1, "residual": False},
    "dataset_conf": {
        "fbank_conf": {"num_mel_bins": 20},
        "resample_conf": {"resample_rate": 8000},
        "spec_aug": False,
        "batch_conf": {"batch_type": "static", "batch_size": 10},
    },
    "optim_conf": {"lr": 0.004},
    "scheduler_conf": {"warmup_steps": 25},
    "max_epoch": 2,
    "epoch_steps": STEPS // 2,
    "log_interval": 1,
    "observe_interval": 0,
    "report": False,
}


def call(tool: Any, *arguments: object) -> None:
    """Run a command in this process."""
    tool.main([*map(str, arguments)])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """Folder with digits.list (30 recordings), units.txt, global_cmvn and train.yaml."""
    folder = tmp_path_factory.mktemp("digits")
    wavs = {
        f"{digit}_{take}": (digit, corpora / f"fsdd/recordings/{digit}_george_{take}.wav")
        for digit in range(10)
        for take in range(3)
    }
    lines = [
        json.dumps({"key": key, "wav": str(wav), "txt": WORDS[digit]})
        for key, (digit, wav) in wavs.items()
    ]
    (folder / "digits.list").write_text("\n".join(lines) + "\n")
    (folder / "wav.scp").write_text("".join(f"{key} {wav}\n" for key, (_, wav) in wavs.items()))
    units = ("<blank>", "<sos>", "<eos>", *WORDS, "<unk>")
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    config = tiny_paraformer(**CONFIG)
    config["encoder_conf"] |= SIZES
    config["decoder_conf"] |= {"dropout_rate": 0.0}
    del config["output_dim"]
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    names = ("--in_scp", folder / "wav.scp", "--out_cmvn", folder / "global_cmvn")
    call(compute_cmvn_stats, "--train_config", folder / "train.yaml", *names, "--num_workers", 1)
    return folder


def train_in(digits: Path, run: str, *options: str) -> None:
    lists = ("--train_data", digits / "digits.list", "--cv_data", digits / "digits.list")
    model_dir = ("--model_dir", digits / run, "--device", "cpu")
    call(train, "--config", digits / "train.yaml", *lists, *model_dir, *options)


@pytest.fixture(scope="module")
def trained(digits: Path) -> Path:
    """The folder of a run of 80 steps."""
    train_in(digits, "exp")
    return digits / "exp"


def recognised(digits: Path, out: str, *options: object) -> dict[str, str]:
    """{key: text} of all recordings."""
    model = (
        "--config",
        digits / "exp/train.yaml",
        "--checkpoint",
        digits / "exp/final.pt",
        "--device",
        "cpu",
    )
    mode = ("--modes", "paraformer_greedy_search", "--result_dir", digits / out)
    call(recognize, *model, "--test_data", digits / "digits.list", *mode, *options)
    lines = (digits / out / "paraformer_greedy_search/text").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


def test_it_learns_the_digits_in_80_steps(digits: Path, trained: Path) -> None:
    events = EventAccumulator(str(trained / "tensorboard")).Reload()
    losses = [event.value for event in events.Scalars("train/loss")]
    assert (len(losses), losses[-1] < losses[0] / 2) == (STEPS, True)
    record = yaml.safe_load((trained / "epoch_1.yaml").read_text())["loss_dict"]
    assert {"loss", "loss_ctc", "loss_decoder", "loss_quantity", "loss_quantity_tp"} <= set(record)
    texts = recognised(digits, "batched")
    correct = sum(text == WORDS[int(key[0])] for key, text in texts.items())
    assert correct >= 29
    assert recognised(digits, "single", "--batch_size", 1) == texts


def test_its_tokens_have_times_within_the_recording(digits: Path, trained: Path) -> None:
    recognised(digits, "timed", "--token_times")
    lines = (digits / "timed/paraformer_greedy_search/nbest.jsonl").read_text().splitlines()
    times = [
        token["time"]
        for line in lines
        for each in json.loads(line)["hypotheses"]
        for token in each["tokens"]
    ]
    assert len(times) > 25
    assert all(0 < time < 1.5 for time in times)


def test_another_mode_and_streaming_are_refused_in_one_line(digits: Path, trained: Path) -> None:
    with pytest.raises(
        ValueError,
        match="^decode mode attention: the model is a paraformer, .* it can do ctc_greedy",
    ):
        recognised(digits, "refused", "--modes", "attention")
    chunks = ("--decoding_chunk_size", 4, "--simulate_streaming")
    dynamic = ("--override_config", "encoder_conf.use_dynamic_chunk=true")
    with pytest.raises(
        ValueError, match="^simulate_streaming: the memory of a SANM encoder keeps nothing between"
    ):
        recognised(digits, "refused", *chunks, *dynamic)


@pytest.mark.parametrize(
    "changes",
    [
        (
            "dtype=bf16",
            "encoder_conf.use_dynamic_chunk=true",
            "model_conf.length_normalized_loss=true",
        ),
        ("encoder_conf.gradient_checkpointing=true", "decoder_conf.gradient_checkpointing=true"),
        ("predictor=cif_predictor", "model_conf.ctc_weight=0", "model_conf.sampling_ratio=0"),
    ],
)
def test_it_trains_with_other_keys_too(
    digits: Path, tmp_path: Path, changes: tuple[str, ...]
) -> None:
    train_in(digits, str(tmp_path / "exp"), *SHORT, "epoch_steps=2", "max_epoch=1", *changes)
    assert "sanm_decoder: 2 blocks" in (tmp_path / "exp/README.md").read_text()
    record = yaml.safe_load((tmp_path / "exp/epoch_0.yaml").read_text())["loss_dict"]
    assert all(math.isfinite(value) for value in record.values())


@pytest.mark.all
def test_a_run_killed_with_sigkill_resumes_exactly(digits: Path) -> None:
    train_in(digits, "whole", *SHORT)
    process = os.fork()
    if process == 0:
        Engine.update = count_down(8, die, Engine.update)
        train_in(digits, "killed", *SHORT)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert not (digits / "killed/final.pt").exists()
    train_in(digits, "killed", *SHORT)
    whole, killed = (
        torch.load(digits / run / "final.pt", weights_only=True) for run in ("whole", "killed")
    )
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
