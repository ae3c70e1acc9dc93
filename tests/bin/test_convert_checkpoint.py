"""The command converts models of other packages, and its errors are one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.models.small_whisper import SIZES, openai_weights
from wenet_uio.base.cli import run
from wenet_uio.bin.convert_checkpoint import main
from wenet_uio.models.weights import read_weights


def convert(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        run(lambda: main([*map(str, arguments)]))
    return int(caught.value.code or 0)


def test_the_folder_has_train_yaml_and_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    torch.save({"dims": SIZES, "model_state_dict": openai_weights()}, tmp_path / "tiny.pt")
    assert convert("--input", tmp_path / "tiny.pt", "--output_dir", tmp_path / "out") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'out'}: model whisper with ")
    assert lines[1].strip().startswith("CTC is not trained: decode with --mode attention")
    weights = read_weights(tmp_path / "out/final.pt")
    assert weights["encoder.encoders.0.feed_forward.w_1.weight"].shape == (32, 8)
    first = (tmp_path / "out/final.pt").read_bytes()
    assert convert("--input", tmp_path / "tiny.pt", "--output_dir", tmp_path / "out") == 0
    assert (tmp_path / "out/final.pt").read_bytes() == first


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, (), "no such file or folder"),
        (
            {"a": torch.ones(1)},
            (),
            "none of the known layouts (openai: a .pt file of a Whisper of OpenAI; ",
        ),
        (
            {"dims": {"n_mels": 80}, "model_state_dict": {}},
            (),
            "dims lacks n_audio_ctx, n_audio_state",
        ),
        (
            {"dims": SIZES, "model_state_dict": {}},
            (),
            "weights are missing: encoder.conv1, encoder.conv2",
        ),
        ({"dims": SIZES, "model_state_dict": {}}, ("--layout", "huggingface"), "config.json"),
        ({}, ("--vocabulary", "absent.txt"), "absent.txt: no such file"),
    ],
)
def test_errors_are_one_line(
    content: object,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    if content is not None:
        torch.save(content, tmp_path / "tiny.pt")
    assert convert("--input", tmp_path / "tiny.pt", "--output_dir", tmp_path / "out", *options) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
