"""Corpora in the layouts in which they are published become data lists as they lie there."""

from __future__ import annotations

import json
import subprocess
from shutil import copyfile

import pytest

from tests.prepare.test_layouts import run
from tools import convert_manifest
from wenet_uio.addons.corpora.timed_texts import read_stm
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.formats.errors import ListError

COLUMNS = (
    *("client_id", "path", "sentence_id", "sentence", "sentence_domain", "up_votes", "down_votes"),
    *("age", "gender", "accents", "variant", "locale", "segment"),
)
"""Columns of Common Voice 17."""
SENTENCES = (
    '"Guten Tag", sagte er.',
    'Er rief: "Halt!',
    'Das ist 5" lang',
    "",
    '"Alles gut"',
    'It\'s "fine" , ok',
)


@pytest.fixture
def recordings(corpora):
    return sorted((corpora / "fsdd" / "recordings").glob("*_theo_0.wav"))[: len(SENTENCES)]


@pytest.fixture
def place(recordings, tmp_path):
    """A function that copies a recording to a place in the corpus."""

    def copied(number, name):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copyfile(recordings[number], tmp_path / name)

    return copied


def converted(monkeypatch, source, *options):
    """The lines of a raw list that `source` becomes."""
    target = source.parent / "converted.list"
    run(monkeypatch, convert_manifest, source, target, "--to", "raw", *options)
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


def texts(lines, folder):
    return {line["wav"].removeprefix(f"{folder}/"): line["txt"] for line in lines}


def test_a_release_of_common_voice_keeps_its_quotes(recordings, tmp_path, monkeypatch):
    """Its sentences have quotes in any number; some are empty; old releases have no suffixes."""
    (tmp_path / "clips").mkdir()
    rows, expected = ["\t".join(COLUMNS)], {}
    for number, (wav, sentence) in enumerate(zip(recordings, SENTENCES, strict=True)):
        clip = f"common_voice_de_{number}.mp3"
        convert = ["ffmpeg", "-nostdin", "-loglevel", "error", "-i", wav, tmp_path / "clips" / clip]
        subprocess.run(convert, check=True)
        values = {"client_id": f"c{number}" * 30, "sentence": sentence, "locale": "de"}
        values["path"] = clip if number else clip.removesuffix(".mp3")
        rows.append("\t".join(values.get(column, "") for column in COLUMNS))
        expected |= {f"clips/{clip}": sentence} if sentence else {}

    table = tmp_path / "validated.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(ListError, match=r"validated\.tsv:5: no text"):
        converted(monkeypatch, table)
    lines = converted(monkeypatch, table, "--allow_bad")
    assert texts(lines, tmp_path) == expected
    assert {line["speaker"] for line in lines} == {f"c{n}" * 30 for n in (0, 1, 2, 4, 5)}
    assert all(len(read_audio(line["wav"])[0]) for line in lines)


def test_a_folder_of_espnet_with_an_archive_and_segments_is_converted(
    recordings, tmp_path, monkeypatch
):
    folder = tmp_path / "dump"
    folder.mkdir()
    places = {}
    with open(folder / "data_wav.ark", "wb") as archive:
        for wav in recordings[:2]:
            archive.write(f"{wav.stem} ".encode())
            places[wav.stem] = f"{folder}/data_wav.ark:{archive.tell()}"
            archive.write(wav.read_bytes())

    first, second = places
    tables = {
        "wav.scp": "".join(f"{name} {place}\n" for name, place in places.items()),
        "segments": f"u1 {first} 0.00 0.20\nu2 {second} 0.05 0.20\n",
        "text": 'u1 eins "zwei"\nu2 drei\n',
        "utt2spk": "u1 a\nu2 b\n",
        "spk2utt": "a u1\nb u2\n",
    }
    for name, text in tables.items():
        (folder / name).write_text(text)

    lines = converted(monkeypatch, folder)
    assert [(line["key"], line["txt"], line["speaker"]) for line in lines] == [
        ("u1", 'eins "zwei"', "a"),
        ("u2", "drei", "b"),
    ]
    for line, wav in zip(lines, recordings, strict=False):
        ours, _ = read_audio(line["wav"], line["start"], line["end"])
        assert (ours == read_audio(str(wav), line["start"], line["end"])[0]).all()


def test_the_folder_of_aishell_has_its_texts_in_another_folder(place, tmp_path, monkeypatch):
    wavs = [f"corpus/data_aishell/wav/train/S0002/BAC009S0002W012{n}.wav" for n in (2, 3)]
    for number, wav in enumerate(wavs):
        place(number, wav)
    transcript = tmp_path / "corpus/data_aishell/transcript/aishell_transcript_v0.8.txt"
    transcript.parent.mkdir()
    transcript.write_text(
        "BAC009S0002W0122 而 对 楼市\nBAC009S0002W0123 也 成为\n", encoding="utf-8"
    )
    lines = converted(monkeypatch, tmp_path / "corpus")
    assert texts(lines, tmp_path) == dict(zip(wavs, ("而 对 楼市", "也 成为"), strict=True))


def test_the_folder_of_vctk_has_a_text_for_each_recording_in_another_folder(
    place, tmp_path, monkeypatch
):
    expected = {}
    for number, name in enumerate(("p225/p225_001", "p225/p225_002", "p226/001", "p227/001")):
        place(number, f"corpus/wav48/{name}.wav")
        text = tmp_path / f"corpus/txt/{name}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"Please call {number}.\n")
        expected[f"corpus/wav48/{name}.wav"] = f"Please call {number}."
    (tmp_path / "corpus/README.txt").write_text("Read me.\n")
    lines = converted(monkeypatch, tmp_path / "corpus")
    assert texts(lines, tmp_path) == expected


STM = """;; a comment
talk 1 Ann_Lee 0.02 0.10 <o,f0,female> this is <unk> one
talk 1 inter_segment_gap 0.10 0.12 <o,,unknown> ignore_time_segment_in_scoring

talk 1 Ann_Lee 0.12 0.20 <unk> and 's two
"""


def test_tedlium_has_segments_in_stm_and_audio_in_another_folder(place, tmp_path, monkeypatch):
    place(0, "corpus/sph/talk.wav")
    (tmp_path / "corpus/stm").mkdir()
    (tmp_path / "corpus/stm/talk.stm").write_text(STM)
    lines = converted(monkeypatch, tmp_path / "corpus")
    read = [(line["txt"], line["start"], line["end"], line["speaker"]) for line in lines]
    assert read == [
        ("this is <unk> one", 0.02, 0.1, "Ann_Lee"),
        ("<unk> and 's two", 0.12, 0.2, "Ann_Lee"),
    ]
    assert {line["wav"] for line in lines} == {str(tmp_path / "corpus/sph/talk.wav")}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("talk 1 ann 0.1", "1: expected recording channel speaker start end text"),
        ("talk 1 ann one two three", "1: expected recording channel speaker start end text"),
        ("talk 1 ann 2.0 1.0 three", "1: starts at 2.0 s and ends at 1.0 s"),
    ],
)
def test_a_damaged_line_of_stm_is_named(tmp_path, line, message):
    (tmp_path / "a.stm").write_text(line + "\n")
    with pytest.raises(ListError, match=message):
        read_stm(tmp_path / "a.stm")


def test_both_channels_of_an_stm_are_told_apart(place, tmp_path, monkeypatch):
    place(0, "corpus/call.wav")
    (tmp_path / "corpus/all.stm").write_text("call A x 0.0 0.1 <> one\ncall B y 0.0 0.1 <> two\n")
    lines = converted(monkeypatch, tmp_path / "corpus")
    assert [(line["txt"], line["channel"]) for line in lines] == [("one", 0), ("two", 1)]
