"""The utterances of all cells: short tones in two sets, whose text is their pitch."""

from __future__ import annotations

from pathlib import Path

from tests.support.train.training_corpus import write_tone
from wenet_uio.dataset.formats.data_list import RawLine

TRAIN, CV = 20, 10
UNITS = ("<blank>", "<unk>", "a", "b", "c", "<sos/eos>")


def speak(folder: Path, name: str, count: int) -> list[RawLine]:
    """Write tones of 0.35 to 0.5 s to `folder`, and return the lines of their raw list."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        pitch = number % 3
        path = folder / f"{name}{number:02d}.wav"
        write_tone(path, pitch, 0.35 + 0.02 * (number % 7))
        lines.append(RawLine(path.stem, str(path), "abc"[pitch] * 2))

    return lines


def write_units(path: Path) -> None:
    path.write_text("".join(f"{unit} {number}\n" for number, unit in enumerate(UNITS)))
