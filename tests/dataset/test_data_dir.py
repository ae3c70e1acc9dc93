from __future__ import annotations

import pytest

from wenet_uio.dataset.data_dir import Recording, write_data_dir


@pytest.fixture
def wav(tmp_path):
    path = tmp_path / "a.wav"
    path.touch()
    return path


def test_both_files_are_ordered_by_key_and_paths_are_absolute(tmp_path, wav, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = wav.relative_to(tmp_path)
    assert write_data_dir("part", [Recording("b", relative, "two words"), Recording("a", relative, "one")]) == 2
    assert (tmp_path / "part" / "text").read_text() == "a one\nb two words\n"
    assert (tmp_path / "part" / "wav.scp").read_text() == f"a {wav}\nb {wav}\n"


@pytest.mark.parametrize(
    ("keys", "text", "suffix", "message"),
    [
        (["a"], "one", ".flac", "a: has text, but its audio .*a.flac is missing"),
        (["a"], " ", ".wav", "a: .*a.wav has no text"),
        (["a", "a"], "one", ".wav", "a: two recordings, .*a.wav and .*a.wav"),
        ([], "", ".wav", "part: no utterance was found"),
    ],
)
def test_a_bad_recording_is_named_and_nothing_is_written(tmp_path, wav, keys, text, suffix, message):
    recordings = [Recording(key, wav.with_suffix(suffix), text) for key in keys]
    with pytest.raises(ValueError, match=message):
        write_data_dir(tmp_path / "part", recordings)
    assert not (tmp_path / "part").exists()
