"""A tiny Whisper trains on spoken digits by the train command, resumes after kill -9, and
decodes.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import wenet_uio
from tests.support import preloaded
from tests.support.data.digits import WORDS
from tests.support.models.digit_whisper import digit_whisper, write_vocabulary
from wenet_uio.bin import recognize, train, transcribe
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list

ROOT = Path(__file__).parents[4]
CONFIG = digit_whisper(
    num_blocks=1,
    model_conf={"ctc_weight": 0.3, "lsm_weight": 0.1},
    dataset_conf={
        "feats_type": "log_mel_spectrogram",
        "resample_conf": {"resample_rate": 8000},
        "log_mel_spectrogram_conf": {"num_mel_bins": 40, "n_fft": 200, "hop_length": 80},
        "language_conf": {"limited_langs": ["en"]},
        "batch_conf": {"batch_type": "static", "batch_size": 8},
    },
    optim_conf={"lr": 0.01},
    scheduler_conf={"warmup_steps": 20},
    log_interval=1,
    max_epoch=1,
)


@pytest.fixture
def home(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.yaml, train.list and cv.list: every twelfth recording of one speaker of
    FSDD.
    """
    monkeypatch.chdir(tmp_path)
    return write_run(corpora, tmp_path)


def write_run(corpora: Path, folder: Path, **keys: Any) -> Path:
    write_vocabulary(folder)
    recordings = sorted((corpora / "fsdd/recordings").glob("*_theo_*.wav"))
    for name, chosen in (("train", recordings[::12]), ("cv", recordings[5::60])):
        lines = [RawLine(path.stem, str(path), WORDS[int(path.stem[0])]) for path in chosen]
        assert make_raw_list(lines, folder / f"{name}.list") == []
    (folder / "train.yaml").write_text(yaml.safe_dump({**CONFIG, **keys}), encoding="utf-8")
    return folder


def call(main: Any, *arguments: str) -> None:
    main([*arguments, "--device", "cpu"])


def losses(folder: Path) -> list[float]:
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [point.value for point in events.Scalars("train/loss")]


def test_eighty_steps_halve_the_first_loss_and_the_model_decodes(
    home: Path,
    capsys: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lists = ("--train_data", "train.list", "--cv_data", "cv.list", "--model_dir", "exp")
    steps = ("--override_config", "epoch_steps=80", "log_interval=10")
    call(train.main, "--config", "train.yaml", *lists, *steps)
    found = losses(home / "exp")
    assert len(found) == 8
    assert found[-1] < 0.5 * found[0], found

    model = ("--config", "exp/train.yaml", "--checkpoint", "exp/final.pt", "--result_dir", "out")
    modes = ("attention", "ctc_prefix_beam_search", "attention_rescoring", "joint_ctc_attention")
    call(
        recognize.main,
        *model,
        "--test_data",
        "train.list",
        "--nbest",
        "2",
        "--modes",
        *modes,
    )
    for mode in modes:
        lines = (home / "out" / mode / "text").read_text().splitlines()
        assert len(lines) == 42
        assert {line.partition(" ")[2] for line in lines} <= {"", *WORDS}, mode
    (first, *_) = map(json.loads, (home / "out/attention/nbest.jsonl").read_text().splitlines())
    assert first["hypotheses"][0]["language"] == "en"

    audio = json.loads((home / "cv.list").read_text().splitlines()[0])["wav"]
    capsys.readouterr()
    call(
        transcribe.main,
        "--model",
        "exp",
        "--format",
        "json",
        "--timestamps",
        "--language",
        "en",
        audio,
    )
    for segment in json.loads(capsys.readouterr().out)["passages"]:
        assert segment["language"] == "en"
        assert segment["start"] <= segment["end"]

    recogniser = wenet_uio.load_model("exp", device="cpu")
    caplog.set_level(logging.WARNING)
    recogniser.stream(sample_rate=8000)
    (message,) = [line for line in caplog.messages if "no streaming" in line]
    assert "trained with full context only" in message
    assert "\n" not in message


def test_the_language_of_an_utterance_comes_from_its_data_before_the_option(home: Path) -> None:
    lines = [json.loads(line) for line in (home / "cv.list").read_text().splitlines()]
    for line in lines[1::2]:
        line["lang"] = "de"
    (home / "cv.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lists = ("--train_data", "cv.list", "--cv_data", "cv.list", "--model_dir", "exp")
    without_pictures = ("--override_config", "observe_interval=0", "report=false")
    call(train.main, "--config", "train.yaml", *lists, *without_pictures)
    model = (
        "--config",
        "exp/train.yaml",
        "--checkpoint",
        "exp/final.pt",
        "--result_dir",
        "out",
        "--nbest",
        "1",
    )
    for options, expected in ((("--language", "fr"), "fr"), ((), None)):
        call(
            recognize.main,
            *model,
            "--test_data",
            "cv.list",
            "--modes",
            "attention",
            *options,
        )
        found = [
            json.loads(line)["hypotheses"][0]["language"]
            for line in (home / "out/attention/nbest.jsonl").read_text().splitlines()
        ]
        assert found[1::2] == ["de"] * len(found[1::2])
        assert expected is None or found[::2] == [expected] * len(found[::2])


def test_a_language_that_the_model_does_not_know_stops_training_in_one_line(home: Path) -> None:
    text = (home / "train.list").read_text().replace('"txt"', '"lang": "xx", "txt"')
    (home / "train.list").write_text(text)
    lists = ("--train_data", "train.list", "--cv_data", "cv.list", "--model_dir", "exp")
    with pytest.raises(
        ValueError, match=r"^[0-9]_theo_[0-9]+: language 'xx': this model knows en, zh, de"
    ):
        call(train.main, "--config", "train.yaml", *lists)


@pytest.mark.all
def test_a_run_that_is_killed_twice_ends_with_the_weights_of_an_undisturbed_run(
    corpora: Path, tmp_path: Path
) -> None:
    kills = {"killed": [[1, "update", 3], [0, "write", 2]], "undisturbed": []}
    for name, events in kills.items():
        folder = tmp_path / name
        folder.mkdir()
        write_run(
            corpora,
            folder,
            max_steps=8,
            save_interval=2,
            epoch_steps=4,
            max_epoch=2,
            observe_interval=0,
            report=False,
        )
        (folder / "kills.json").write_text(json.dumps(events))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        arguments = ["-m", "tests.support.train.killed_run", "kills.json"]
        done = preloaded.run(arguments, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"survived": 0, "complete": True}
    killed, undisturbed = (
        torch.load(tmp_path / name / "exp/final.pt", weights_only=True)
        for name in ("killed", "undisturbed")
    )
    assert killed.keys() == undisturbed.keys()
    assert all(torch.equal(killed[name], undisturbed[name]) for name in killed)
