"""Transcripts are normalised as `--text` says, and what is odd or was mended is said."""

from __future__ import annotations

import json

import pytest

from tests.bin.test_data_tools import tool
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.texts import TEXTS, normalise_lines, tell_odd_texts

ODD = {"a": "co\u00adop  it", "b": "cafe\u0301", "c": "s\u0430fe", "d": "plain"}


def lines_of(texts):
    return [RawLine(key, f"{key}.wav", text) for key, text in texts.items()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep", ["co\u00adop it", "cafe\u0301", "s\u0430fe", "plain"]),
        ("clean", ["coop it", "caf\u00e9", "safe", "plain"]),
        ("english", ["COOP IT", "CAF\u00c9", "S\u0410FE", "PLAIN"]),
        ("mandarin", ["COOP IT", "CAF\u00c9", "S\u0410FE", "PLAIN"]),
    ],
)
def test_texts_are_normalised_as_the_option_says(text, expected):
    assert [line.text for line in normalise_lines(lines_of(ODD), text)] == expected


def test_clean_says_how_many_texts_it_mends(capsys):
    normalise_lines(lines_of(ODD), "clean")
    assert capsys.readouterr().err == "--text clean: 3 of 4 texts mended (a, b, c)\n"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("keep", ["invisible characters", "decomposed letters", "look-alike letters"]),
        ("english", ["look-alike letters"]),
        ("mandarin", ["look-alike letters"]),
    ],
)
def test_what_is_odd_after_the_normalisation_is_said_with_its_cure(capsys, text, kinds):
    normalise_lines(lines_of(ODD), text)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in said] == [
        f"--text {text}: 1 texts with {kind}: --text clean mends them" for kind in kinds
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_of_plain_texts_nothing_is_said(capsys, text):
    normalise_lines(lines_of({"a": "plain", "b": ""}), text)
    assert capsys.readouterr().err == ""


def test_odd_texts_of_a_kaldi_directory_are_said_and_kept(tmp_path, capsys):
    (tmp_path / "wav.scp").write_text("".join(f"{key} {key}.wav\n" for key in ODD))
    (tmp_path / "text").write_text("".join(f"{key} {text}\n" for key, text in ODD.items()))
    utterances = read_utterances(str(tmp_path / "wav.scp"), str(tmp_path / "text"))
    assert [line.text for line in utterances] == list(ODD.values())
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == (
        f"{tmp_path}/text: 1 texts with invisible characters: convert_manifest.py --text clean "
        "mends them (a: U+00AD SOFT HYPHEN)"
    )


def test_of_many_odd_texts_a_few_are_named_and_all_are_counted(capsys):
    tell_odd_texts("a", ((f"u{number}", "co\u00adop") for number in range(5)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("a: 5 texts with invisible characters: ")
    assert line.endswith(
        "(u0: U+00AD SOFT HYPHEN; u1: U+00AD SOFT HYPHEN; u2: U+00AD SOFT HYPHEN and 2 more)"
    )


def test_odd_texts_are_said_before_they_become_units(tmp_path):
    (tmp_path / "text").write_text("".join(f"{key} {text}\n" for key, text in ODD.items()))
    done = tool("make_dict.py", tmp_path / "text", tmp_path / "units.txt")
    assert done.returncode == 0
    assert done.stderr.count("convert_manifest.py --text clean mends them") == 3


def test_convert_manifest_mends_texts_if_it_is_asked_to(make_utterances, tmp_path):
    (noise,) = make_utterances(1)
    source = tmp_path / "in.json"
    source.write_text(json.dumps({"audio_filepath": noise.wav, "text": "co\u00adop  it"}) + "\n")
    for option, text in ((("--text", "clean"), "coop it"), ((), "co\u00adop  it")):
        done = tool("convert_manifest.py", source, tmp_path / "out.list", "--to", "raw", *option)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "out.list").read_text())["txt"] == text
        assert ("--text clean: 1 of 1 texts mended" in done.stderr) == bool(option)


def test_what_a_normalisation_changes_is_counted_by_kind_and_shown_for_five_texts(capsys):
    texts = {f"u{number}": f"Nr {number}." for number in range(6)} | {"a": "ja", "b": "„…“"}
    normalise_lines(lines_of(texts), "german")
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "--text german: 7 of 8 texts changed: letter case in 6, nothing is left in 1, punctuation in 6",
        *(f'  u{number}: "Nr {number}." -> "nr {number}"' for number in range(5)),
        "--text german: 6 texts have digits, which stay; write them as they are spoken (u0, u1, u2 "
        "and 3 more)",
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_of_texts_that_stay_nothing_is_told(capsys, text):
    lines = normalise_lines(lines_of({"a": "plain", "b": "", "c": "Ölig"}), text)
    capsys.readouterr()
    normalise_lines(lines, text)
    assert capsys.readouterr() == ("", "")
