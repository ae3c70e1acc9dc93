"""A paraformer exported to ONNX gives in sherpa-onnx the texts that it gives here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import sherpa_onnx
import soundfile
import torch
import yaml

from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.base.cli import run
from wenet_uio.bin import export_jit, export_onnx
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import load_recogniser

RATE, BINS = 8000, 20
GAIN = 500
"""Factor of the loudness: sherpa-onnx adds noise, to which a model with random weights would react
in quieter audio."""
WORDS = [
    f"{tens}{ones}"
    for tens in ("", "twenty-", "thirty-", "forty-")
    for ones in ("one", "two", "three", "four")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """Folder with train.yaml, final.pt with random weights, and data.list of six recordings of some
    digits each.
    """
    folder = tmp_path_factory.mktemp("paraformer")
    units = ["<blank>", "<sos>", "<eos>", *WORDS, "<unk>"]
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    config = tiny_paraformer(
        output_dim=len(units),
        tokenizer_conf={
            "symbol_table_path": "units.txt",
            "split_with_space": True,
            "special_tokens": {"<sos>": 1, "<eos>": 2},
        },
        dataset_conf={
            "resample_conf": {"resample_rate": RATE},
            "fbank_conf": {"num_mel_bins": BINS, "window_type": "hamming"},
        },
    )
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    lines = []
    for number in range(6):
        names = [
            f"fsdd/recordings/{(number + more) % 10}_george_{more}.wav"
            for more in range(number + 1)
        ]
        samples = GAIN * numpy.concatenate(
            [soundfile.read(corpora / name, dtype="float32")[0] for name in names]
        )
        soundfile.write(folder / f"{number}.wav", samples, RATE, subtype="FLOAT")
        lines.append(
            json.dumps({"key": str(number), "wav": str(folder / f"{number}.wav"), "txt": ""})
        )
    (folder / "data.list").write_text("\n".join(lines) + "\n")
    write_weights(folder)
    return folder


def write_weights(folder: Path) -> None:
    """Random weights, with large differences between tokens and none of the labels that are no
    text.
    """
    torch.manual_seed(4)
    model: Any = build_model(load_config(folder / "train.yaml"))
    torch.nn.init.normal_(model.decoder.output_layer.weight)
    model.decoder.output_layer.bias.data[:3] = -100.0
    torch.save(model.state_dict(), folder / "final.pt")


def call(tool: Any, folder: Path, *more: object) -> None:
    files = ("--config", folder / "train.yaml", "--checkpoint", folder / "final.pt")
    tool.main([*map(str, (*files, "--check_data", folder / "data.list", *more))])


def ours(folder: Path) -> dict[str, str]:
    """{key: text} of recognition here."""
    from wenet_uio.dataset.dataset import build_loader

    recogniser = load_recogniser(folder)
    loader = build_loader(
        str(folder / "data.list"), "raw", recogniser.config, recogniser.tokenizer, training=False
    )
    recogniser.model.eval()
    return {
        key: recogniser.tokenizer.detokenize(nbest[0].tokens)
        for batch in loader
        for key, nbest in zip(
            batch.keys,
            decode(
                recogniser.model,
                batch.feats,
                batch.feats_lengths,
                ["paraformer_greedy_search"],
                DecodeOptions(),
            ).popitem()[1],
            strict=True,
        )
    }


def theirs(folder: Path, keys: list[str]) -> dict[str, str]:
    """{key: text} of sherpa-onnx, which gets all recordings as one batch."""
    recognizer = sherpa_onnx.OfflineRecognizer.from_paraformer(
        paraformer=str(folder / "model.onnx"),
        tokens=str(folder / "tokens.txt"),
        sample_rate=RATE,
        feature_dim=BINS,
    )
    streams = [recognizer.create_stream() for _ in keys]
    for stream, key in zip(streams, keys, strict=True):
        samples, rate = soundfile.read(folder.parents[1] / f"{key}.wav", dtype="float32")
        stream.accept_waveform(rate, samples)
    recognizer.decode_streams(streams)
    return {key: stream.result.text.strip() for key, stream in zip(keys, streams, strict=True)}


@pytest.mark.all
def test_sherpa_onnx_gives_the_same_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(export_onnx, folder, "--output_dir", folder / "onnx")
    said = capsys.readouterr()
    assert said.err == ""
    assert "offline/model.onnx: 6 of 6 utterances as the checkpoint decodes them" in said.out
    expected = ours(folder)
    assert len(set(expected.values())) == 6
    texts: dict[str, str] = {}
    # sherpa-onnx adds random noise, which decides between two units of equal probability
    for _ in range(3):
        again = theirs(folder / "onnx/offline", list(expected))
        texts |= {key: text for key, text in again.items() if texts.get(key) != expected[key]}
    assert texts == expected


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        (export_onnx, ("--runtimes", "wenet"), "a paraformer is exported for sherpa-onnx only"),
        (
            export_onnx,
            ("--chunk_size", 4),
            "--chunk_size 4: the memory of a SANM encoder keeps nothing between chunks",
        ),
        (
            export_jit,
            ("--output_file", "final.zip"),
            "a paraformer is exported for sherpa-onnx only",
        ),
    ],
)
def test_other_exports_are_refused_in_one_line(
    folder: Path,
    tool: Any,
    options: tuple[object, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = () if tool is export_jit else ("--output_dir", folder / "refused")
    with pytest.raises(SystemExit):
        run(lambda: call(tool, folder, *options, *more))
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
    assert not (folder / "refused").exists()
