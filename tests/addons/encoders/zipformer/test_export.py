"""A Zipformer exported to ONNX gives in sherpa-onnx the texts that it gives here."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy
import pytest
import sherpa_onnx
import soundfile
import torch
import yaml

from tests.models.test_batches import ZIPFORMER
from wenet_uio.base.cli import run
from wenet_uio.bin import export_jit, export_onnx
from wenet_uio.config import load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.models import build_model
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.text.tokenizer import build_tokenizer

RATE, CHUNK, LEFT = 8000, 8, 2
UNITS = ["<blank>", *(f"w{number}" for number in range(20)), "<sos/eos>"]
WINDOW, SHIFT = 2 * CHUNK + 13, 2 * CHUNK
"""Feature frames of a chunk, and between two chunks."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """Folder with train.yaml, final.pt with random weights, and data.list of recordings of some
    digits each.
    """
    folder = tmp_path_factory.mktemp("zipformer")
    (folder / "units.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(UNITS))
    )
    conf = {**ZIPFORMER, "causal": True, "chunk_size": CHUNK, "downsampling_factor": [1, 4]}
    config = {
        "encoder": "zipformer",
        "encoder_conf": conf,
        "decoder": "transformer",
        "decoder_conf": {"num_blocks": 1, "linear_units": 8, "attention_heads": 2},
        "input_dim": 80,
        "output_dim": len(UNITS),
        "tokenizer_conf": {"symbol_table_path": "units.txt", "split_with_space": True},
        "dataset_conf": {
            "resample_conf": {"resample_rate": RATE},
            "fbank_conf": {"num_mel_bins": 80, "high_freq": -400, "snip_edges": False},
        },
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    lines = []
    for number in range(4):
        names = [
            f"fsdd/recordings/{(number + more) % 10}_george_{more}.wav"
            for more in range(number + 2)
        ]
        samples = numpy.concatenate(
            [soundfile.read(corpora / name, dtype="float32")[0] for name in names]
        )
        # sherpa-onnx drops an incomplete last chunk
        chunks = -(-(len(samples) // 80 - WINDOW) // SHIFT)
        samples = numpy.pad(samples, (0, (WINDOW + SHIFT * chunks + 1) * 80 - len(samples)))
        samples += 0.01 * numpy.random.default_rng(number).standard_normal(len(samples)).astype(
            numpy.float32
        )
        soundfile.write(folder / f"{number}.wav", samples, RATE, subtype="FLOAT")
        lines.append(
            json.dumps({"key": str(number), "wav": str(folder / f"{number}.wav"), "txt": ""})
        )
    (folder / "data.list").write_text("\n".join(lines) + "\n")
    write_weights(folder)
    return folder


@torch.no_grad()
def write_weights(folder: Path) -> None:
    """Random weights, with large differences between the labels of different frames."""
    torch.manual_seed(4)
    config = load_config(folder / "train.yaml")
    model: Any = build_model(config).eval()
    loader = build_loader(
        str(folder / "data.list"), "raw", config, build_tokenizer(config), training=False
    )
    frames = torch.cat(
        [model.encode(batch.feats, batch.feats_lengths)[0].flatten(0, 1) for batch in loader]
    )
    weight = torch.nn.init.normal_(model.ctc.ctc_lo.weight, std=1.0)
    torch.nn.init.zeros_(model.ctc.ctc_lo.bias).sub_(weight @ frames[frames.any(dim=1)].mean(dim=0))
    model.ctc.ctc_lo.bias[[0, -1]] = -100.0
    torch.save(model.state_dict(), folder / "final.pt")


def call(folder: Path, *more: object, tool: Any = export_onnx) -> None:
    files = ("--config", folder / "train.yaml", "--checkpoint", folder / "final.pt", "--check_data")
    tool.main([*map(str, (*files, folder / "data.list", *more))])


@pytest.fixture(scope="module")
def exported(folder: Path) -> list[str]:
    """The lines that the export into the folder onnx prints."""
    with redirect_stdout(io.StringIO()) as said:
        # Rounding to int8 changes the best labels of random weights.
        chunks = ("--chunk_size", CHUNK, "--num_decoding_left_chunks", LEFT)
        call(folder, "--output_dir", folder / "onnx", *chunks, "--int8_tolerance", 60)
    return said.getvalue().splitlines()


def ours(folder: Path, option: DecodeOptions) -> dict[str, str]:
    """{key: text} of recognition here."""
    recogniser = load_recogniser(folder)
    loader = build_loader(
        str(folder / "data.list"), "raw", recogniser.config, recogniser.tokenizer, training=False
    )
    recogniser.model.eval()
    texts = {}
    for batch in loader:
        found = decode(
            recogniser.model, batch.feats, batch.feats_lengths, ["ctc_greedy_search"], option
        )
        nbests = found["ctc_greedy_search"]
        texts |= {
            key: recogniser.tokenizer.detokenize(nbest[0].tokens)
            for key, nbest in zip(batch.keys, nbests, strict=True)
        }
    return texts


def recognised_text(recognizer: Any, path: Path, *, live: bool) -> str:
    stream = recognizer.create_stream()
    stream.accept_waveform(RATE, soundfile.read(path, dtype="float32")[0])
    if not live:
        recognizer.decode_stream(stream)
        return stream.result.text.strip()
    stream.input_finished()
    while recognizer.is_ready(stream):
        recognizer.decode_stream(stream)
    return recognizer.get_result(stream).strip()


@pytest.mark.all
@pytest.mark.usefixtures("exported")
def test_the_texts_of_sherpa_onnx_are_ours(folder: Path) -> None:
    files: dict[str, Any] = {"sample_rate": RATE, "feature_dim": 80}
    for way, create, option in (
        ("offline", sherpa_onnx.OfflineRecognizer.from_zipformer_ctc, DecodeOptions()),
        (
            "streaming",
            sherpa_onnx.OnlineRecognizer.from_zipformer2_ctc,
            DecodeOptions(decoding_chunk_size=CHUNK, num_decoding_left_chunks=LEFT),
        ),
    ):
        place = folder / "onnx" / way
        recognizer = create(
            model=str(place / "model.onnx"), tokens=str(place / "tokens.txt"), **files
        )
        expected = ours(folder, option)
        found = {
            key: recognised_text(recognizer, folder / f"{key}.wav", live=way == "streaming")
            for key in expected
        }
        assert len(set(expected.values())) == 4
        for key, text in found.items():
            # The frames after the last whole chunk are not decoded there, 3 at most
            if way == "streaming":
                assert text.split() == expected[key].split()[: len(text.split())]
                assert len(text.split()) >= len(expected[key].split()) - 3
            else:
                assert text == expected[key]


def test_every_file_is_checked_and_written(exported: list[str]) -> None:
    assert [line.split("/")[-2] for line in exported[:4]] == [
        "offline",
        "offline_int8",
        "streaming",
        "streaming_int8",
    ]
    assert all(
        "4 of 4 utterances as the checkpoint decodes them" in line for line in exported[:4:2]
    )
    assert exported[4:] == ["only for sherpa-onnx"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runtimes", "wenet"), "a zipformer is exported to ONNX for sherpa-onnx only"),
        (("--chunk_size", 6), "--chunk_size 6 is not a multiple of 4"),
        (
            ("--chunk_size", 8, "--num_decoding_left_chunks", 0),
            "a zipformer in sherpa-onnx needs 1 or more",
        ),
    ],
)
def test_other_exports_are_refused_in_one_line(
    folder: Path, options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(lambda: call(folder, *options, "--output_dir", folder / "refused"))
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
    assert not (folder / "refused").exists()


def test_torchscript_of_a_causal_model_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(lambda: call(folder, "--output_file", folder / "final.zip", tool=export_jit))
    said = capsys.readouterr().err
    assert "would not decode the last 60 ms of each utterance with a causal zipformer" in said
    assert not (folder / "final.zip").exists()
