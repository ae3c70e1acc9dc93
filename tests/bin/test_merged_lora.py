"""Every command takes the weights of `average_model.py --merge_lora` with the train.yaml of their
run.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from tests.support.models.recogniser import CONFIG
from wenet_uio.bin import align, average_model, export_jit, recognize, transcribe
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.models.lora import is_lora


@pytest.fixture
def exp(folder: Path) -> Path:
    """The folder of a run whose low-rank weights are trained: avg.pt is their merge, epoch_0.pt has
    them.
    """
    exp = folder / "exp"
    exp.mkdir()
    config = {**CONFIG, "use_lora": True, "only_optimize_lora": True, "lora_conf": {"lora_rank": 2}}
    (exp / "train.yaml").write_text(
        yaml.safe_dump(config | {"tokenizer_conf": {"symbol_table_path": "units.txt"}})
    )
    torch.manual_seed(1)
    weights = build_model(load_config(exp / "train.yaml")).state_dict()
    low = {name: torch.randn_like(value) for name, value in weights.items() if is_lora(name)}
    torch.save({**weights, **low}, exp / "epoch_0.pt")
    return exp


def call(tool: ModuleType, *options: str) -> int | None:
    return tool.main(options)


def test_merged_weights_are_recognized_transcribed_aligned_and_exported_as_the_weights_of_the_run(
    exp: Path,
    capsys: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    call(
        average_model,
        "--dst_model",
        "exp/avg.pt",
        "--src_path",
        "exp",
        "--num",
        "1",
        "--merge_lora",
    )
    assert not any(map(is_lora, torch.load(exp / "avg.pt", weights_only=True)))
    said: dict[str, list[str]] = {}
    for name in ("epoch_0.pt", "avg.pt"):
        model = ("--config", "exp/train.yaml", "--checkpoint", str(exp / name))
        on_list = (*model, "--data_type", "raw", "--device", "cpu")
        mode = ("--modes", "attention_rescoring")
        call(recognize, *on_list, "--test_data", "raw.list", "--result_dir", name, *mode)
        call(align, *model, "--data_list", "raw.list", "--result_dir", f"{name}.aligned")
        capsys.readouterr()
        call(
            transcribe, "--model", "exp", "--checkpoint", str(exp / name), "--device", "cpu",
            "--detector", "energy", "u1.wav",
        )  # fmt: skip
        texts = Path(name, "attention_rescoring", "text").read_text()
        said[name] = [
            texts,
            capsys.readouterr().out,
            *(path.read_text() for path in sorted(Path(f"{name}.aligned").iterdir())),
        ]
    assert said["avg.pt"] == said["epoch_0.pt"]
    assert any(line.partition(" ")[2] for line in said["avg.pt"][0].splitlines())
    call(
        export_jit,
        *model,
        "--output_file",
        "final.zip",
        "--check_data",
        "raw.list",
        "--num_check",
        "2",
    )
    assert (
        "2 of 2 utterances and 3 of 3 short beginnings as the checkpoint decodes them"
        in capsys.readouterr().out
    )
    assert (
        "avg.pt has no low-rank weights (LoRA): they are merged, or were never trained"
        in caplog.text
    )


def test_low_rank_weights_alone_and_the_weights_below_them_recognise_as_both_in_one_file(
    exp: Path,
) -> None:
    base = ("--dst_model", "exp/lora.pt", "--src_path", "exp", "--num", "1", "--only_lora")
    call(average_model, *base)
    both = torch.load(exp / "epoch_0.pt", weights_only=True)
    low = torch.load(exp / "lora.pt", weights_only=True)
    assert low.keys() == {name for name in both if is_lora(name)}
    torch.save({name: both[name] for name in both.keys() - low.keys()}, exp / "base.pt")

    texts = []
    for weights in (
        ["exp/epoch_0.pt"],
        ["exp/base.pt", "--lora_ckpt_path", "exp/lora.pt"],
        ["exp/base.pt"],
    ):
        call(
            recognize, "--config", "exp/train.yaml", "--checkpoint", *weights,
            "--data_type", "raw", "--test_data", "raw.list", "--device", "cpu",
            "--result_dir", "out", "--modes", "attention_rescoring",
        )  # fmt: skip
        texts.append(Path("out", "attention_rescoring", "text").read_text())

    assert texts[0] == texts[1] != texts[2]


def test_a_file_with_other_weights_is_no_file_of_low_rank_weights(exp: Path) -> None:
    with pytest.raises(ValueError, match=r"epoch_0.pt: expected low-rank weights .* alone, found"):
        call(
            recognize, "--config", "exp/train.yaml", "--checkpoint", "exp/epoch_0.pt",
            "--lora_ckpt_path", "exp/epoch_0.pt", "--data_type", "raw", "--test_data", "raw.list",
            "--device", "cpu", "--result_dir", "out", "--modes", "attention_rescoring",
        )  # fmt: skip
