from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.data.transcripts import EXPECTED, read, written
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.corpus_parts import write_parts
from wenet_uio.prepare.kaldi_tables import read_audio_lines
from wenet_uio.prepare.own_corpus import ReadOptions, read_corpus, read_transcripts


def test_audio_is_found_in_its_folder_by_path_by_name_and_without_suffix(corpus):
    for name in ("wav/utt0000.wav", "utt0000.wav", "utt0000", "elsewhere/utt0000.mp3"):
        assert read(written(corpus / "a.tsv", f"{name}\tone two\n"), corpus) == EXPECTED[:1]
    with pytest.raises(
        ListError, match=r"a.tsv: utt9: audio utt9.wav is not in .*wav or .*; see --audio"
    ):
        read(written(corpus / "a.tsv", "utt9.wav\tx\n"), corpus / "wav")


@pytest.mark.parametrize("name", ["a b.3gp", "vidéo.MOV", "take.1"])
def test_a_file_with_any_suffix_is_found_below_its_folder_by_its_whole_name(corpus, name):
    (corpus / "wav/utt0000.wav").rename(corpus / "wav" / name)
    [(_, wav, *_)] = read(written(corpus / "a.tsv", f"elsewhere/{name}\tone two\n"), corpus)
    assert wav == name

    # Audio by its suffix comes before a file that only has the name.
    audio = f"{name.rpartition('.')[0]}.wav"
    (corpus / "wav/utt0001.wav").rename(corpus / audio)
    [(_, wav, *_)] = read(written(corpus / "a.tsv", f"elsewhere/{name}\tone two\n"), corpus)
    assert wav == audio


def test_a_name_too_long_for_a_path_is_missing_audio(corpus):
    text = "a text in the column of the audio " * 10
    with pytest.raises(
        ListError, match=r"is not in .*columns that the first row may name are wav: "
    ):
        read(written(corpus / "a.csv", f"{text},another text\n"), corpus)


def test_audio_that_fits_two_files_is_an_error(corpus):
    (corpus / "other").mkdir()
    (corpus / "other" / "utt0000.flac").touch()
    with pytest.raises(
        ListError, match=r"audio utt0000.wav may be .*other/utt0000.flac or .*wav/utt0000.wav"
    ):
        read(written(corpus / "a.tsv", "utt0000.wav\tone two\n"), corpus)


@pytest.mark.parametrize("form", ["tsv", "nemo", "kaldi", "lhotse"])
def test_relative_paths_are_from_the_transcripts_or_else_from_the_folder_told(
    corpus, tmp_path, form, monkeypatch
):
    wav = "wav/utt0000.wav"
    if form == "lhotse":
        lhotse = pytest.importorskip("lhotse")
        recording = lhotse.Recording.from_file(corpus / wav)
        said = lhotse.SupervisionSegment(
            "utt0000", recording.id, 0.0, recording.duration, text="one two"
        )
        cut = lhotse.MonoCut("utt0000", 0.0, recording.duration, 0, [said], recording=recording)
        content = json.dumps(cut.to_dict()).replace(f"{corpus}/", "") + "\n"
    elif form == "nemo":
        content = json.dumps({"audio_filepath": wav, "text": "one two"}) + "\n"
    else:
        content = f"{wav}\tone two\n"

    def transcripts(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        if form != "kaldi":
            return written(folder / f"a.{'tsv' if form == 'tsv' else 'jsonl'}", content)
        written(folder / "wav.scp", f"utt0000 {wav}\n")
        written(folder / "text", "utt0000 one two\n")
        return folder

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "wav").mkdir(parents=True)
    (elsewhere / wav).touch()
    monkeypatch.chdir(elsewhere)
    (line,) = read_transcripts(transcripts(corpus))
    assert line.wav == str(corpus / wav)
    apart = transcripts(tmp_path / "apart")
    assert read_transcripts(apart)[0].wav == str(elsewhere / wav)
    monkeypatch.chdir("/")
    assert read_transcripts(apart, ReadOptions(relative_to=corpus))[0].wav == str(corpus / wav)
    with pytest.raises(
        ListError, match=f"utt0000: audio {wav} is not in .*apart or /; see --audio"
    ):
        read_transcripts(apart)


@pytest.mark.parametrize("named_from", ["table", "caller"])
def test_audio_in_an_archive_of_kaldi_is_found_by_its_place(corpus, named_from, monkeypatch):
    """ESPnet keeps recordings as wav in an archive: `dump/data_wav.ark:18`."""
    monkeypatch.chdir(corpus)
    folder = corpus / "dump/train"
    folder.mkdir(parents=True)
    wavs = sorted((corpus / "wav").iterdir())
    places = []
    with open(folder / "data_wav.ark", "wb") as archive:
        for wav in wavs:
            archive.write(f"{wav.stem} ".encode())
            places.append(archive.tell())
            archive.write(wav.read_bytes())
    prefix = "" if named_from == "table" else "dump/train/"
    rows = [
        f"{wav.stem} {prefix}data_wav.ark:{place}" for wav, place in zip(wavs, places, strict=True)
    ]
    (folder / "wav.scp").write_text("".join(f"{row}\n" for row in rows))
    (folder / "text").write_text("".join(f"{wav.stem} said {wav.stem}\n" for wav in wavs))

    for line, wav in zip(read_transcripts(folder), wavs, strict=True):
        expected, rate = read_audio(str(wav))
        found, found_rate = read_audio(line.wav)
        assert (line.key, found_rate) == (wav.stem, rate)
        np.testing.assert_array_equal(found, expected)

    parts = read_corpus(folder)
    write_parts(corpus / "data", parts)
    written_lines = [
        line for part in parts for line in read_audio_lines(str(corpus / "data" / part / "wav.scp"))
    ]
    assert {line.wav for line in written_lines} == {
        str(folder / f"data_wav.ark:{p}") for p in places
    }
