"""export_onnx.py from checkpoint to checked files, and the texts of sherpa-onnx with these
files.
"""

from __future__ import annotations

import json
import math
import shutil
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess

import numpy
import pytest
import sherpa_onnx
import soundfile
import torch
import yaml

import wenet_uio
from tests.support import preloaded
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.text.table import read_table

CHUNK, LEFT = 16, 4
FIRST, SHIFT = 7 + 4 * (CHUNK - 1), 4 * CHUNK
"""Feature frames of the first chunk, and of every further chunk."""
GAIN = 500
"""Factor of the loudness of the audio. Offline, sherpa-onnx adds noise of one step of int16,
whatever its `dither` is; a model with random weights would react to this noise in quieter audio."""
FILES = ["ctc.onnx", "decoder.onnx", "encoder.onnx", "model.onnx", "tokens.txt"]
LETTERS = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "▁"]
WORDS = [
    f"{tens}{ones}"
    for tens in ("", "twenty-", "thirty-", "forty-")
    for ones in ("one", "two", "three", "four")
]


def call(tool: str, *arguments: object) -> CompletedProcess:
    return preloaded.run(["-m", f"wenet_uio.bin.{tool}", *arguments])


def write_list(folder: Path, utterances: dict[str, tuple[numpy.ndarray, int]]) -> None:
    with (folder / "data.list").open("w") as file:
        for key, (samples, rate) in utterances.items():
            soundfile.write(folder / f"{key}.wav", samples, rate, subtype="FLOAT")
            file.write(
                json.dumps({"key": key, "wav": str(folder / f"{key}.wav"), "txt": ""}) + "\n"
            )


def write_model(
    folder: Path, units: list[str], rate: int, *, words: bool, streaming: bool = True, seed: int = 0
) -> None:
    """train.yaml, units.txt, global_cmvn and random weights, with features as sherpa-onnx computes
    them.
    """
    symbols = ["<blank>", "<unk>", "<sos/eos>", *units]
    (folder / "units.txt").write_text(
        "".join(f"{symbol} {unit}\n" for unit, symbol in enumerate(symbols))
    )
    mean, spread = 9.0 + 2 * math.log(GAIN), 4.0  # similar to speech
    stats = {"mean_stat": [mean] * 40, "var_stat": [mean**2 + spread**2] * 40, "frame_num": 1}
    (folder / "global_cmvn").write_text(json.dumps(stats))
    encoder_conf = {"output_size": 32, "attention_heads": 2, "linear_units": 64, "num_blocks": 2}
    if streaming:
        encoder_conf |= {"causal": True, "cnn_module_kernel": 8, "cnn_module_norm": "layer_norm"}
        encoder_conf |= {"use_dynamic_chunk": True}
    config = {
        "encoder": "conformer",
        "encoder_conf": encoder_conf,
        "decoder": "bitransformer",
        "decoder_conf": {
            "attention_heads": 2,
            "linear_units": 64,
            "num_blocks": 1,
            "r_num_blocks": 1,
        },
        "model_conf": {"reverse_weight": 0.3},
        "tokenizer": "char",
        "tokenizer_conf": {
            "symbol_table_path": str(folder / "units.txt"),
            "split_with_space": words,
        },
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": str(folder / "global_cmvn"), "is_json_cmvn": True},
        "dataset_conf": {
            "resample_conf": {"resample_rate": rate},
            "fbank_conf": {"num_mel_bins": 40, "high_freq": -400, "snip_edges": False},
        },
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(seed)
    model = build_model(load_config(folder / "train.yaml"))
    # Large differences between frames: few ties, and long texts
    torch.nn.init.normal_(model.ctc.ctc_lo.weight)
    torch.save(model.state_dict(), folder / "final.pt")


def export(folder: Path, *more: object) -> CompletedProcess:
    return call(
        "export_onnx",
        *(
            "--config",
            folder / "train.yaml",
            "--checkpoint",
            folder / "final.pt",
            "--output_dir",
            folder / "onnx",
        ),
        *(
            "--check_data",
            folder / "data.list",
            "--num_check",
            3,
            "--num_decoding_left_chunks",
            LEFT,
            *more,
        ),
    )


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """A folder with a small model and a list of three utterances of noise."""
    random = numpy.random.default_rng(0)
    samples = {f"utt{i}": (0.1 * random.standard_normal(16000 + 3000 * i), 16000) for i in range(3)}
    write_list(tmp_path, samples)
    write_model(tmp_path, LETTERS, 16000, words=False)
    return tmp_path


def digits(corpora: Path):
    """FSDD: 8 kHz."""
    for path in sorted((corpora / "fsdd" / "recordings").glob("*_0.wav")):
        yield path.stem, path


def sentences(corpora: Path):
    """speechocean762: 16 kHz."""
    root = corpora / "speechocean762"
    for key, path in read_table(root / "test" / "wav.scp").items():
        yield key, root / path


def whole_chunks(samples: numpy.ndarray, rate: int) -> numpy.ndarray:
    """The samples, padded with silence to whole chunks, because sherpa-onnx drops an incomplete
    last chunk.

    sherpa-onnx also waits for one frame more than it needs. There is a frame every 10 ms
    (snip_edges is false).
    """
    shift = rate // 100
    chunks = max(0, -(-(len(samples) // shift - FIRST) // SHIFT)) + 1
    frames = FIRST + SHIFT * chunks + 1
    samples = numpy.pad(samples, (0, frames * shift - len(samples)))
    silence = numpy.random.default_rng(0).standard_normal(len(samples)) / 32768
    return (GAIN * (samples + silence)).astype(numpy.float32)


UTTERANCES = 10
CORPORA = {"fsdd": (digits, 8000, WORDS), "speechocean762": (sentences, 16000, LETTERS)}


@pytest.mark.all
@pytest.mark.parametrize("corpus", CORPORA)
def test_sherpa_onnx_gives_the_texts_of_recognize_py(corpora, tmp_path, corpus):
    find, rate, units = CORPORA[corpus]
    audio = {
        key: whole_chunks(*soundfile.read(path)) for key, path in islice(find(corpora), UTTERANCES)
    }
    write_list(tmp_path, {key: (samples, rate) for key, samples in audio.items()})
    write_model(tmp_path, units, rate, words=units is WORDS)
    exported = export(tmp_path, "--runtimes", "sherpa")
    assert exported.returncode == 0, exported.stderr
    assert exported.stderr == ""
    for way, chunks in (("offline", (-1, -1)), ("streaming", (CHUNK, LEFT))):
        recognized = call(
            "recognize",
            *(
                "--modes",
                "ctc_greedy_search",
                "--config",
                tmp_path / "train.yaml",
                "--result_dir",
                tmp_path / way,
            ),
            *(
                "--checkpoint",
                tmp_path / "final.pt",
                "--test_data",
                tmp_path / "data.list",
                "--device",
                "cpu",
            ),
            *(
                "--batch_size",
                1,
                "--decoding_chunk_size",
                chunks[0],
                "--num_decoding_left_chunks",
                chunks[1],
            ),
        )
        assert recognized.returncode == 0, recognized.stderr
        expected = read_table(tmp_path / way / "ctc_greedy_search" / "text")
        decode = sherpa_offline if way == "offline" else sherpa_streaming
        texts = {}
        # sherpa-onnx adds random noise, which decides between two units of equal probability
        for _ in range(3):
            left = {
                key: samples for key, samples in audio.items() if texts.get(key) != expected[key]
            }
            texts |= decode(tmp_path / "onnx" / way, left, rate)
        assert texts == expected
        # A model that ignores its input would give one text
        assert len(set(texts.values())) > UTTERANCES / 2


def sherpa_offline(folder: Path, audio: dict[str, numpy.ndarray], rate: int) -> dict[str, str]:
    recognizer = sherpa_onnx.OfflineRecognizer.from_wenet_ctc(
        model=str(folder / "model.onnx"),
        tokens=str(folder / "tokens.txt"),
        sample_rate=rate,
        feature_dim=40,
    )
    texts = {}
    for key, samples in audio.items():
        stream = recognizer.create_stream()
        stream.accept_waveform(rate, samples)
        recognizer.decode_stream(stream)
        texts[key] = stream.result.text.strip()
    return texts


def sherpa_streaming(folder: Path, audio: dict[str, numpy.ndarray], rate: int) -> dict[str, str]:
    recognizer = sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
        model=str(folder / "model.onnx"),
        tokens=str(folder / "tokens.txt"),
        chunk_size=CHUNK,
        num_left_chunks=LEFT,
        sample_rate=rate,
        feature_dim=40,
    )
    texts = {}
    for key, samples in audio.items():
        stream = recognizer.create_stream()
        for start in range(0, len(samples), rate // 4):  # in pieces, as from a microphone
            stream.accept_waveform(rate, samples[start : start + rate // 4])
            while recognizer.is_ready(stream):
                recognizer.decode_stream(stream)
        stream.input_finished()
        while recognizer.is_ready(stream):
            recognizer.decode_stream(stream)
        texts[key] = recognizer.get_result(stream).strip()
    return texts


def test_every_file_is_checked_and_written(noise):
    done = export(noise)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    for way, line in zip(
        ("offline", "offline_int8", "streaming", "streaming_int8"), lines[::2], strict=True
    ):
        assert sorted(path.name for path in (noise / "onnx" / way).iterdir()) == FILES
        assert f"onnx/{way}/encoder.onnx, ctc.onnx, decoder.onnx: " in line
        assert (
            " of 3 short beginnings as the checkpoint decodes them; largest difference of a "
            "log-probability" in line
        )


@pytest.mark.all
def test_files_of_two_exports_are_refused_and_one_export_replaces_another(noise):
    assert export(noise, "--runtimes", "wenet", "--chunk_size", 0).returncode == 0
    folder = noise / "onnx/offline"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "notes.txt").write_text("mine")
    (folder / "other.onnx").write_text("mine")
    (folder / "model.onnx").write_text("of an export for sherpa")
    done = export(noise, "--runtimes", "wenet", "--chunk_size", 0)
    assert done.returncode == 0
    assert "offline/model.onnx: of an earlier export, removed" in done.stderr
    assert sorted(path.name for path in folder.glob("*.onnx")) == [*FILES[:3], "other.onnx"]
    assert (folder / "notes.txt").read_text() == "mine"

    int8 = (noise / "onnx/offline_int8/encoder.onnx").read_bytes()
    (folder / "encoder.onnx").write_bytes(int8)
    with pytest.raises(ValueError, match="files of different exports .* such as float and int8"):
        wenet_uio.load_model(folder)

    write_model(noise, LETTERS, 16000, words=False, seed=1)
    assert export(noise, "--runtimes", "wenet", "--chunk_size", 0).returncode == 0
    (folder / "encoder.onnx").write_bytes(first["encoder.onnx"])
    with pytest.raises(ValueError, match=r"files of different exports .* or export again"):
        wenet_uio.load_model(folder)


@pytest.mark.all
def test_folders_of_an_older_export_beside_a_new_one_are_told_and_not_loaded_together(noise):
    """streaming/ of other weights stays, since this export asks for no streaming model."""
    assert export(noise, "--runtimes", "wenet").returncode == 0
    onnx = noise / "onnx"
    assert wenet_uio.load_model(onnx).modes  # four folders of one export

    again = export(noise, "--runtimes", "wenet", "--chunk_size", 0)
    told = (
        f"warning: {onnx}/streaming, {onnx}/streaming_int8: of an earlier export with {{}} weights, "
        "and not replaced; remove what is not needed\n"
    )
    assert (again.returncode, again.stderr) == (0, told.format("the same"))
    assert wenet_uio.load_model(onnx).modes

    write_model(noise, LETTERS, 16000, words=False, seed=1)
    newer = export(noise, "--runtimes", "wenet", "--chunk_size", 0)
    assert (newer.returncode, newer.stderr) == (0, told.format("other"))
    with pytest.raises(
        ValueError,
        match=r"onnx: folders of different models \(weights_id: offline \w{16}, streaming \w{16}, ",
    ):
        wenet_uio.load_model(onnx)
    assert wenet_uio.load_model(onnx / "offline").modes  # a folder that is named

    for name in ("streaming", "streaming_int8"):
        shutil.rmtree(onnx / name)
    assert wenet_uio.load_model(onnx).modes
    complete = export(noise, "--runtimes", "wenet")
    assert (complete.returncode, complete.stderr) == (0, "")


@pytest.mark.all
def test_an_older_folder_is_told_of_too_if_the_new_streaming_model_is_refused(noise):
    onnx = noise / "onnx"
    assert export(noise, "--runtimes", "sherpa").returncode == 0
    (onnx / "streaming" / "model.onnx").write_bytes(b"damaged")
    write_model(noise, LETTERS, 16000, words=False, seed=1, streaming=False)
    done = export(noise, "--runtimes", "sherpa")
    assert "no streaming model" in done.stdout
    assert f"{onnx}/streaming/model.onnx cannot be read" in done.stderr
    assert f"warning: {onnx}/streaming, {onnx}/streaming_int8: of an earlier export with other" in (
        done.stderr
    )


@pytest.mark.all
def test_folders_of_the_user_beside_an_export_are_not_told_of(noise):
    mine = noise / "onnx" / "streaming"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    done = export(noise, "--runtimes", "wenet", "--chunk_size", 0)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_beyond_the_tolerance_is_not_written(noise):
    done = export(noise, "--tolerance", 1e-12)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "not written: log-probabilities differ by more than 1e-12" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((noise).glob("onnx/**/*.onnx"))


def test_a_model_that_cannot_stream_is_exported_offline_and_the_reason_is_printed(noise):
    write_model(noise, LETTERS, 16000, words=False, streaming=False)
    reason = "this model's convolution sees future frames; train with causal: true"
    done = export(noise, "--runtimes", "sherpa")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"\nno streaming model: {reason}\n")
    assert sorted(path.name for path in (noise / "onnx").iterdir()) == ["offline", "offline_int8"]
    asked = export(noise, "--chunk_size", CHUNK)
    assert (asked.returncode, asked.stdout, asked.stderr) == (1, "", f"error: {reason}\n")


@pytest.mark.all
def test_an_export_for_streams_is_checked_whole_and_in_chunks_and_refused_if_none_can_be(noise):
    done = export(noise, "--runtimes", "streams")
    assert done.returncode == 0, done.stderr
    folders = [
        line.partition("/streams.onnx, ctc.onnx, decoder.onnx: 3 of 3 ")[0]
        for line in done.stdout.splitlines()[:2]
    ]
    assert folders == [f"{noise}/onnx/streams"] * 2
    assert done.stdout.count("/streams_int8/streams.onnx") == 2
    for name in ("streams", "streams_int8"):
        files = sorted(path.name for path in (noise / "onnx" / name).iterdir())
        assert files == ["ctc.onnx", "decoder.onnx", "streams.onnx"]
        recogniser = wenet_uio.load_model(noise / "onnx" / name)
        stream = recogniser.stream(sample_rate=16000)
        stream.accept(soundfile.read(noise / "utt0.wav")[0])
        assert stream.finish().seconds == 1

    for size in (0, -1):
        refused = export(noise, "--runtimes", "streams", "--chunk_size", size)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            f"error: --chunk_size: expected 1 or more encoder frames, found {size}\n"
        )
    write_model(noise, LETTERS, 16000, words=False, streaming=False)
    refused = export(noise, "--runtimes", "sherpa", "streams")
    assert refused.returncode == 1
    assert "sees future frames; train with causal: true" in refused.stderr
