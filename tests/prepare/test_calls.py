import numpy as np
import pytest
import soundfile

from wenet_uio.audio.decoders import AudioError
from wenet_uio.base.executor import Executor
from wenet_uio.prepare.calls import Turn, channel_to_wav, join_turns, side_wav, sides_to_wav


@pytest.fixture
def sphere(tmp_path):
    path = tmp_path / "call.sph"
    samples = np.stack([np.full(800, 0.25), np.full(800, -0.5)], axis=1)
    soundfile.write(path, samples, 8000, format="NIST", subtype="ULAW", endian="BIG")
    return path


def test_each_side_of_a_call_becomes_a_wav_and_a_rerun_keeps_it(sphere, tmp_path):
    sides_to_wav([sphere], tmp_path / "wav", Executor(2))
    made = [side_wav(tmp_path / "wav", "call", side) for side in "AB"]
    for path, level in zip(made, (0.25, -0.5), strict=True):
        samples, rate = soundfile.read(path)
        assert rate == 8000
        assert samples.shape == (800,)
        np.testing.assert_allclose(samples, level, rtol=0.03)
    before = [path.stat().st_ino for path in made]
    sides_to_wav([sphere], tmp_path / "wav", Executor())
    assert [path.stat().st_ino for path in made] == before


def test_unreadable_spheres_are_named_and_leave_no_wav(sphere, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    shorten = tmp_path / "shorten.sph"
    shorten.write_bytes(
        sphere.read_bytes().replace(b"-s4 ulaw", b"-s26 ulaw,embedded-shorten-v2.00", 1)
    )
    other = tmp_path / "other.sph"
    other.write_bytes(b"RIFF")
    for path, channel, message in (
        (shorten, 0, "shorten.sph: compressed with shorten, which needs sph2pipe"),
        (other, 0, "other.sph: not a sphere file"),
        (sphere, 2, "no channel 2 .counted from 0., the file has 2"),
    ):
        with pytest.raises(AudioError, match=message):
            channel_to_wav(path, channel, tmp_path / "out.wav")
        assert not (tmp_path / "out.wav").exists()


def test_shorten_is_read_through_sph2pipe(sphere, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "sph2pipe"
    program.write_text('#!/bin/sh\n[ "$6" = "" ] && echo "$@" && exit 0\necho broken >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    shorten = tmp_path / "shorten.sph"
    shorten.write_bytes(
        sphere.read_bytes().replace(b"-s4 ulaw", b"-s26 ulaw,embedded-shorten-v2.00", 1)
    )
    with pytest.raises(AudioError, match="sph2pipe says: broken"):
        channel_to_wav(shorten, 1, tmp_path / "out.wav")
    program.write_text('#!/bin/sh\necho "$@"\n')
    channel_to_wav(shorten, 1, tmp_path / "out.wav")
    assert (tmp_path / "out.wav").read_text() == f"-f wav -p -c 2 {shorten}\n"


def test_short_turns_are_joined_but_not_across_a_turn_without_text():
    turns = [
        Turn(0.0, 1.0, "A"),
        Turn(2.0, 4.0, "B"),
        Turn(5.0, 6.0, "C"),
        Turn(7.0, 8.0, None),
        Turn(9.0, 9.5, "D"),
        Turn(38.0, 40.0, "E"),
    ]
    assert list(join_turns(turns, 3.0)) == [
        Turn(0.0, 4.0, "A B"),
        Turn(5.0, 6.0, "C"),
        Turn(9.0, 9.5, "D"),
        Turn(38.0, 40.0, "E"),
    ]
    assert [turn.text for turn in join_turns(turns, 0.0)] == ["A", "B", "C", "D", "E"]
