"""Models x quiet x entrances: quiet around speech changes no words, however much the training had.

Three small models are trained on digits of one speaker: cut close to the words (tight), with some
quiet of a room (usual), with a second of zeros (padded). Each says in its train.yaml how much it has
heard. Then quiet of every length and level is put before, behind and around sentences of its own
kind, and every entrance hears them. A cell is the error rate less that without more quiet, in
points; none may be above ONE_POINT. `pytest -s --all tests/matrix/test_quiet.py` prints the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jiwer
import numpy as np
import pytest
import soundfile
import torch
import yaml

import wenet_uio
from tests.support import preloaded
from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.trained_digits import RATE, WORDS, fit, voice, write_untrained

ROOT = Path(__file__).parents[2]
ONE_POINT = 1.0
KINDS = ("tight", "usual", "padded")
SECONDS = (0.05, 0.3, 1.0, 5.0)
LEVELS = (None, -80, -60, -50)
"""dB of full scale; None: zeros."""
SIDES = ("before", "behind", "both")


class Quiet(NamedTuple):
    """Quiet that is put around a recording."""

    seconds: float
    level: int | None
    side: str

    def __str__(self) -> str:
        level = "zeros" if self.level is None else f"{self.level} dB"
        return f"{self.seconds:g} s, {level}, {self.side}"

    def around(self, samples: np.ndarray, seed: int) -> np.ndarray:
        """Put it around samples."""
        return np.concatenate(
            (
                made(self.seconds * (self.side != "behind"), self.level, seed),
                samples,
                made(self.seconds * (self.side != "before"), self.level, seed + 1),
            )
        )


NONE = Quiet(0.0, None, "both")
EVERY = [Quiet(seconds, level, side) for seconds in SECONDS for level in LEVELS for side in SIDES]


def made(seconds: float, level: int | None, seed: int) -> np.ndarray:
    """Quiet of a level."""
    scale = 0.0 if level is None else 10 ** (level / 20)
    return scale * np.random.default_rng(seed).standard_normal(round(seconds * RATE))


def sentence(recordings: Path, digits: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Digits with short pauses, cut close to the first and to the last, from -1 to 1."""
    parts = []
    for digit in digits:
        said = voice(recordings, digit, random)
        loud = np.flatnonzero(np.abs(said) > 0.03 * np.abs(said).max())
        said = said[loud[0] : loud[-1] + 1]
        parts += [0.5 * said / np.abs(said).max(), made(random.uniform(0.05, 0.2), -70, len(parts))]
    return np.concatenate(parts[:-1])


def of_kind(kind: str, said: np.ndarray, seed: int) -> np.ndarray:
    """A sentence as the training of a model of this kind has it."""
    if kind == "tight":
        return said
    if kind == "padded":
        return Quiet(1.0, None, "both").around(said, seed)
    seconds = np.random.default_rng(seed).uniform(0.2, 0.6, 2)
    room = made(float(seconds[0]), -65, seed), said, made(float(seconds[1]), -65, seed + 1)
    return np.concatenate(room)


class Trained(NamedTuple):
    """A model, and sentences that it knows with their texts."""

    folder: Path
    spoken: list[np.ndarray]
    texts: list[str]


@pytest.fixture(scope="module")
def trained(corpora, tmp_path_factory) -> Callable[[str], Trained]:
    """Train a model of a kind."""

    def train(kind: str) -> Trained:
        folder = tmp_path_factory.mktemp(kind) / "model"
        random = np.random.default_rng(2)
        count = 25
        digits = [tuple(map(int, random.permutation(10)[:4])) for _ in range(count)]
        spoken = [
            of_kind(kind, sentence(corpora / "fsdd/recordings", each, random), 2 * number)
            for number, each in enumerate(digits)
        ]
        model = write_untrained(folder)
        torch.set_num_threads(1)  # the order of sums must not depend on the machine
        torch.manual_seed(1)
        waveforms = [torch.from_numpy(each * 32768).float() for each in spoken]
        fit(model, waveforms, digits, 450, margin=0.04)
        torch.save(model.state_dict(), folder / "final.pt")
        note_heard(folder, waveforms)
        return Trained(folder, spoken, [" ".join(WORDS[one] for one in each) for each in digits])

    return train


def note_heard(folder: Path, waveforms: list[torch.Tensor]) -> None:
    """Write what the training has heard to train.yaml, as a run does."""
    from wenet_uio.addons.listen.heard_quiet import quiet_around

    quiet = [quiet_around(waveform.numpy(), RATE) for waveform in waveforms]
    before, behind = np.median(np.array(quiet), axis=0).round(2).tolist()
    config = yaml.safe_load((folder / "train.yaml").read_text())
    config["dataset_conf"]["heard_quiet"] = {"before": before, "behind": behind}
    (folder / "train.yaml").write_text(yaml.safe_dump(config))


Hear = Callable[[list[np.ndarray]], list[str]]


def by_file(recogniser: wenet_uio.SpeechRecogniser, folder: Path) -> Hear:
    """Texts of one file after the other."""

    def hear(recordings: list[np.ndarray]) -> list[str]:
        texts = []
        for samples in recordings:
            soundfile.write(folder / "one.wav", samples.clip(-1, 1), RATE)
            texts.append(recogniser.transcribe(folder / "one.wav").text)
        return texts

    return hear


def by_list(recogniser: wenet_uio.SpeechRecogniser) -> Hear:
    """Texts of a list of recordings, which are decoded in batches."""

    def hear(recordings: list[np.ndarray]) -> list[str]:
        samples = [each.astype(np.float32) for each in recordings]
        results = recogniser.transcribe(samples=samples, sample_rate=RATE)
        assert isinstance(results, list)
        return [result.text for result in results]

    return hear


def by_stream(recogniser: wenet_uio.SpeechRecogniser) -> Hear:
    """Texts of live streams."""

    def hear(recordings: list[np.ndarray]) -> list[str]:
        texts = []
        for samples in recordings:
            stream = recogniser.stream(sample_rate=RATE)
            for start in range(0, len(samples), RATE // 10):
                stream.accept(samples[start : start + RATE // 10].astype(np.float32))
            texts.append(stream.finish().text)
        return texts

    return hear


def by_socket(url: str) -> Hear:
    """Texts of streams of the server."""

    def hear(recordings: list[np.ndarray]) -> list[str]:
        texts = []
        for samples in recordings:
            packets = (samples * 32768).clip(-32768, 32767).round().astype(np.int16)
            received = asyncio.run(speak(url, packets, {**START, "sample_rate": RATE}))
            texts.append(" ".join(filter(None, sentences(received))))
        return texts

    return hear


def rate(model: Trained, hear: Hear, quiet: Quiet) -> float:
    """The error rate of words in % with quiet around the sentences of a model."""
    recordings = [quiet.around(said, 1000 + number) for number, said in enumerate(model.spoken)]
    return 100 * float(jiwer.wer(model.texts, hear(recordings)))


def rows(
    model: Trained, entrances: dict[str, Hear], quiets: list[Quiet]
) -> Iterator[tuple[str, list[float]]]:
    """Yield the row without more quiet, in %, and then what each quiet adds, in points."""
    plain = {name: rate(model, hear, NONE) for name, hear in entrances.items()}
    yield "without, %", list(plain.values())
    for quiet in quiets:
        yield (
            str(quiet),
            [rate(model, hear, quiet) - plain[name] for name, hear in entrances.items()],
        )


def show(title: str, names: list[str], table: dict[str, list[float]]) -> None:
    """Print a table."""
    print(f"\n{title:24}" + "".join(f"{name:>12}" for name in names))
    for name, row in table.items():
        print(f"{name:24}" + "".join(f"{value:12.1f}" for value in row))


@pytest.mark.all
@pytest.mark.parametrize("kind", KINDS)
def test_quiet_changes_no_words_at_any_entrance(kind, trained, tmp_path) -> None:
    model = trained(kind)
    recogniser = wenet_uio.load_model(model.folder, device="cpu")
    inputs = ("--config", model.folder / "train.yaml", "--checkpoint", model.folder / "final.pt")
    done = preloaded.run(
        ["-m", "wenet_uio.bin.export_jit", *inputs, "--output_file", model.folder / "final.zip"],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    exported = wenet_uio.load_model(model.folder / "final.zip")
    with served(recogniser) as home:
        entrances = {
            "file": by_file(recogniser, tmp_path),
            "list": by_list(recogniser),
            "stream": by_stream(recogniser),
            "WebSocket": by_socket(home.socket_url),
            "final.zip": by_list(exported),
        }
        table = dict(rows(model, entrances, EVERY))
    show(kind, list(entrances), table)
    plain, *others = table.values()
    assert max(plain) < 5
    assert max(map(max, others)) <= ONE_POINT
