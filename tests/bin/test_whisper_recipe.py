"""The configs of the recipes for Whisper: fine-tuning of converted weights, with and without LoRA,
and a moved run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import torch
import yaml

from tests.support.data.wenet_reader import WenetReader
from tests.support.models.vocabularies import write_tiktoken
from wenet_uio.bin import average_model, recognize, train, transcribe
from wenet_uio.config import load_config
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.models import build_model
from wenet_uio.models.lora import is_lora
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.train.run_config import read_config

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TINY = [
    *(
        "encoder_conf.output_size=32",
        "encoder_conf.attention_heads=2",
        "encoder_conf.linear_units=32",
    ),
    *(
        "encoder_conf.num_blocks=1",
        "decoder_conf.attention_heads=2",
        "decoder_conf.linear_units=32",
    ),
    *(
        "decoder_conf.num_blocks=1",
        "tokenizer_conf.bpe_path=tiny.tiktoken",
        "accum_grad=1",
        "max_epoch=1",
    ),
    *(
        "optim_conf.lr=0.02",
        "scheduler_conf.warmup_steps=5",
        "log_interval=5",
        "observe_interval=0",
        "report=false",
    ),
]

Call = Callable[..., None]


@pytest.fixture
def call() -> Call:
    def run(tool: ModuleType, *arguments: str) -> None:
        tool.main(arguments)

    return run


@pytest.fixture
def home(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a vocabulary, and a list of 40 recordings of FSDD."""
    folder = tmp_path / "home"
    write_tiktoken(folder / "tiny.tiktoken", [f" {digit}" for digit in DIGITS] + list(DIGITS))
    recordings = sorted((corpora / "fsdd/recordings").glob("*_theo_*.wav"))[::12]
    lines = [RawLine(path.stem, str(path), DIGITS[int(path.stem[0])]) for path in recordings]
    assert make_raw_list(lines, folder / "data.list") == []
    monkeypatch.chdir(folder)
    return folder


def fine_tune(call: Call, conf: str, folder: str, *overrides: str) -> None:
    """Write random weights to base.pt, as if they were converted, and train them for one epoch."""
    config, _ = read_config(EXAMPLES / conf, TINY)
    torch.manual_seed(5)
    weights = build_model(config).state_dict()
    torch.save({name: weight for name, weight in weights.items() if not is_lora(name)}, "base.pt")
    lists = (
        "--train_data",
        "data.list",
        "--cv_data",
        "data.list",
        "--model_dir",
        folder,
        "--device",
        "cpu",
    )
    call(
        train, "--config", str(EXAMPLES / conf), *lists, "--checkpoint", "base.pt",
        "--override_config", *TINY, *overrides,
    )  # fmt: skip


def texts(call: Call, folder: Path, checkpoint: Path, *options: str) -> list[str]:
    model = (
        "--config",
        str(folder / "train.yaml"),
        "--checkpoint",
        str(checkpoint),
        "--device",
        "cpu",
    )
    call(
        recognize,
        *model,
        "--test_data",
        "data.list",
        "--result_dir",
        "out",
        "--beam_size",
        "3",
        *options,
    )
    return (Path("out") / options[1] / "text").read_text().splitlines()


@pytest.mark.parametrize("example", ["aishell", "custom"])
def test_the_config_has_the_sizes_and_ids_of_whisper_small(example: str) -> None:
    config = load_config(EXAMPLES / example / "s0/conf/whisper.yaml")
    with torch.device("meta"):
        weights = build_model(config).state_dict()
    converted = {name: value for name, value in weights.items() if not name.startswith("ctc.")}
    assert weights["decoder.embed.0.weight"].shape == (51865, 768)
    trained = sum(
        weight.numel() for name, weight in converted.items() if not name.endswith("pos_enc.pe")
    )
    tied = weights["decoder.embed.0.weight"].numel() + weights["decoder.output_layer.bias"].numel()
    # Of OpenAI's, the positions of the encoder are no weights here
    assert trained - tied == 241_734_912 - 1500 * 768


def test_fine_tuning_learns_and_a_moved_run_recognises_without_the_vocabulary_it_came_from(
    call: Call, home: Path, tmp_path: Path, golden2: Path
) -> None:
    fine_tune(call, "custom/s0/conf/whisper.yaml", "exp", "max_epoch=2")
    losses = [
        yaml.safe_load(Path(f"exp/epoch_{epoch}.yaml").read_text())["loss_dict"]["loss"]
        for epoch in (0, 1)
    ]
    assert losses[1] < losses[0]
    reader = WenetReader(home / "exp/train.yaml", golden2 / "wenet_kwargs.yaml")
    assert (reader.unknown_keywords(), reader.missing_keywords()) == ([], [])
    with torch.device("meta"):
        model = build_model(load_config(home / "exp/train.yaml"))
    assert reader.ids == (model.blank, model.sos, model.eos)
    assert reader.values["tokenizer_conf"]["special_tokens"]["transcribe"] == model.sos + 1 + 99 + 1
    (home / "tiny.tiktoken").unlink()
    moved = tmp_path / "moved"
    shutil.move(home / "exp", moved)
    for mode in ("attention", "ctc_prefix_beam_search", "attention_rescoring"):
        found = texts(call, moved, moved / "final.pt", "--modes", mode)
        assert len(found) == 42


def test_lora_trains_the_low_rank_weights_alone_and_merged_weights_recognise_the_same(
    call: Call, home: Path
) -> None:
    fine_tune(call, "aishell/s0/conf/whisper_lora.yaml", "exp", "lora_conf.lora_rank=4")
    base, tuned = (torch.load(path, weights_only=True) for path in ("base.pt", "exp/final.pt"))
    assert all(torch.equal(tuned[name], weight) for name, weight in base.items())
    trained = {name: weight for name, weight in tuned.items() if name not in base}
    assert len(trained) == 3 * 2 * 2  # attentions, projections, A and B
    assert all(is_lora(name) for name in trained)
    assert all(weight.abs().max() > 0 for weight in trained.values())

    average = ("--src_path", "exp", "--num", "1")
    call(average_model, "--dst_model", "exp/avg.pt", *average)
    call(average_model, "--dst_model", "merged.pt", *average, "--merge_lora")
    expected = texts(call, home / "exp", home / "exp/avg.pt", "--modes", "attention")
    merged = texts(
        call, home / "exp", home / "merged.pt", "--modes", "attention", "--use_lora", "false"
    )
    assert merged == expected


def test_modes_of_ctc_are_refused_for_a_model_that_was_trained_without(
    call: Call, home: Path
) -> None:
    fine_tune(call, "custom/s0/conf/whisper_lora.yaml", "exp", "epoch_steps=1")
    with pytest.raises(ValueError, match=r"ctc_greedy_search"):
        texts(call, home / "exp", home / "exp/final.pt", "--modes", "ctc_greedy_search")


@pytest.mark.all
def test_a_long_recording_is_transcribed(
    call: Call, home: Path, corpora: Path, capsys: pytest.CaptureFixture
) -> None:
    fine_tune(call, "custom/s0/conf/whisper.yaml", "exp", "epoch_steps=3")
    digits = [
        soundfile.read(path)[0] for path in sorted((corpora / "fsdd/recordings").glob("*.wav"))[:80]
    ]
    soundfile.write("long.wav", np.concatenate(digits), 8000)
    call(transcribe, "--model", "exp", "--device", "cpu", "--format", "json", "long.wav")
    transcript = json.loads(capsys.readouterr().out)
    assert transcript["audio"] == "long.wav"
    assert all(0 <= passage["start"] <= passage["end"] for passage in transcript["passages"])
