from __future__ import annotations

import pytest

from wenet_uio.addons.corpora.guessed_columns import guess_columns
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.columns import (
    Choice,
    has_audio_suffix,
    named_columns,
    parse_seconds,
)

BODY = [["a.wav", "guten Tag", "Eva"], ["b.wav", "wie geht es dir", "Eva"]]


NONE = Choice()


def names(rows, choice=NONE):
    columns = guess_columns(rows, choice, has_audio_suffix)
    return columns and columns.names


@pytest.mark.parametrize(
    "header",
    [
        ["Datei", "Satz", "Sprecher"],
        ["File name", "Transcript", "Speaker ID"],
        ["音频", "文本", "说话人"],
        ["檔名", "逐字稿", "說話者"],
        ["audio_file", "SENTENCE", "spk"],
        ["Nom du fichier", "Phrase", "Locuteur"],
        ["Имя файла", "Текст", "Диктор"],
        ["ファイル名", "書き起こし", "話者"],
    ],
)
def test_columns_may_have_names_in_other_words_and_languages(header):
    assert named_columns(header) == {"wav": 0, "text": 1, "speaker": 2}
    assert names([header, *BODY]) == ["wav", "text", "speaker"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["x", "y", "z"], *BODY], ["wav", "text", "z"]),
        (BODY, ["wav", "text", "column 3"]),
        ([[row[2], row[1], row[0]] for row in BODY], ["column 1", "text", "wav"]),
        (
            [["path", "text", "x"], *[["d", row[1], row[0]] for row in BODY]],
            ["path", "text", "wav"],
        ),
        ([["Datei", "", "wer"], *BODY], ["wav", "text", "wer"]),
        ([["x", "y"], ["1", "2"]], None),
        ([["from", "path", "text"], ["Eva", "a.wav", "ja"]], ["from", "wav", "text"]),
        ([["from", "path", "text"], ["1.5", "a.wav", "ja"]], ["start", "wav", "text"]),
        ([["0.5", "1.25", "ja"], ["2", "3", "nein"]], ["start", "end", "text"]),
    ],
)
def test_columns_without_a_known_name_are_told_by_what_they_hold(rows, expected):
    assert names(rows) == expected


def test_a_guess_is_told_with_the_option_for_another_column():
    columns = guess_columns([["x", "y", "z"], *BODY], Choice(), has_audio_suffix)
    assert columns is not None
    assert columns.notes == [
        "x is taken for the audio: its cells are files; --audio_field takes another column",
        "y is taken for the text: it has the most words; --text_field takes another column",
    ]


def test_the_user_chooses_columns_by_name_or_number():
    rows = [["x", "Y", "z"], *BODY]
    assert names(rows, Choice("x", "z")) == ["wav", "y", "text"]
    assert names(rows, Choice("1", "y")) == ["wav", "text", "z"]
    assert names(BODY, Choice("1", "3")) == ["wav", "column 2", "text"]
    with pytest.raises(ListError, match="no column w, which --text_field names; .* x, Y, z"):
        names(rows, Choice(None, "w"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1.5", 1.5), ("1,5", 1.5), ("12", 12.0), ("1:02", 62.0), ("1:02,5", 62.5)),
        *(("00:01:02.500", 62.5), ("25:00:00", 90000.0), ("1e-3", 0.001), ("-1", -1.0)),
        *(("late", None), ("1:2:3:4", None), ("1,234.5", None)),
    ],
)
def test_times_are_numbers_or_those_of_a_clock(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("name", "is_in_milliseconds"),
    [
        *(("Begin Time - msec", True), ("Start (ms)", True), ("start_ms", True)),
        *(("Begin Time - ss.msec", False), ("Begin Time - hh:mm:ss.ms", False)),
        *(("Start (s)", False), ("tmin", False), ("Startzeit", False), ("开始时间", False)),
    ],
)
def test_units_of_times_stand_in_the_name_of_their_column(name, is_in_milliseconds):
    rows = [[name, "path", "text"], ["1500", "a.wav", "ja"]]
    columns = guess_columns(rows, Choice(), has_audio_suffix)
    assert columns is not None
    assert columns.names[0] == "start"
    assert columns.milliseconds == ({"start"} if is_in_milliseconds else set())
