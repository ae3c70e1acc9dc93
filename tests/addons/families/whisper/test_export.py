"""A Whisper is exported for sherpa-onnx, which recognises the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sherpa_onnx
import soundfile
import torch
import torchaudio
import yaml

from tests.support.data.digits import WORDS
from tests.support.models.digit_whisper import digit_whisper, write_vocabulary
from wenet_uio.addons.families.whisper.export import TAIL
from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.bin import export_jit, export_onnx
from wenet_uio.config import Config, save_config
from wenet_uio.dataset.chain.fbank import log_mel_spectrogram
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.models import build_model
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.train.run_config import read_config

HOP = 160
"""Samples of 16 kHz between two frames."""
CONFIG = digit_whisper(
    num_blocks=2,
    dataset_conf={
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {"num_mel_bins": 80},
        "filter_conf": {"min_length": 0},
    },
)


@pytest.fixture
def home(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of random weights that says words, other words for each of three
    recordings of 16 kHz.
    """
    monkeypatch.chdir(tmp_path)
    write_vocabulary(tmp_path)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    config, tokenizer = read_config("train.yaml")
    save_config(config, "train.yaml")
    model = build_model(config)
    assert isinstance(model, Whisper)
    torch.manual_seed(25)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(weight, std=0.5)
    with torch.no_grad():
        bias = model.decoder.output_layer.bias
        bias.fill_(-1e3)
        for word in WORDS:
            bias[tokenizer.symbols[f"▁{word}"]] = 0.0
        bias[model.eos] = 0.0
    torch.save(model.state_dict(), "final.pt")
    lines = []
    for number, digits in enumerate(((0, 1, 2, 3, 4), (5, 6, 7, 8), (9, 0, 9, 4, 4, 1))):
        paths = [corpora / f"fsdd/recordings/{digit}_theo_{number}.wav" for digit in digits]
        samples = torch.cat(
            [torch.from_numpy(soundfile.read(path, dtype="float32")[0]) for path in paths]
        )
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, torchaudio.functional.resample(samples, 8000, 16000).numpy(), 16000)
        lines.append(RawLine(path.stem, str(path), "one"))
    assert make_raw_list(lines, tmp_path / "check.list") == []
    return tmp_path


def export(tool: Any, *options: str) -> None:
    common = ("--config", "train.yaml", "--checkpoint", "final.pt", "--check_data", "check.list")
    tool.main([*common, *options])


def features_of_sherpa(samples: np.ndarray, config: Config) -> torch.Tensor:
    """Features (T, F) as sherpa-onnx frames them: half a hop later, mirrored at the ends, and with
    TAIL zeros.
    """
    frames = (len(samples) + HOP // 2) // HOP
    mirrored = torch.from_numpy(np.pad(samples, (3 * HOP // 2, 4 * HOP), mode="symmetric")) * 32768
    feats = log_mel_spectrogram(mirrored, 100 * HOP, config.dataset_conf.log_mel_spectrogram_conf)
    return torch.nn.functional.pad(feats[2 : 2 + frames], (0, 0, 0, TAIL))


def texts_of_checkpoint(home: Path, audio: list[Path]) -> list[str]:
    recogniser = load_recogniser(home)
    options = DecodeOptions(beam_size=1, language="de")
    found = []
    for path in audio:
        feats = features_of_sherpa(
            soundfile.read(path, dtype="float32")[0], recogniser.config
        ).unsqueeze(0)
        nbests = decode(
            recogniser.model.eval(), feats, torch.tensor([feats.size(1)]), ["attention"], options
        )
        found.append(recogniser.tokenizer.detokenize(nbests["attention"][0][0].tokens))
    return found


def test_sherpa_onnx_recognises_the_same_text(home: Path, capsys: pytest.CaptureFixture) -> None:
    export(export_onnx, "--output_dir", "onnx", "--int8_tolerance", "100")
    said = capsys.readouterr()
    assert "3 of 3 utterances as the checkpoint decodes them" in said.out
    assert (
        "only for sherpa-onnx, without streaming: WeNet's runtime starts the decoder with sos alone"
        in said.out
    )
    recogniser = sherpa_onnx.OfflineRecognizer.from_whisper(
        **{
            part: str(home / f"onnx/offline/whisper-{part}.onnx") for part in ("encoder", "decoder")
        },
        tokens=str(home / "onnx/offline/tokens.txt"),
        language="de",
    )
    audio = sorted(home.glob("?.wav"))
    found = []
    for path in audio:
        stream = recogniser.create_stream()
        samples, rate = soundfile.read(path, dtype="float32")
        stream.accept_waveform(rate, samples)
        recogniser.decode_stream(stream)
        found.append(stream.result.text.strip())
    assert found == texts_of_checkpoint(home, audio)
    assert len(set(found)) == 3
    assert all(found)


@pytest.mark.third
@pytest.mark.parametrize("pads", [False, True])
def test_an_export_has_the_table_of_positions_of_its_model_and_computes_those_after_it(
    home: Path, capsys: pytest.CaptureFixture, pads: bool
) -> None:
    """Published tables are rounded. Features that are padded to 30 s are longer than the table,
    because zeros follow them.
    """
    values = yaml.safe_load(Path("train.yaml").read_text(encoding="utf-8"))
    values["dataset_conf"]["log_mel_spectrogram_conf"]["pad_or_trim"] = pads
    Path("train.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    weights = torch.load("final.pt")
    torch.manual_seed(1)
    weights["encoder.embed.pos_enc.pe"] += 0.1 * torch.randn(1, 1500, 1)
    torch.save(weights, "final.pt")
    export(export_onnx, "--output_dir", "onnx", "--int8_tolerance", "100")
    assert "3 of 3 utterances as the checkpoint decodes them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        (
            export_onnx,
            ("--output_dir", "x", "--runtimes", "wenet"),
            "WeNet's runtime starts the decoder with sos alone",
        ),
        (
            export_onnx,
            ("--output_dir", "x", "--chunk_size", "8"),
            "--chunk_size 8: a whisper does not stream",
        ),
        (
            export_jit,
            ("--output_file", "x/final.zip"),
            r"export it by export_onnx.py \(in a recipe --onnx true\) for sherpa-onnx",
        ),
    ],
)
def test_what_runtimes_cannot_do_is_refused(
    home: Path, tool: Any, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        export(tool, *options)
    assert not (home / "x").exists()


def test_a_recipe_exports_what_the_runtimes_run(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(export_jit, "--output_file", "x/final.zip", "--if_possible")
    assert capsys.readouterr().err.startswith("no x/final.zip: WeNet's runtime starts the decoder")
    assert not (home / "x").exists()
