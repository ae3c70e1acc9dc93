"""The model of another package that a path names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from wenet_uio.convert.layouts import convert, model_at, models_at


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
        convert(tmp_path)
    assert model_at(small) == (small, "openai")


def test_two_layouts_at_one_folder_are_refused_also_by_a_file_in_it(tmp_path: Path) -> None:
    hugging_face(tmp_path)
    (tmp_path / "pretrained.pt").write_bytes(b"")
    for path in (tmp_path, tmp_path / "pretrained.pt"):
        with pytest.raises(ValueError, match=r"several models: .*Hugging Face.*icefall"):
            model_at(path)
