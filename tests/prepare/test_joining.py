"""Utterances that are joined to longer ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.joining import Joining, join_utterances
from wenet_uio.prepare.kaldi_tables import read_utterances

RATE = 8000


def utterances(folder: Path, seconds: list[float], rate: int = RATE) -> list[RawLine]:
    """Utterances of a constant value each, 100, 200, …"""
    lines = []
    for place, length in enumerate(seconds):
        path = folder / f"u{place}.wav"
        soundfile.write(path, np.full(round(length * rate), 100 * (place + 1), np.int16), rate)
        lines.append(RawLine(f"u{place}", str(path), f"said {place}"))
    return lines


def test_each_utterance_is_a_part_once_and_audio_text_and_keys_agree(tmp_path: Path) -> None:
    lines = utterances(tmp_path, [0.3, 0.5, 0.2, 0.4, 3.0, 0.1, 0.6, 0.3] * 3)
    joined = join_utterances(lines, tmp_path / "out", Joining(2.0, (0.1, 0.2)), Executor(2))
    parts = [part.key for each in joined for part in each.parts]
    assert sorted(parts) == sorted(line.key for line in lines)
    assert parts != sorted(parts)
    assert 3 < len(joined) < len(lines)
    written = read_utterances(str(tmp_path / "out/wav.scp"), str(tmp_path / "out/text"))
    keys = [line.split() for line in (tmp_path / "out/joined").read_text().splitlines()]
    assert (
        [line.key for line in written]
        == [key for key, *_ in keys]
        == sorted(each.key for each in joined)
    )
    for line, (_, *parts) in zip(written, keys, strict=True):
        assert line.text == " ".join(f"said {part[1:]}" for part in parts)
        samples, rate = soundfile.read(line.wav, dtype="int16")
        assert rate == RATE
        assert len(samples) <= 2.0 * RATE or len(parts) == 1
        loud = samples[np.abs(samples) >= 80]  # the pauses are quieter
        values = loud[np.flatnonzero(np.diff(loud, prepend=0))].tolist()
        assert values == [100 * (int(part[1:]) + 1) for part in parts]
        pauses = (len(samples) - len(loud)) / RATE
        assert 0.1 * len(parts) - 0.01 <= pauses <= 0.2 * len(parts) + 0.01


def test_utterances_joined_with_several_seeds_fit_into_one_list(tmp_path: Path) -> None:
    lines = utterances(tmp_path, [0.3] * 9)
    keys = []
    for seed in (1, 2):
        out = tmp_path / f"seed_{seed}"
        keys += [
            joined.key
            for joined in join_utterances(lines, out, Joining(1.0, seed=seed), Executor(1))
        ]

    assert len(keys) > 4
    assert len(set(keys)) == len(keys)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path) -> None:
    lines = utterances(tmp_path, [0.3] * 9)
    found = []
    for name, seed, workers in (("a", 0, 1), ("b", 0, 2), ("c", 1, 1)):
        join_utterances(lines, tmp_path / name, Joining(1.0, seed=seed), Executor(workers))
        found.append([path.read_bytes() for path in sorted((tmp_path / name / "wav").iterdir())])
    assert found[0] == found[1] != found[2]


def test_parts_of_recordings_are_joined_and_characters_without_a_space(tmp_path: Path) -> None:
    (whole,) = utterances(tmp_path, [1.0])
    lines = [
        RawLine(f"s{place}", whole.wav, "你好", place / 4, (place + 1) / 4) for place in range(4)
    ]
    (joined,) = join_utterances(
        lines, tmp_path / "out", Joining(8.0, (0, 0), separator=""), Executor()
    )
    assert (tmp_path / "out/text").read_text() == f"{joined.key} {'你好' * 4}\n"
    assert soundfile.info(joined.wav).frames == RATE


def test_what_cannot_be_joined_is_named(tmp_path: Path) -> None:
    lines = utterances(tmp_path, [0.3, 0.3])
    (tmp_path / "other").mkdir()
    (other,) = utterances(tmp_path / "other", [0.3], 16000)
    with pytest.raises(
        ValueError, match=r"several sample rates \(u1 has 8000 Hz, other has 16000 Hz\); resample"
    ):
        join_utterances(
            [*lines, RawLine("other", other.wav, "x")], tmp_path / "out", Joining(1.0), Executor()
        )
    Path(lines[1].wav).write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"1 of 2 utterances cannot be read, such as: .*u1\.wav"):
        join_utterances(lines, tmp_path / "out", Joining(1.0), Executor())
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="longest: expected above 0 seconds, found 0"):
        Joining(0.0)
    with pytest.raises(
        ValueError, match="pauses: expected 0 or more seconds, the shortest first; found 1 0.5"
    ):
        Joining(1.0, (1.0, 0.5))
