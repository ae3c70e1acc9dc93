"""The example of the page for users of NeMo trains as it is printed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import torch

from tests.support.data.tars import wav, write_tar
from wenet_uio.bin import train
from wenet_uio.config import load_config
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece

PAGE = Path(__file__).resolve().parents[2] / "docs/coming-from/nemo.md"
SMALL = (
    "encoder_conf.output_size=16",
    "encoder_conf.linear_units=16",
    "encoder_conf.attention_heads=2",
    "decoder_conf.linear_units=16",
    "decoder_conf.num_blocks=1",
    "decoder_conf.r_num_blocks=1",
    "decoder_conf.attention_heads=2",
    "report=false",
    "observe_interval=0",
)
"""Overrides that make the model of the page small."""
WORDS = ["abc", "cab", "bac", "acb", "bca", "cba"]


def entry(name: str, number: int, **fields: object) -> str:
    text = " ".join(WORDS[number % 3 : number % 3 + 3])
    line = {"audio_filepath": name, "duration": 0.5, "text": text, **fields}
    return json.dumps(line) + "\n"


def write_data(folder: Path) -> None:
    (folder / "m").mkdir()
    for shard in range(8):
        names = [f"{shard}{number}.wav" for number in range(2)]
        write_tar(folder / f"m/audio_{shard}.tar", [(name, wav(0.5)) for name in names])
        lines = [entry(name, number, shard_id=shard) for number, name in enumerate(names)]
        (folder / f"m/manifest_{shard}.json").write_text("".join(lines))

    for name in ("near", "dev"):
        (folder / f"{name}.wav").write_bytes(wav(0.5))
        (folder / f"{name}.json").write_text(entry(f"{name}.wav", 0))

    (folder / "tokenizer").mkdir()
    train_sentencepiece(WORDS * 9, folder / "tokenizer/tokenizer", SentencepieceOptions(8))


def test_the_printed_example_trains_with_the_printed_command(tmp_path, monkeypatch):
    page = PAGE.read_text(encoding="utf-8").partition("## A worked conversion")[2]
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    plain, changed = (
        shlex.split(command.replace("\\\n", " "))
        for command in re.findall(r"^    python -m ((?:.*\\\n)*.*)$", page, re.MULTILINE)
    )
    write_data(tmp_path)
    (tmp_path / "train.yaml").write_text(example)
    monkeypatch.chdir(tmp_path)
    assert plain == ["wenet_uio.bin.train", "--config", "train.yaml", "--model_dir", "exp/nemo"]
    as_printed = load_config("train.yaml")
    assert (as_printed.encoder_conf.num_blocks, as_printed.max_epoch) == (12, 50)
    assert as_printed.cv_data.sources[0].manifest_filepath == "dev.json"

    assert not train.main([*changed[1:], *SMALL, "--device", "cpu"])

    run = load_config("exp/nemo/train.yaml", of_model=True)
    assert (run.max_steps, run.accum_grad, run.grad_clip) == (2, 2, 1.0)
    assert run.dataset_conf.filter_conf.max_duration == 3
    assert (run.ctc_conf.ctc_blank_id, run.output_dim) == (8, 10)
    assert run.tokenizer_conf.special_tokens == {"<sos>": 9, "<eos>": 9}
    weights = torch.load("exp/nemo/final.pt", weights_only=True)
    assert weights["ctc.ctc_lo.weight"].shape == (10, 16)
