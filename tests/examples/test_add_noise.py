"""The noised test set of the recipe voices."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from examples.voices.s0.local import add_noise
from wenet_uio.text.table import read_table

RATE = 16000


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A part of 12 utterances of different lengths and levels; the first is near full scale."""
    folder = tmp_path / "test"
    folder.mkdir()
    keys = [f"utt{number}" for number in range(12)]
    for number, key in enumerate(keys):
        speech = np.random.default_rng(number).uniform(-1, 1, 4000 + 500 * number) * 0.95**number
        soundfile.write(folder / f"{key}.wav", speech, RATE)
    (folder / "wav.scp").write_text("".join(f"{key} {folder}/{key}.wav\n" for key in keys))
    (folder / "text").write_text("".join(f"{key} one two\n" for key in keys))
    (folder / "utt2lang").write_text("".join(f"{key} en\n" for key in keys))
    return folder


def write_noisy(clean: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    monkeypatch.setattr(sys, "argv", ["add_noise.py", str(clean), str(clean / "wav.scp"), str(out)])
    add_noise.main()
    assert (out / "text").read_text() == (clean / "text").read_text()
    return {key: soundfile.read(path)[0] for key, path in read_table(out / "wav.scp").items()}


def test_the_noised_set_has_the_stated_ratios_and_each_call_writes_the_same_audio(
    clean, tmp_path, monkeypatch
) -> None:
    noisy = write_noisy(clean, tmp_path / "noisy", monkeypatch)
    again = write_noisy(clean, tmp_path / "again", monkeypatch)
    ratios = set()
    for key, path in read_table(clean / "wav.scp").items():
        assert np.array_equal(noisy[key], again[key])
        speech = soundfile.read(path)[0]
        assert len(noisy[key]) == len(speech)
        assert np.abs(noisy[key]).max() < 1
        # The noise is what is left without the share of the speech, whose level may have been
        # lowered.
        level = noisy[key] @ speech / (speech @ speech)
        noise = noisy[key] - level * speech
        ratio = 10 * np.log10((level**2 * (speech @ speech)) / (noise @ noise))
        ratios.add(min(add_noise.RATIOS, key=lambda stated, found=ratio: abs(stated - found)))
        assert min(abs(stated - ratio) for stated in add_noise.RATIOS) < 1
    assert ratios == set(add_noise.RATIOS)
