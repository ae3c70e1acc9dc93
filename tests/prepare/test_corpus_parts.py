from __future__ import annotations

from pathlib import Path

import pytest

from wenet_uio.prepare.corpus_parts import Recording, audio_files, with_texts, write_parts
from wenet_uio.prepare.kaldi_tables import read_utterances


@pytest.fixture
def wav(tmp_path):
    path = tmp_path / "a.wav"
    path.touch()
    return path


def test_both_tables_are_ordered_by_key_and_paths_are_absolute(tmp_path, wav, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    relative = wav.relative_to(tmp_path)
    write_parts(
        Path(), {"part": [Recording("b", relative, "two words"), Recording("a", relative, "one")]}
    )
    assert capsys.readouterr().out == "part: 2 utterances\n"
    assert (tmp_path / "part" / "text").read_text() == "a one\nb two words\n"
    assert (tmp_path / "part" / "wav.scp").read_text() == f"a {wav}\nb {wav}\n"


@pytest.mark.parametrize(
    ("keys", "text", "suffix", "message"),
    [
        (["a"], "one", ".flac", "a: has text, but its audio .*a.flac is missing"),
        (["a"], " ", ".wav", "a: .*a.wav has no text"),
        (["a", "a"], "one", ".wav", "a: two recordings, .*a.wav and .*a.wav"),
        (["a b"], "one", ".wav", "'a b': the key of .*a.wav is empty or has spaces"),
        ([""], "one", ".wav", "'': the key of .*a.wav is empty or has spaces"),
        (["a"], "one\ntwo", ".wav", "a: the text of .*a.wav has a line break, 'one\\\\ntwo'"),
        ([], "", ".wav", "part: no utterance was found for this part"),
    ],
)
def test_a_bad_recording_is_named_and_nothing_is_written(
    tmp_path, wav, keys, text, suffix, message
):
    recordings = [Recording(key, wav.with_suffix(suffix), text) for key in keys]
    with pytest.raises(ValueError, match=message):
        write_parts(tmp_path, {"part": recordings})
    assert not (tmp_path / "part").exists()


def test_parts_of_recordings_get_segments_and_whole_recordings_remove_them(tmp_path, wav):
    cut = [Recording("b", wav, "two", 1.0, 2.5), Recording("a", wav, "one", 0.0, 1.0)]
    write_parts(tmp_path, {"part": cut})
    assert (tmp_path / "part" / "wav.scp").read_text() == f"a {wav}\n"
    assert (tmp_path / "part" / "segments").read_text() == "a a 0.000 1.000\nb a 1.000 2.500\n"
    write_parts(tmp_path, {"part": [Recording("a", wav, "one")]})
    assert not (tmp_path / "part" / "segments").exists()


@pytest.mark.parametrize(("start", "end"), [(2.0, 1.0), (-1.0, 1.0), (-1.0, None)])
def test_times_out_of_order_are_refused(tmp_path, wav, start, end):
    with pytest.raises(
        ValueError, match=f"a: from {start} s to {end} s of .*: start must be 0 or later"
    ):
        write_parts(tmp_path, {"part": [Recording("a", wav, "one", start, end)]})


def test_whole_recordings_and_parts_of_recordings_are_read_back_unchanged(tmp_path, wav):
    other, spaced = tmp_path / "other" / "a.wav", tmp_path / "call 0.wav"
    other.parent.mkdir()
    for path in (other, spaced):
        path.touch()
    recordings = [
        Recording("k1", wav, "one", 0.5, 1.0),
        Recording("k2", other, "two"),
        Recording("k3", other, "three", 1.0),
        Recording("k4", spaced, "four", 0.0, 1.0),
    ]
    write_parts(tmp_path, {"part": recordings})
    assert (tmp_path / "part" / "wav.scp").read_text() == f"a {wav}\na-2 {other}\ncall_0 {spaced}\n"
    found = read_utterances(
        *(str(tmp_path / "part" / table) for table in ("wav.scp", "text", "segments"))
    )
    assert [
        Recording(line.key, Path(line.wav), line.text, line.start, line.end) for line in found
    ] == recordings


def test_no_part_is_written_if_one_part_has_an_error(tmp_path, wav):
    with pytest.raises(ValueError, match="test: no utterance was found for this part"):
        write_parts(tmp_path, {"train": [Recording("a", wav, "one")], "test": []})
    assert not (tmp_path / "train").exists()


def test_gaps_between_audio_and_text_are_counted_and_left_out(wav, capsys):
    found = with_texts({"a": wav, "b": wav}, {"a": "one", "c": "three", "d": "four"}, "train")
    assert found == [Recording("a", wav, "one")]
    assert capsys.readouterr().err == (
        "train: audio without text: 1 left out (b)\ntrain: text without audio: 2 left out (c, d)\n"
    )


def test_suffixes_match_in_any_case_and_two_files_of_one_key_are_an_error(tmp_path):
    for name in ("x/a.WAV", "x/b.wav", "x/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(audio_files(tmp_path, ".wav")) == ["a", "b"]
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "a.wav").touch()
    with pytest.raises(ValueError, match="a: two recordings, .*x/a.WAV and .*y/a.wav"):
        audio_files(tmp_path, ".wav")
    with pytest.raises(ValueError, match="no .*.flac below "):
        audio_files(tmp_path, ".flac")


def test_audio_in_linked_folders_is_found_once_and_other_names_are_ignored(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("fe_03_00001.sph", "fe_03_00001.txt", "sw02001.sph"):
        (tmp_path / "disk" / name).touch()
    corpora = tmp_path / "corpora"
    corpora.mkdir()
    (corpora / "LDC2004S13").symlink_to(tmp_path / "disk")
    (corpora / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "circle").symlink_to(corpora)
    found = audio_files(corpora, ".sph", stem="fe_03_*")
    assert found == {"fe_03_00001": corpora / "LDC2004S13" / "fe_03_00001.sph"}
    with pytest.raises(
        ValueError, match=r"no fe_04_\*\.sph below .*corpora: name the corpus with --data"
    ):
        audio_files(corpora, ".sph", stem="fe_04_*")
