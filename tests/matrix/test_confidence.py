"""Families x decode modes x entrances: the confidence of a word is a probability, or null.

A small random model of each family decodes in each of its modes. Every word has a confidence above
0, at most 1: the same in every batch and at every entrance.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml

import wenet_uio
from tests.support.ends.columns import BASE, FAMILY_KEYS, PREPARATIONS, joined
from tests.support.ends.rows import BINS
from tests.support.serve.clients import START, openai_client, served, speak
from tests.support.serve.trained_digits import SENTENCE, train_model
from tests.support.serve.trained_digits import WORDS as DIGITS
from wenet_uio.bin import convert_checkpoint, recognize
from wenet_uio.config import load_config
from wenet_uio.config.family import families
from wenet_uio.models import ASRModel, build_model
from wenet_uio.search.recogniser import load_recogniser

RATE = 16000
WITHOUT_CTC = "whisper without CTC"
SAID = 20
"""Tokens of the digits of the Whisper."""
USUAL = ("asr_model",)
"""Models of every change."""
MODELS = [
    pytest.param(name, marks=[] if name in USUAL else pytest.mark.all)
    for name in (*(family.name for family in families()), WITHOUT_CTC)
]
CONFIDENCES = dict[str, list[tuple[str, Any]]]
"""{name of a recording: its words and their confidences}."""


def write_model(folder: Path, name: str) -> Path:
    """Write the run of a random model whose text changes from frame to frame."""
    family = "whisper" if name == WITHOUT_CTC else name
    keys = joined(BASE, {"model": family}, FAMILY_KEYS[family])
    if name == WITHOUT_CTC:
        keys["model_conf"] = {"ctc_weight": 0.0}
    if keys["decoder"] is None:
        del keys["decoder_conf"]

    folder.mkdir(parents=True)
    units = ["<blank>", "<unk>", *"abcdefgh", "▁", "<sos/eos>"]
    lines = "".join(f"{unit} {number}\n" for number, unit in enumerate(units))
    (folder / "units.txt").write_text(lines, encoding="utf-8")
    if family in PREPARATIONS:
        PREPARATIONS[family](folder)
    (folder / "train.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")

    torch.manual_seed(3)
    model = build_model(load_config(folder / "train.yaml"))
    said = SAID if family == "whisper" else None  # no text has the other tokens
    for layer in ("ctc.ctc_lo", "decoder.output_layer", "joint.ffn_out", "decoder.embed.0"):
        weights = dict(model.named_parameters())
        if f"{layer}.weight" in weights and (layer != "decoder.embed.0" or said):
            for parameter in (f"{layer}.weight", f"{layer}.bias"):
                torch.nn.init.zeros_(weights.get(parameter, torch.zeros(1)))
            torch.nn.init.normal_(weights[f"{layer}.weight"][:said], std=1.0)
    torch.save(model.state_dict(), folder / "final.pt")
    return folder


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tones that change, of three lengths; the quiet around them is as short as what is kept of it."""
    folder = tmp_path_factory.mktemp("recordings")
    paths = {}
    for number, seconds in enumerate((0.5, 0.8, 0.4)):
        draw = np.random.default_rng(number)
        pitch = np.repeat(draw.uniform(200, 3000, 20), int(seconds * RATE / 20))
        samples = np.pad(0.3 * np.sin(2 * np.pi * np.cumsum(pitch) / RATE), int(0.15 * RATE))
        paths[str(number)] = folder / f"{number}.wav"
        soundfile.write(paths[str(number)], samples + draw.normal(0, 0.001, len(samples)), RATE)
    return paths


def words_of(result: Any) -> list[tuple[str, Any]]:
    """The words of a Transcript with their confidences."""
    return [(word.text, word.confidence) for word in result.words]


def assert_same(found: CONFIDENCES, expected: CONFIDENCES, tolerance: float = 1e-4) -> None:
    """The words are the same, and their confidences differ by rounding only."""
    for name, words in expected.items():
        assert [word for word, _ in found[name]] == [word for word, _ in words], name
        sure = [confidence for _, confidence in words]
        assert [confidence for _, confidence in found[name]] == pytest.approx(sure, abs=tolerance)


def written_by_recognize(run: Path, paths: dict[str, Path], mode: str, out: Path) -> CONFIDENCES:
    """The words of nbest.jsonl."""
    out.mkdir()
    lines = [{"key": key, "wav": str(path), "txt": "a"} for key, path in paths.items()]
    (out / "data.list").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    model = ["--config", str(run / "train.yaml"), "--checkpoint", str(run / "final.pt")]
    data = ["--test_data", str(out / "data.list"), "--result_dir", str(out), "--device", "cpu"]
    recognize.main([*model, *data, "--modes", mode, "--token_times"])
    written: CONFIDENCES = {}
    for line in (out / mode / "nbest.jsonl").read_text().splitlines():
        record = json.loads(line)
        words = record["hypotheses"][0]["words"]
        written[record["key"]] = [(word["word"], word["confidence"]) for word in words]
    return written


@pytest.mark.parametrize("name", MODELS)
def test_every_word_has_a_confidence_above_0_the_same_in_every_batch_and_entrance(
    name: str, recordings: dict[str, Path], tmp_path: Path
) -> None:
    run = write_model(tmp_path / "run", name)
    recogniser = wenet_uio.load_model(run, device="cpu")
    paths = list(recordings.values())
    words = 0
    for mode in recogniser.modes:
        together = recogniser.transcribe(paths, mode=mode, batch_size=3, detector="energy")
        expected = dict(zip(recordings, map(words_of, together), strict=True))
        for word, confidence in (pair for said in expected.values() for pair in said):
            assert 0 < confidence <= 1, (mode, word)
            words += 1

        alone = [recogniser.transcribe(path, mode=mode, detector="energy") for path in paths]
        assert_same(dict(zip(recordings, map(words_of, alone), strict=True)), expected)
        written = written_by_recognize(run, recordings, mode, tmp_path / mode)
        assert_same(written, expected, 2e-4)  # rounded to four digits
        for result in together:
            for segment in result.to_dict()["segments"]:
                assert all(0 < word["confidence"] <= 1 for word in segment["words"])

    assert words >= len(recordings)


def test_an_export_to_onnx_has_the_confidences_of_its_checkpoint(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import wenet_graphs
    from wenet_uio.export.chunks import OFFLINE

    run = write_model(tmp_path / "run", "asr_model")
    checkpoint = wenet_uio.load_model(run, device="cpu")
    (run / "onnx/offline").mkdir(parents=True)
    model = load_recogniser(run).model.eval()
    assert isinstance(model, ASRModel)
    graphs = wenet_graphs(model, BINS, OFFLINE)
    for file, graph in graphs.items():
        (run / "onnx/offline" / file).write_bytes(to_onnx(graph))

    exported = wenet_uio.load_model(run / "onnx")
    for mode in exported.modes:
        heard = [
            {
                key: words_of(model.transcribe(path, mode=mode, detector="energy"))
                for key, path in recordings.items()
            }
            for model in (checkpoint, exported)
        ]
        assert any(heard[0].values())
        assert_same(heard[1], heard[0], 1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "asr_model",
        *(pytest.param(name, marks=pytest.mark.all) for name in ("transducer", WITHOUT_CTC)),
    ],
)
def test_streams_and_the_server_give_the_confidences_of_transcribe(
    name: str, recordings: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "silero_vad", None)  # nobody speaks in the recordings
    recogniser = wenet_uio.load_model(write_model(tmp_path / "run", name), device="cpu")
    path = recordings["1"]
    samples, _ = soundfile.read(path, dtype="int16")
    expected = words_of(recogniser.transcribe(path))
    assert expected
    stream = recogniser.stream(sample_rate=RATE)
    stream.accept(samples)
    assert_same({"": words_of(stream.finish())}, {"": expected})

    with served(recogniser) as home:
        client = openai_client(home.url).audio.transcriptions
        answer: Any = client.create(
            model="any", file=path, response_format="verbose_json"
        ).to_dict()
        received = asyncio.run(speak(home.socket_url, samples, START))

    said = [message for message in received if message["type"] == "final_result"]
    for segments in (answer["segments"], [message["segment"] for message in said]):
        words = [word for segment in segments for word in segment["words"]]
        found = [(word["word"], word["confidence"]) for word in words]
        assert_same({"": found}, {"": expected})
    assert all(segment["avg_logprob"] < 0 for segment in answer["segments"])


@pytest.fixture(scope="module")
def digits(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model that was trained on digits, with digits.wav."""
    return train_model(corpora / "fsdd/recordings", tmp_path_factory.mktemp("digits") / "run")


@pytest.mark.all
def test_a_word_that_becomes_noise_is_less_sure_than_the_same_word_clean(digits: Path) -> None:
    """The decoder of this model is too small: it knows the few sentences of its training by heart."""
    recogniser = wenet_uio.load_model(digits, device="cpu")
    samples, rate = soundfile.read(digits / "digits.wav")
    compared = 0
    for mode in ("ctc_greedy_search", "ctc_prefix_beam_search"):
        clean: Any = recogniser.transcribe(samples=samples, sample_rate=rate, mode=mode).words
        assert [word.text for word in clean] == [DIGITS[digit] for digit in SENTENCE]
        for word in clean:
            begin, end = round((word.start - 0.1) * rate), round((word.start + 0.4) * rate)
            noise = np.random.default_rng(1).normal(0, samples[begin:end].std(), end - begin)
            for level in (0.01, 0.03, 0.06):
                noised = samples.copy()
                noised[begin:end] += level * noise
                heard: Any = recogniser.transcribe(samples=noised, sample_rate=rate, mode=mode)
                same = [other for other in heard.words if other.text == word.text]
                assert all(other.confidence < word.confidence for other in same), (mode, word)
                compared += len(same)
    assert compared >= 8  # a word is not heard any more in the loudest noise


@pytest.mark.all
def test_a_published_whisper_is_less_sure_of_words_in_noise(
    published_whisper: Path, corpora: Path, tmp_path: Path
) -> None:
    convert_checkpoint.main(
        ["--input", str(published_whisper / "tiny.en.pt"), "--output_dir", str(tmp_path / "tiny")]
    )
    recogniser = wenet_uio.load_model(tmp_path / "tiny", device="cpu")
    name = next((corpora / "voices/audio").glob("kathleen-arctic_a0001_*"))
    samples, rate = soundfile.read(name)
    noise = np.random.default_rng(1).normal(0, samples.std(), len(samples))
    means = []
    for level in (0.0, 0.2, 0.5):
        heard = recogniser.transcribe(
            samples=samples + level * noise, sample_rate=rate, beam_size=1, detector="energy"
        )
        sure = [confidence for _, confidence in words_of(heard)]
        assert sure, level
        assert all(0 < confidence <= 1 for confidence in sure)
        means.append(float(np.mean(sure)))
    assert means == sorted(means, reverse=True), means
    assert means[0] > 0.5
