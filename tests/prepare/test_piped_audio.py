from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.prepare.test_layouts import run
from tools import convert_manifest
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.own_corpus import ReadOptions, read_transcripts
from wenet_uio.prepare.readers import read_list


@pytest.fixture
def folder(make_utterances, tmp_path):
    """A Kaldi directory of three recordings, of which two are commands."""
    wavs = [line.wav for line in make_utterances(3)]
    data = tmp_path / "data"
    data.mkdir()
    commands = [f"cat '{wavs[0]}' |", f"cat {wavs[1]} | cat |", wavs[2]]
    table = "".join(f"u{number} {wav}\n" for number, wav in enumerate(commands))
    (data / "wav.scp").write_text(table)
    (data / "text").write_text("u0 a\nu1 b\nu2 c\n")
    return data, wavs


def test_commands_are_not_run_unless_they_are_trusted(folder, tmp_path):
    data, _ = folder
    (data / "wav.scp").write_text(f"u0 touch {tmp_path}/ran |\n")
    (data / "text").write_text("u0 a\n")
    message = "1 of its recordings are commands, which are not run unless you trust them: --trust_c"
    with pytest.raises(ListError, match=message):
        read_transcripts(data)
    assert not (tmp_path / "ran").exists()


def test_trusted_commands_run_once_and_their_audio_is_kept(folder, tmp_path, monkeypatch):
    data, wavs = folder
    arguments = (data, tmp_path / "a.list", "--to", "raw", "--trust_commands")
    run(monkeypatch, convert_manifest, *arguments)
    lines = read_list(str(tmp_path / "a.list"))
    assert [(line.key, line.text) for line in lines] == [("u0", "a"), ("u1", "b"), ("u2", "c")]
    for line, wav in zip(lines, wavs, strict=True):
        assert np.array_equal(read_audio(line.wav)[0], read_audio(wav)[0])
    assert len(list((tmp_path / "a.list.audio").iterdir())) == 2

    # A second run takes what the first has written.
    for wav in wavs[:2]:
        Path(wav).unlink()
    assert len(read_transcripts(data, ReadOptions(outputs=tmp_path / "a.list.audio"))) == 3


def test_segments_share_the_output_of_a_command(folder, tmp_path):
    data, _ = folder
    (data / "segments").write_text("s0 u0 0 0.1\ns1 u0 0.1 0.2\n")
    (data / "text").write_text("s0 a\ns1 b\n")
    lines = read_transcripts(data, ReadOptions(outputs=tmp_path / "out"))
    assert len({line.wav for line in lines}) == 1
    assert [(line.start, line.end) for line in lines] == [(0.0, 0.1), (0.1, 0.2)]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3 |", "ends with status 3"),
        ("false | cat |", "ends with status 1"),
        ("true |", "writes no audio"),
        ("no_such_program a.sph |", "ends with status 127: .*no_such_program"),
    ],
)
def test_commands_that_fail_are_named_or_left_out(folder, tmp_path, capsys, command, reason):
    data, _ = folder
    table = (data / "wav.scp").read_text().splitlines()
    (data / "wav.scp").write_text("\n".join([f"u0 {command}", *table[1:]]) + "\n")
    options = ReadOptions(outputs=tmp_path / "out")
    with pytest.raises(ListError, match=f"1 of 2 commands fail; .*u0: .*{reason}"):
        read_transcripts(data, options)

    lines = read_transcripts(data, ReadOptions(outputs=tmp_path / "out", allow_bad=True))
    assert [line.key for line in lines] == ["u1", "u2"]
    assert "commands that fail: 1 left out (u0: " in capsys.readouterr().err
