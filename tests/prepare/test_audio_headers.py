"""Utterances that are not inside their audio are left out, counted and named."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.audio_headers import inside_audio


def test_an_utterance_that_ends_after_its_audio_is_cut_by_half_a_second_at_most_or_left_out(
    tmp_path, capsys
):
    wav = str(tmp_path / "a.wav")
    soundfile.write(wav, np.ones(16000, np.int16), 8000)
    spans = [(0.5, 2.0), (0.5, 2.4), (1.9, 2.3), (1.0, 2.6), (2.0, None), (3.0, 4.0), (1.0, None)]
    lines = [
        RawLine(f"{start}-{end}", wav, "a", start, end, {"duration": 9.0}) for start, end in spans
    ]
    kept = inside_audio(lines, "own", Executor())
    assert [(line.start, line.end, line.extra["duration"]) for line in kept] == [
        (0.5, 2.0, 9.0),
        (0.5, 2.0, 1.5),
        (1.0, None, 9.0),
    ]
    told = capsys.readouterr().err
    assert (
        "own: utterances that are not inside their audio: 4 left out (1.9-2.3 from 1.9 s to 2.3 s "
        "of " in told
    )
    with pytest.raises(
        ListError,
        match=r"own: no utterance is inside its audio: 3.0-4.0 from 3 s to 4 s of .* has 2 s;",
    ):
        inside_audio(lines[5:6], "own", Executor())


def test_an_utterance_of_no_time_is_left_out_whatever_its_audio_is(capsys):
    lines = [RawLine(f"{end}", "s3://x/a.wav", "a", 1.0, end) for end in (1.0, 0.5, 2.0)]
    assert [line.end for line in inside_audio(lines, "own", Executor())] == [2.0]
    told = "own: utterances that are not inside their audio: 2 left out (1.0 from 1 s to 1 s of s3://x/a.wav, "
    told += "which is no "
    assert told in capsys.readouterr().err


def test_whole_remote_and_unreadable_audio_is_not_compared(make_utterances, tmp_path):
    (tmp_path / "empty.wav").touch()
    lines = make_utterances(1)
    lines += [
        RawLine("remote", "s3://x/a.wav", "a", 1.0, 2.0),
        RawLine("bad", f"{tmp_path}/empty.wav", "a", 1.0, 2.0),
    ]
    assert inside_audio(lines, "own", Executor()) == lines
    assert inside_audio([], "own", Executor()) == []
