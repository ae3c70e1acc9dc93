from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from wenet_uio.dataset.corpus import open_list

ROOT = Path(__file__).parents[2]
RATE = 16000
CONFIG = {
    "encoder": "conformer",
    "encoder_conf": {
        "output_size": 16,
        "attention_heads": 2,
        "linear_units": 32,
        "num_blocks": 1,
        "cnn_module_kernel": 7,
        "cnn_module_norm": "layer_norm",
    },
    "decoder": "transformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
    "tokenizer": "char",
    "tokenizer_conf": {"symbol_table_path": "units.txt"},
    "dataset_conf": {"fbank_conf": {"num_mel_bins": 23}, "batch_conf": {"batch_type": "static", "batch_size": 4}},
    "scheduler_conf": {"warmup_steps": 20},
    "max_epoch": 2,
    "save_interval": 2,
}


def write_list(folder: Path, part: str, utterances: int) -> None:
    """Sine waves of half a second and more; the text says how high."""
    lines = []
    for number in range(utterances):
        pitch = number % 3
        seconds = np.arange(int((0.5 + 0.05 * (number % 7)) * RATE)) / RATE
        samples = 8000 * np.sin(2 * np.pi * (300 + 400 * pitch) * seconds)
        path = folder / f"{part}{number}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.astype("<i2").tobytes())
        lines.append(json.dumps({"key": path.stem, "wav": str(path), "txt": "abc"[pitch] * 2}))
    (folder / f"{part}.list").write_text("\n".join(lines) + "\n")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Folder with train.list (22 utterances), cv.list (5), units.txt and train.yaml."""
    write_list(tmp_path, "train", 22)
    write_list(tmp_path, "cv", 5)
    units = ["<blank>", "<unk>", "a", "b", "c", "<sos/eos>"]
    (tmp_path / "units.txt").write_text("".join(f"{unit} {number}\n" for number, unit in enumerate(units)))
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def command(model_dir: str, *options: str, ranks: int = 1, train_data: str | None = "train.list") -> list[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    data = ["--config", "train.yaml", "--cv_data", "cv.list", "--device", "cpu"]
    data += ["--train_data", train_data] if train_data else []
    return [sys.executable, *launch, str(ROOT / "wenet_uio/bin/train.py"), *data, "--model_dir", model_dir, *options]


def start(corpus: Path, *arguments: str, **keys: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(*arguments, **keys), cwd=corpus, env=environment, **pipes)


def train(corpus: Path, *arguments: str, **keys: Any) -> tuple[int, str]:
    """Exit status and what was said."""
    process = start(corpus, *arguments, **keys)
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def test_a_config_may_name_its_data_and_mix_text_without_audio_into_it(corpus: Path) -> None:
    (corpus / "texts.txt").write_text("abcab\n" * 30)
    sources = [{"type": "raw", "data_list": "train.list"}, {"type": "txt", "paths": "texts.txt"}]
    dataset_conf = {
        **CONFIG["dataset_conf"],
        "batch_conf": {"batch_type": "static", "batch_size": 4, "batch_tokens": 20},
    }
    for ctc_weight, expected in ((1.0, 1), (0.3, 0)):
        config = {**CONFIG, "data": sources, "dataset_conf": dataset_conf, "model_conf": {"ctc_weight": ctc_weight}}
        (corpus / "train.yaml").write_text(yaml.safe_dump(config))
        status, said = train(corpus, "exp", ranks=2, train_data=None)
        assert (status == 0) == (expected == 0), said
        assert ("text alone trains the decoder" in said) == (expected == 1)
    assert "epoch 1/1: train loss" in said
    assert yaml.safe_load((corpus / "exp/train.yaml").read_text())["data"]["sources"][1]["paths"] == "texts.txt"


def test_training_leaves_a_run_that_other_tools_can_use_and_says_that_it_is_complete(corpus: Path) -> None:
    status, said = train(corpus, "exp")
    assert status == 0, said
    assert "epoch 1/1: train loss" in said
    written = yaml.safe_load((corpus / "exp/train.yaml").read_text())
    assert (written["input_dim"], written["output_dim"], written["vocab_size"]) == (23, 6, 6)
    record = yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())
    assert record["step"] == 12
    assert torch.load(corpus / "exp/final.pt").keys() == torch.load(corpus / "exp/init.pt").keys()
    status, said = train(corpus, "exp")
    assert status == 0
    assert "complete, max_epoch 2 is reached" in said


def test_a_run_killed_by_sigkill_and_started_again_ends_with_the_weights_of_one_that_was_not(corpus: Path) -> None:
    options = ["--override_config", "max_epoch=12"]
    process = start(corpus, "killed", *options, "--num_workers", "2")
    give_up = time.monotonic() + 120
    while not (corpus / "killed/state_14.pt").exists() and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -9
    status, said = train(corpus, "killed", *options)
    assert status == 0, said
    assert "going on from step" in said
    assert train(corpus, "undisturbed", *options)[0] == 0
    first, second = (torch.load(corpus / run / "epoch_11.pt") for run in ("killed", "undisturbed"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_two_ranks_take_the_same_number_of_steps_and_measure_the_validation_set_once(corpus: Path) -> None:
    status, said = train(corpus, "two", ranks=2)
    assert status == 0, said
    assert "Warning" not in said
    assert yaml.safe_load((corpus / "two/epoch_1.yaml").read_text())["step"] == 6
    # the same weights, measured by one rank after a step that changes nothing
    frozen = ["--override_config", "max_epoch=1", "optim_conf.lr=1e-30", "--checkpoint", "two/epoch_1.pt"]
    losses = []
    for ranks in (1, 2):
        status, said = train(corpus, f"frozen{ranks}", *frozen, ranks=ranks)
        assert status == 0, said
        losses.append(yaml.safe_load((corpus / f"frozen{ranks}/epoch_0.yaml").read_text())["loss_dict"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--override_config", "accum_grda=2"], "accum_grda: unknown key; did you mean 'accum_grad'"),
        (["--override_config", "input_dim=80"], "input_dim 80, but dataset_conf gives 23"),
        (["--override_config", "output_dim=5"], "output_dim 5 has no room for the 6 units"),
        (["--override_config", "dataset_conf.filter_conf.min_length=5000"], "train.list: no utterance is left"),
        (["--train_engine", "torch_dpd"], "did you mean 'torch_ddp'"),
        (["--train_data", "absent.list"], "absent.list"),
        (["--cv_data", "empty.list"], "empty.list"),
        (["--checkpoint", "units.txt"], "units.txt: not the weights of a model"),
    ],
)
def test_what_is_wrong_is_said_once_before_anything_is_written(corpus: Path, options: list[str], message: str) -> None:
    (corpus / "empty.list").write_text("")
    status, said = train(corpus, "exp", *options)
    assert status == 1
    assert said.count("error: ") == 1
    assert message in said
    assert "Traceback" not in said
    assert not (corpus / "exp").exists()


def test_of_several_ranks_one_says_what_is_wrong(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "accum_grda=2", ranks=2)
    assert status != 0
    assert said.count("did you mean 'accum_grad'") == 1
    assert not (corpus / "exp").exists()


def test_the_launcher_says_a_failure_once(corpus: Path) -> None:
    command = [sys.executable, "-m", "wenet_uio.bin.launch", "--standalone", "--nproc_per_node", "2"]
    program = ["-m", "wenet_uio.bin.train", "--config", "train.yaml", "--train_data", "absent.list"]
    options = ["--cv_data", "cv.list", "--model_dir", "exp", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *program, *options], cwd=corpus, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "OMP_NUM_THREADS" not in line] == [
        "error: absent.list: no such data list; make_raw_list.py and make_shard_list.py make them"
    ]


def test_the_launcher_names_the_signal_that_ended_a_rank(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    command = [sys.executable, "-m", "wenet_uio.bin.launch", "--standalone", "--nproc_per_node", "1", "killed.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: rank 0 was ended by SIGKILL"]


def test_an_epoch_may_be_a_number_of_steps(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "epoch_steps=4", "max_epoch=3")
    assert status == 0, said
    steps = [yaml.safe_load((corpus / f"exp/epoch_{number}.yaml").read_text())["step"] for number in range(3)]
    assert steps == [4, 8, 12]


def test_changed_data_within_an_epoch_is_refused_unless_allowed(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "epoch_steps=4", "max_epoch=1")
    assert status == 0, said
    lines = (corpus / "train.list").read_text().splitlines(keepends=True)
    (corpus / "train.list").write_text("".join(lines[1:]))
    options = ["--override_config", "epoch_steps=4", "max_epoch=2"]
    status, said = train(corpus, "exp", *options)
    assert status == 1
    assert "error: the data set train.list changed since the checkpoint" in said.splitlines()[-1]
    status, said = train(corpus, "exp", *options, "--allow_data_changes")
    assert status == 0, said


def test_two_ranks_account_for_every_utterance_and_name_the_bad_ones(corpus: Path) -> None:
    with open(corpus / "train.list", "a") as file:
        file.write("no JSON\n")
    open_list(str(corpus / "train.list"), "raw")  # indexed before it breaks
    (corpus / "train3.wav").write_bytes(b"")
    filters = "dataset_conf.filter_conf.max_duration=0.76"  # of 0.5 to 0.8 s
    status, said = train(corpus, "exp", "--override_config", filters, "--num_workers", "1", ranks=2)
    assert status == 0, said
    counts = {"all": 23, "read": 18, "filtered": {"max_duration": 3}, "bad": {"not_indexed": 1, "unreadable": 1}}
    for epoch in range(2):
        assert yaml.safe_load((corpus / f"exp/epoch_{epoch}.yaml").read_text())["samples"] == counts
    account = "23 utterances: 18 read, 3 filtered (3 max_duration), 2 bad (1 not_indexed, 1 unreadable)"
    assert f"epoch 1/1: {account}" in said
    named = [json.loads(line) for line in open(corpus / "exp/bad_samples.jsonl")]
    assert sorted((line["pass"], line["key"], line["reason"]) for line in named) == [
        (0, f"{corpus}/train.list:23", "not_indexed"),
        (0, "train3", "unreadable"),
        (1, "train3", "unreadable"),
    ]
