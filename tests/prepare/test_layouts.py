"""Corpora as they lie on people's disks become lists and recipes of the utterances that they are
made of.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.custom.s0.local import prepare_data
from tests.support.data.corpus_layouts import LAYOUTS, LONG, recordings
from tools import convert_manifest, new_recipe
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.readers import read_kaldi, read_list

FORMS = sorted(LAYOUTS)


def run(monkeypatch, command, *arguments) -> None:
    monkeypatch.setattr(sys, "argv", ["tool", *map(str, arguments)])
    command.main()


def text_and_audio(line: RawLine) -> tuple[str, bytes]:
    samples, _ = read_audio(line.wav, line.start, line.end, 0, keep_int16=True)
    return line.text, samples[: len(samples) // 8 * 8].tobytes()


def expected(said) -> list[tuple[str, bytes]]:
    return sorted(
        (each.text, each.samples[: len(each.samples) // 8 * 8].tobytes()) for each in said
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_layout_is_known_by_looking_and_gives_the_recordings_and_texts_it_is_made_of(
    form, corpora, tmp_path, monkeypatch, capsys
):
    said = recordings(corpora)
    corpus = LAYOUTS[form](tmp_path / "my corpus", said)
    run(monkeypatch, convert_manifest, corpus, tmp_path / "a.list", "--to", "raw")
    told = capsys.readouterr().out
    assert f"--form {form}" in told
    assert "40 utterances in" in told
    lines = read_list(str(tmp_path / "a.list"))
    assert sorted(map(text_and_audio, lines)) == expected(said)
    assert len({line.key for line in lines}) == 40


@pytest.mark.parametrize("form", FORMS)
def test_every_layout_becomes_a_recipe_whose_parts_hold_all_of_its_utterances(
    form, corpora, tmp_path, monkeypatch, capsys
):
    said = recordings(corpora)
    corpus = LAYOUTS[form](tmp_path / "my corpus", said)
    run(monkeypatch, new_recipe, "own", "--from", corpus, "--examples", tmp_path / "examples")
    told = capsys.readouterr().out
    assert told.index(f"--form {form}") < told.index("train, ")
    script = (tmp_path / "examples" / "own" / "s0" / "run.sh").read_text()
    assert f"data='{corpus}'" in script
    run(monkeypatch, prepare_data, corpus, tmp_path / "data")
    lines = [
        line
        for part in ("train", "dev", "test")
        for line in read_kaldi(str(tmp_path / "data" / part))
    ]
    assert sorted(map(text_and_audio, lines)) == expected(said)
    run(monkeypatch, convert_manifest, corpus, tmp_path / "a.list", "--to", "raw")
    assert sorted(line.key for line in lines) == sorted(
        line.key for line in read_list(str(tmp_path / "a.list"))
    )


def test_equal_base_names_get_the_same_keys_from_every_layout_and_every_tool(
    corpora, tmp_path, monkeypatch
):
    said = recordings(corpora, takes=1)
    keys = {}
    for form in sorted(LAYOUTS.keys() - LONG):
        corpus = LAYOUTS[form](tmp_path / form, said)
        run(monkeypatch, convert_manifest, corpus, tmp_path / f"{form}.json", "--to", "nemo")
        keys[form] = sorted(line.key for line in read_list(str(tmp_path / f"{form}.json")))
    assert len(set(map(tuple, keys.values()))) == 1
    assert keys["pairs"][0] == "jackson-0_0"


def test_folders_named_as_parts_divide_the_corpus(corpora, tmp_path, monkeypatch, capsys):
    said = recordings(corpora, takes=1)
    for part, some in (("train", said[:14]), ("test", said[14:])):
        LAYOUTS["pairs"](tmp_path / "corpus" / part, some)
    run(monkeypatch, prepare_data, tmp_path / "corpus", tmp_path / "data")
    assert "parts: test 6, train 14" in capsys.readouterr().out.replace(
        "train 14, test 6", "test 6, train 14"
    )
    assert sorted(map(text_and_audio, read_kaldi(str(tmp_path / "data" / "test")))) == expected(
        said[14:]
    )


def test_names_of_parquet_files_divide_the_corpus_and_its_audio_is_written_once(
    corpora, tmp_path, monkeypatch
):
    said = recordings(corpora, takes=1)
    for split, some in (("train", said[:12]), ("validation", said[12:15]), ("test", said[15:])):
        made = LAYOUTS["parquet"](tmp_path / split, some)
        for number, path in enumerate(sorted(made.rglob("*.parquet"))):
            (tmp_path / "hub" / "data").mkdir(parents=True, exist_ok=True)
            if path.stat().st_size:
                path.rename(tmp_path / "hub" / "data" / f"{split}-{number:05d}-of-00002.parquet")
    for _ in range(2):
        run(monkeypatch, prepare_data, tmp_path / "hub", tmp_path / "data")
    for part, some in (("train", said[:12]), ("dev", said[12:15]), ("test", said[15:])):
        lines = read_kaldi(str(tmp_path / "data" / part))
        assert sorted(map(text_and_audio, lines)) == expected(some)
        assert {Path(line.wav).parent for line in lines} == {tmp_path / "data" / "audio" / part}
        assert len(list((tmp_path / "data" / "audio" / part).iterdir())) == len(some)


def test_audio_may_be_in_another_folder_than_the_texts(corpora, tmp_path, monkeypatch):
    said = recordings(corpora, takes=1)
    LAYOUTS["pairs"](tmp_path / "wav", said)
    for path in list((tmp_path / "wav").rglob("*.txt")):
        moved = tmp_path / "txt" / path.relative_to(tmp_path / "wav")
        moved.parent.mkdir(parents=True, exist_ok=True)
        path.rename(moved)
    arguments = (
        tmp_path / "txt",
        tmp_path / "a.list",
        "--to",
        "raw",
        "--form",
        "pairs",
        "--audio",
        tmp_path / "wav",
    )
    run(monkeypatch, convert_manifest, *arguments)
    assert sorted(map(text_and_audio, read_list(str(tmp_path / "a.list")))) == expected(said)


def test_subtitles_after_the_end_of_their_recording_are_in_no_list_and_no_recipe(
    corpora, tmp_path, monkeypatch, capsys
):
    said = recordings(corpora, takes=1)
    corpus = LAYOUTS["srt"](tmp_path / "corpus", said)
    with open(corpus / "theo.en.srt", "a") as file:
        file.write("99\n00:10:00,000 --> 00:10:02,000\nlost\n")
    run(monkeypatch, convert_manifest, corpus, tmp_path / "a.list", "--to", "raw")
    assert sorted(map(text_and_audio, read_list(str(tmp_path / "a.list")))) == expected(said)
    run(monkeypatch, prepare_data, corpus, tmp_path / "data")
    lines = [
        line
        for part in ("train", "dev", "test")
        for line in read_kaldi(str(tmp_path / "data" / part))
    ]
    assert sorted(map(text_and_audio, lines)) == expected(said)
    told = f"{corpus}: utterances that are not inside their audio: 1 left out (theo_0600000 from 600 s to 602 s of "
    assert capsys.readouterr().err.count(told) == 2


def test_a_single_file_of_subtitles_takes_the_audio_beside_it(corpora, tmp_path, monkeypatch):
    said = recordings(corpora)
    corpus = LAYOUTS["srt"](tmp_path / "corpus", said)
    run(monkeypatch, convert_manifest, corpus / "theo.en.srt", tmp_path / "a.list", "--to", "raw")
    lines = [json.loads(line) for line in Path(tmp_path / "a.list").read_text().splitlines()]
    assert len(lines) == 20
    assert lines[0]["key"] == "theo_0000750"
    assert np.all(np.diff([line["start"] for line in lines]) > 0.75)
