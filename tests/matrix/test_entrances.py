"""Entrances x recordings: a recording has one text, whichever entrance hears it.

A small model is trained on digits of one speaker, in noise and with quiet around them. Then one
sentence of him is changed in every way that recordings differ in, and each entrance hears each of
them. `equal`: the text is that of `transcribe` from Python, and the digits that were said. Where a
model of this size cannot hear them, all entrances still agree: `agree`. `as it lies`: recognize.py
decodes a file as it lies, also one that is longer than those of the training, so its text may be
another one. With `--all` every recording is heard, by a model that was trained for longer; in every
change one recording of each kind. The table is printed: `pytest -s --all tests/matrix`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import jiwer
import numpy as np
import pytest
import soundfile
import torch

import wenet_uio
from tests.support import preloaded
from tests.support.serve.browser import Visitor, chromium, program
from tests.support.serve.clients import START, openai_client, sentences, served, speak
from tests.support.serve.trained_digits import RATE, WORDS, fit, voice, write_untrained
from wenet_uio.dataset.chain.waveform import resample

PAGE = Path(__file__).parents[2] / "docs/concepts/one-text.md"
ROOT = Path(__file__).parents[2]
DIGITS = (3, 1, 4, 2)
TEXT = " ".join(WORDS[digit] for digit in DIGITS)
LONG = "as it lies"
OF_EACH_KIND = ("quiet 5, noise -60", "a click", "2 channels", "8000 Hz", "mp3", "0.05 s")
"""Recordings of every change."""


def sentence(recordings: Path, digits: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Digits with short pauses, from -1 to 1."""
    parts = []
    for digit in digits:
        said = voice(recordings, digit, random)
        parts += [0.5 * said / np.abs(said).max(), np.zeros(int(random.uniform(0.05, 0.2) * RATE))]
    return np.concatenate(parts[:-1])


def around(samples: np.ndarray, quiet: float, level: float | None = None) -> np.ndarray:
    """Samples with `quiet` seconds on both sides, and noise of `level` dB everywhere."""
    edge = np.zeros(round(quiet * RATE))
    samples = np.concatenate((edge, samples, edge))
    if level is None:
        return samples
    return samples + np.random.default_rng(5).normal(0, 10 ** (level / 20), len(samples))


def sentences_of_training(count: int = 40) -> list[tuple[int, ...]]:
    """The digits of each sentence that the model is trained on."""
    random = np.random.default_rng(1)
    return [DIGITS, *(tuple(random.permutation(10)[:4]) for _ in range(count - 1))]


@pytest.fixture(scope="module")
def every(pytestconfig) -> bool:
    """Whether every recording is heard."""
    return pytestconfig.getoption("--all")


@pytest.fixture(scope="module")
def model(corpora, every, tmp_path_factory):
    """Folder of a model that has heard quiet and noise."""
    folder = tmp_path_factory.mktemp("sturdy") / "model"
    random = np.random.default_rng(2)
    texts = sentences_of_training(40 if every else 12)
    spoken = [
        around(
            sentence(corpora / "fsdd/recordings", digits, random),
            quiet=0.8,
            level=float(random.uniform(-75, -26)) if number % 4 else None,
        )
        for number, digits in enumerate(texts)
    ]
    steps = 450 if every else 150
    untrained = write_untrained(folder)
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    torch.manual_seed(1)
    fit(untrained, [torch.from_numpy(each * 32768).float() for each in spoken], texts, steps)
    torch.save(untrained.state_dict(), folder / "final.pt")
    return folder


@pytest.fixture(scope="module")
def recordings(corpora, every, tmp_path_factory):
    """{name: path}"""
    folder = tmp_path_factory.mktemp("recordings")
    random = np.random.default_rng(2)
    clean = sentence(corpora / "fsdd/recordings", DIGITS, random)
    usual = around(clean, 0.2, -60)
    paths: dict[str, Path] = {}

    def write(
        name: str, samples: np.ndarray, rate: int = RATE, suffix: str = "wav", **how: str
    ) -> None:
        paths[name] = folder / f"{name.replace(' ', '_')}.{suffix}"
        soundfile.write(paths[name], samples.clip(-1, 1), rate, **how)

    for quiet in (0.0, 0.3, 1.0, 5.0):
        for level in (None, -60, -50, -40):
            noise = "no noise" if level is None else f"noise {level}"
            write(f"quiet {quiet:g}, {noise}", around(clean, quiet, level))

    click = around(clean, 1.0, -60)
    click[RATE // 2 : RATE // 2 + 80] = 0.8
    write("a click", click)
    for channels in (2, 6):
        write(f"{channels} channels", np.repeat(usual[:, None], channels, axis=1))
    for rate in (8000, 22050, 44100, 48000):
        other = resample(torch.from_numpy(usual).float(), RATE, rate).numpy()
        write(f"{rate} Hz", other, rate)
    for suffix, how in (
        ("flac", {}),
        ("mp3", {}),
        ("ogg", {}),
        ("aiff", {}),
        ("w64", {"format": "W64"}),
        ("float.wav", {"format": "WAV", "subtype": "FLOAT"}),
    ):
        write(suffix, usual, RATE, suffix, **how)
    write("0.05 s", usual[RATE // 2 : RATE // 2 + RATE // 20])
    write("one word", around(sentence(corpora / "fsdd/recordings", (1,), random), 0.05, -60))
    write("60 s", np.tile(around(clean, 1.5, -60), 1 + 60 * RATE // (len(clean) + 3 * RATE)))
    return paths if every else {name: paths[name] for name in OF_EACH_KIND}


def command(module: str, *arguments: object) -> str:
    """The standard output of a command."""
    done = preloaded.run(["-m", f"wenet_uio.bin.{module}", *arguments], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_recognize(model: Path, paths: dict[str, Path], folder: Path) -> dict[str, str]:
    command(
        *("recognize", "--config", model / "train.yaml", "--checkpoint", model / "final.pt"),
        *("--test_data", folder / "data.list", "--modes", "attention_rescoring"),
        *("--result_dir", folder, "--device", "cpu"),
    )
    texts = {}
    for line in (folder / "attention_rescoring/text").read_text().splitlines():
        key, *words = line.split()
        texts[key] = " ".join(words)
    return {name: texts.get(str(number), "") for number, name in enumerate(paths)}


def by_transcribe(model: Path, paths: dict[str, Path], folder: Path) -> dict[str, str]:
    output = command(
        "transcribe", "--model", model, "--format", "json", "--device", "cpu", *paths.values()
    )
    texts = [
        " ".join(passage["text"] for passage in json.loads(line)["passages"])
        for line in output.splitlines()
    ]
    return dict(zip(paths, texts, strict=True))


def by_python(
    recogniser: wenet_uio.SpeechRecogniser, paths: dict[str, Path], detector: str = "auto"
) -> dict[str, str]:
    results = recogniser.transcribe(list(paths.values()), detector=detector)
    return dict(zip(paths, [result.text for result in results], strict=True))


def mono(path: Path) -> tuple[np.ndarray, int]:
    samples, rate = soundfile.read(path, always_2d=True)
    return (samples[:, 0] * 32768).clip(-32768, 32767).round().astype(np.int16), rate


def by_stream(
    recogniser: wenet_uio.SpeechRecogniser, paths: dict[str, Path], detector: str = "auto"
) -> dict[str, str]:
    texts = {}
    for name, path in paths.items():
        samples, rate = mono(path)
        stream = recogniser.stream(sample_rate=rate, detector=detector)
        for start in range(0, len(samples), rate // 10):
            stream.accept(samples[start : start + rate // 10])
        texts[name] = stream.finish().text
    return texts


def by_http(url: str, paths: dict[str, Path]) -> dict[str, str]:
    client = openai_client(url)
    return {
        name: client.audio.transcriptions.create(model="any", file=path).text
        for name, path in paths.items()
    }


def by_socket(url: str, paths: dict[str, Path]) -> dict[str, str]:
    texts = {}
    for name, path in paths.items():
        samples, rate = mono(path)
        received = asyncio.run(speak(url, samples, {**START, "sample_rate": rate}))
        texts[name] = " ".join(filter(None, sentences(received)))
    return texts


def by_page(url: str, paths: dict[str, Path]) -> dict[str, str]:
    with chromium() as browser:
        visitor = Visitor(browser)
        page = visitor.visit(url)
        page.locator("#file").set_input_files([str(path) for path in paths.values()])
        done = page.locator(".recording .progress", has_text=re.compile(r"^(\d|No speech)"))
        done.nth(len(paths) - 1).wait_for()
        shown = {
            recording.locator("h2").inner_text(): " ".join(
                recording.locator(".segment p").all_text_contents()
            )
            for recording in page.locator(".recording").all()
        }
        visitor.leave()
    return {name: shown[path.name] for name, path in paths.items()}


@pytest.fixture(scope="module")
def texts_of_entrances(model, recordings, tmp_path_factory):
    """{entrance: {recording: text}}"""
    folder = tmp_path_factory.mktemp("entrances")
    recogniser = wenet_uio.load_model(model, device="cpu")
    lines = [
        {"key": str(number), "wav": str(path), "txt": TEXT}
        for number, path in enumerate(recordings.values())
    ]
    (folder / "data.list").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    inputs = ("--config", model / "train.yaml", "--checkpoint", model / "final.pt")
    inputs += ("--check_data", folder / "data.list", "--num_check", 2)
    command("export_jit", *inputs, "--output_file", model / "final.zip")
    command("export_onnx", *inputs, "--output_dir", model / "onnx")
    command("export_onnx", *inputs, "--output_dir", model / "onnx", "--runtimes", "streams")
    streams = wenet_uio.load_model(model / "onnx/streams")
    entrances: dict[str, Callable[[], dict[str, str]]] = {
        "transcribe": lambda: by_python(recogniser, recordings),
        "transcribe.py": lambda: by_transcribe(model, recordings, folder),
        "recognize.py": lambda: by_recognize(model, recordings, folder),
        "stream": lambda: by_stream(recogniser, recordings),
        "final.zip": lambda: by_python(wenet_uio.load_model(model / "final.zip"), recordings),
        "by levels": lambda: by_python(recogniser, recordings, "energy"),
        "stream by levels": lambda: by_stream(recogniser, recordings, "energy"),
        "ONNX": lambda: by_python(wenet_uio.load_model(model / "onnx/offline"), recordings),
        "streams": lambda: by_python(streams, recordings),
        "stream of streams": lambda: by_stream(streams, recordings),
        "streams by levels": lambda: by_stream(streams, recordings, "energy"),
    }
    texts = {name: hear() for name, hear in entrances.items()}
    with served(recogniser) as home:
        texts["HTTP"] = by_http(home.url, recordings)
        texts["WebSocket"] = by_socket(home.socket_url, recordings)
        if program():
            texts["page"] = by_page(home.url, recordings)
    with served(streams) as home:
        texts["HTTP of streams"] = by_http(home.url, recordings)
        texts["WebSocket of streams"] = by_socket(home.socket_url, recordings)
    return texts


SIDES = (0, 1, 0, 1, 1, 0)
"""Channel of each turn of a call."""


@pytest.fixture(scope="module")
def call(corpora, tmp_path_factory):
    """Path of a call: two speakers say sentences of the training in turns, each on a channel, with
    noise on both.
    """
    random = np.random.default_rng(6)
    parts = []
    for channel, digits in zip(SIDES, sentences_of_training(), strict=False):
        turn = sentence(corpora / "fsdd/recordings", digits, random)
        both = np.zeros((len(turn) + RATE, 2))
        both[RATE // 2 : RATE // 2 + len(turn), channel] = turn
        parts.append(both)
    samples = np.concatenate(parts)
    samples += np.random.default_rng(7).normal(0, 1e-3, samples.shape)
    path = tmp_path_factory.mktemp("call") / "call.wav"
    soundfile.write(path, samples.clip(-1, 1), RATE)
    return path


def test_both_speakers_of_a_call_are_heard_and_named_by_every_entrance(model, call, every):
    recogniser = wenet_uio.load_model(model, device="cpu")
    said_by = zip(SIDES, sentences_of_training(), strict=False)
    turns = groupby(said_by, key=lambda turn: ("left", "right")[turn[0]])
    expected = " ".join(
        f"[{name}] " + " ".join(WORDS[digit] for _, digits in said for digit in digits)
        for name, said in turns
    )
    lines = command("transcribe", "--model", model, "--device", "cpu", call).splitlines()
    with served(recogniser) as home:
        texts = {
            "transcribe": by_python(recogniser, {"call": call})["call"],
            "by levels": by_python(recogniser, {"call": call}, "energy")["call"],
            "transcribe.py": re.sub(r"(\[\w+\])(( \w+)+) \1", r"\1\2", " ".join(lines)),
            "HTTP": by_http(home.url, {"call": call})["call"],
        }
    measures = {name: jiwer.process_words(expected, text) for name, text in texts.items()}
    wrong = {
        name: errors.substitutions + errors.deletions + errors.insertions
        for name, errors in measures.items()
    }
    print(f"\n{wrong} of {len(expected.split())} words are wrong")
    assert texts == dict.fromkeys(texts, texts["transcribe"])
    # The model is trained for a minute, and the last bits of features decide about a word.
    assert wrong["transcribe"] <= 1 or not every


@pytest.mark.all
def test_white_noise_has_no_words_at_any_entrance(model, tmp_path):
    recogniser = wenet_uio.load_model(model, device="cpu")
    paths: dict[str, Path] = {}
    for level in (-70, -60, -50, -40, -30, -20):
        noise = np.random.default_rng(level + 100).normal(0, 10 ** (level / 20), 6 * RATE)
        paths[f"{level} dB"] = tmp_path / f"{-level}.wav"
        soundfile.write(paths[f"{level} dB"], noise.clip(-1, 1), RATE)
    with served(recogniser) as home:
        texts = {
            "transcribe": by_python(recogniser, paths),
            "by levels": by_python(recogniser, paths, "energy"),
            "stream": by_stream(recogniser, paths),
            "stream by levels": by_stream(recogniser, paths, "energy"),
            "transcribe.py": by_transcribe(model, paths, tmp_path),
            "HTTP": by_http(home.url, paths),
            "WebSocket": by_socket(home.socket_url, paths),
        }
    assert texts == dict.fromkeys(texts, dict.fromkeys(paths, ""))


def cell(name: str, entrance: str, text: str, expected: str) -> str:
    """What a cell of the table says."""
    if name == "60 s" and entrance == "recognize.py":
        return LONG
    if text != expected:
        return f"OTHER: {text}, not {expected}"
    return "equal" if TEXT in text else "agree"


def test_every_entrance_gives_the_same_text(texts_of_entrances, every):
    expected = texts_of_entrances["transcribe"]
    table = {
        name: [
            cell(name, entrance, texts[name], expected[name])
            for entrance, texts in texts_of_entrances.items()
        ]
        for name in expected
    }
    widths = [
        max(map(len, column))
        for column in zip(list(texts_of_entrances), *table.values(), strict=True)
    ]
    lines = [
        f"{name:22}"
        + "  ".join(f"{value:{width}}" for value, width in zip(row, widths, strict=True))
        for name, row in {"": list(texts_of_entrances), **table}.items()
    ]
    cells = [value for row in table.values() for value in row]
    summary = f"{len(cells)} cells: " + ", ".join(
        f"{cells.count(value)} {value}" for value in sorted(set(cells))
    )
    printed = "\n".join([*(line.rstrip() for line in lines), "", summary])
    print(f"\n{printed}")
    assert set(cells) <= {"equal", "agree", LONG}
    assert cells.count("agree") <= 4 * len(texts_of_entrances)

    page = PAGE.read_text(encoding="utf-8")
    assert f"{len(cells)} cells" in page or not program() or not every
    assert all(f"    {name:22}" in page for name in table)
    assert f"    {lines[0].rstrip()}" in page
