"""What a training can start from, and the one line that says why it cannot start from others."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support.models.small_whisper import write_openai
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.train.training_corpus import CONFIG
from wenet_uio.config import load_config
from wenet_uio.export.exported import FOLDERS
from wenet_uio.models import build_model
from wenet_uio.models.lora import is_lora
from wenet_uio.train.trained_model import (
    check_other_units,
    convert_model,
    model_at,
    models_at,
    open_trained_model,
)


def whisper(path: Path) -> Path:
    torch.save({"dims": {}, "model_state_dict": {"a": torch.ones(1)}}, path)
    return path


def hugging_face(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "whisper"}))
    return folder


def test_a_file_in_a_folder_that_has_a_layout_stands_for_it(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "small")
    (folder / "vocab.json").write_text("{}")
    for path in (folder, folder / "config.json", folder / "vocab.json"):
        assert model_at(path) == (folder, "huggingface")


def test_a_folder_stands_for_the_only_whisper_in_it(tmp_path: Path) -> None:
    small = whisper(tmp_path / "small.pt")
    (tmp_path / "gpt2.tiktoken").write_text("")
    torch.save({"a": torch.ones(1)}, tmp_path / "other.pt")
    assert model_at(tmp_path) == model_at(small) == (small, "openai")
    assert models_at(tmp_path / "other.pt") == []


@pytest.mark.parametrize("second", ["base.pt", "config.json", "config.yaml", "pretrained.pt"])
def test_a_folder_of_two_models_is_refused_by_the_names_of_both(
    tmp_path: Path, second: str
) -> None:
    small = whisper(tmp_path / "small.pt")
    if second == "base.pt":
        whisper(tmp_path / second)
        names = [r"base\.pt", r"small\.pt"]
    elif second == "config.json":
        hugging_face(tmp_path)
        names = ["a folder of a Whisper of Hugging Face", r"small\.pt"]
    elif second == "config.yaml":
        (tmp_path / second).write_text("model: Paraformer\n")
        (tmp_path / "model.pt").write_bytes(b"")
        names = ["a folder of a Paraformer of FunASR", r"small\.pt"]
    else:
        (tmp_path / second).write_bytes(b"")
        names = ["a folder of a Zipformer of icefall", r"small\.pt"]

    with pytest.raises(ValueError, match=f"several models: .*{names[0]}.*{names[1]}.*; name the"):
        convert_model(tmp_path)
    assert model_at(small) == (small, "openai")


def test_two_layouts_at_one_folder_are_refused_also_by_a_file_in_it(tmp_path: Path) -> None:
    hugging_face(tmp_path)
    (tmp_path / "pretrained.pt").write_bytes(b"")
    for path in (tmp_path, tmp_path / "pretrained.pt"):
        with pytest.raises(ValueError, match=r"several models: .*Hugging Face.*icefall"):
            model_at(path)


LORA = {"use_lora": True, "lora_conf": {"lora_rank": 2}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with low-rank weights: avg.pt has them merged, epoch_0.pt has both."""
    folder = tmp_path / "run"
    folder.mkdir()
    units = ("<blank>", "<unk>", "a", "b", "c", "<sos/eos>")
    (folder / "units.txt").write_text("".join(f"{unit} {n}\n" for n, unit in enumerate(units)))
    (folder / "train.yaml").write_text(yaml.safe_dump({**CONFIG, **LORA, "input_dim": 23}))
    torch.manual_seed(1)
    weights = build_model(load_config(folder / "train.yaml", of_model=True)).state_dict()
    torch.save(weights, folder / "epoch_0.pt")
    torch.save(
        {name: value for name, value in weights.items() if not is_lora(name)}, folder / "avg.pt"
    )
    return folder


def started(path: Path) -> dict[str, torch.Tensor]:
    """The weights that a training starts from."""
    return open_trained_model(path, path.parent / "unused", make=False).read_weights()


def refusal(path: Path) -> str:
    """The error of a start, which is one line that begins with the path."""
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        started(path)

    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def lora_alone(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if is_lora(name)}


@pytest.mark.parametrize("name", ["units.txt", "train.yaml", "README.md", "empty.pt", "half.pt"])
def test_a_file_of_a_run_that_has_no_weights_is_named_as_what_it_is(run: Path, name: str) -> None:
    (run / "README.md").write_text("# Wörter für Zahlen\n", encoding="utf-8")
    (run / "empty.pt").write_bytes(b"")
    whole = (run / "avg.pt").read_bytes()
    (run / "half.pt").write_bytes(whole[: len(whole) // 2])
    message = refusal(run / name)
    text = not name.endswith(".pt")
    assert message.startswith("not the weights of a model (")
    assert message.startswith("not the weights of a model (a text)") == text
    assert message.endswith("; give weights such as avg.pt, final.pt or epoch_7.pt of a run")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            {"model": {}, "optimizer": {}, "progress": {}, "seed": 1},
            "the state from which a run resumes",
        ),
        ({"state": {0: {"step": torch.ones(1)}}, "param_groups": []}, "the state of an optimizer"),
        ({"state_dict": {"a": torch.ones(1)}}, "a dict with a state dict under 'state_dict'"),
        ({0: torch.ones(1)}, "dict"),
        ({}, "an empty dict"),
        ({"weights": torch.ones(2), "steps": 3}, "dict"),
        ([torch.ones(1)], "list"),
        (torch.ones(2), "Tensor"),
    ],
)
def test_a_checkpoint_of_another_content_is_named_as_what_it_is(
    run: Path, content: Any, what: str
) -> None:
    torch.save(content, run / "state_3.pt")
    expected = f"expected a plain state dict, found {what}; give weights such as avg.pt, "
    assert refusal(run / "state_3.pt").startswith(expected)


def test_low_rank_weights_alone_need_the_weights_that_they_change(run: Path) -> None:
    both = torch.load(run / "epoch_0.pt", weights_only=True)
    low = lora_alone(both)
    assert started(run / "epoch_0.pt").keys() == both.keys() - low.keys()

    torch.save(low, run / "lora.pt")
    assert refusal(run / "lora.pt").startswith(
        "low-rank weights (LoRA) without the weights that they change: "
    )
    torch.save({name: both[name] for name in both if "lora_B" not in name}, run / "a_alone.pt")
    assert ".lora_B is missing; give a file that has both" in refusal(run / "a_alone.pt")


def test_a_whisper_beside_the_train_yaml_of_another_model_is_a_whisper(
    run: Path, tmp_path: Path
) -> None:
    source = write_openai(run / "small.pt")
    write_full_vocabulary(run / "multilingual.tiktoken")
    start = open_trained_model(source, tmp_path / "from")
    assert start.config.model == "whisper"
    assert open_trained_model(run, tmp_path / "unused").weights == run / "avg.pt"


@pytest.mark.parametrize("place", [".", *FOLDERS])
@pytest.mark.parametrize("names_folder", [True, False])
def test_an_export_below_a_run_stands_for_it(
    run: Path, place: str, names_folder: bool, caplog: pytest.LogCaptureFixture
) -> None:
    export = run / "onnx" / place / "encoder.onnx"
    export.parent.mkdir(parents=True)
    export.write_bytes(b"")
    caplog.set_level(logging.INFO)
    named = run / "onnx" if names_folder else export
    assert open_trained_model(named, run / "unused").weights == run / "avg.pt"
    assert "an export cannot be trained; its run has the weights" in caplog.text


@pytest.mark.parametrize("is_relative", [True, False])
def test_an_export_in_the_cache_of_a_hub_stands_for_the_run_of_its_links(
    run: Path, is_relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has files in `blobs`, and links to them in the folder of a commit."""
    (run / "final.zip").write_bytes(b"")
    blobs, commit = run.parent / "model/blobs", run.parent / "model/snapshots/0123"
    commit.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(file for file in run.iterdir() if file.is_file()):
        shutil.copy(file, blobs / str(number))
        (commit / file.name).symlink_to(Path("../../blobs", str(number)))

    monkeypatch.chdir(commit.parent)
    named = Path("0123/final.zip") if is_relative else commit / "final.zip"
    assert open_trained_model(named, run / "unused").weights == commit / "avg.pt"


def test_weights_without_their_config_say_that_they_need_it(run: Path) -> None:
    alone = run.parent / "alone"
    alone.mkdir()
    shutil.copy(run / "avg.pt", alone)
    message = refusal(alone / "avg.pt")
    assert "weights of this package and of WeNet need their train.yaml beside them" in message
    assert "a .pt file of a Whisper of OpenAI" in message


def test_only_a_model_whose_prompt_has_tokens_of_its_own_refuses_units_without_them(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "whisper").mkdir()
    write_openai(tmp_path / "whisper/small.pt")
    converted = tmp_path / "converted"
    open_trained_model(tmp_path / "whisper/small.pt", converted)
    for units in (run / "units.txt", tmp_path / "not made yet.txt"):
        for model in (run, run / "epoch_0.pt"):
            check_other_units(model, units)
        for model in (tmp_path / "whisper/small.pt", tmp_path / "whisper", converted):
            message = f"--units {units}: a whisper such as {model} is trained with its own units"
            with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
                check_other_units(model, units)

    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a 0\n<|startoftranscript|> 1\n")
    for model in (run, converted):
        check_other_units(model, vocabulary)
    for path in (tmp_path / "none", vocabulary):
        with pytest.raises(ValueError, match="training cannot start from this"):
            check_other_units(path, vocabulary)
