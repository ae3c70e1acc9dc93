from __future__ import annotations

import re
from pathlib import Path

import pytest

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.separated import TableOptions, read_csv, read_tsv


def rows_of(tmp_path: Path, name: str, content: str | bytes) -> list[tuple]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    lines = (read_csv if name.endswith(".csv") else read_tsv)(str(path))
    return [(line.key, line.text, line.start, line.end) for line in lines]


def test_a_quote_in_a_tsv_is_a_character_like_others(tmp_path):
    rows = 'path\ttext\na.wav\t"so he said\nb.wav\ttwo\nc.wav\t"three"\n'
    assert [row[:2] for row in rows_of(tmp_path, "a.tsv", rows)] == [
        ("a", '"so he said'),
        ("b", "two"),
        ("c", '"three"'),
    ]


def test_a_field_in_quotes_of_a_csv_may_have_commas_and_quotes(tmp_path):
    rows = 'path,text\na.wav,"one, ""two"""\n'
    assert rows_of(tmp_path, "a.csv", rows) == [("a", 'one, "two"', 0.0, None)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('path,text\na.wav,"one\nb.wav,two\n', "a.csv:2: .*quote left open"),
        ('path,text\na.wav,"one" two\n', "a.csv:2: .*quote left open"),
        ("path,text\na.wav," + "x" * 140_000 + "\n", "a.csv:2: field larger than field limit"),
        ("path text\na.wav\n", "a.csv:1: one field, 'path text'; fields are separated by a comma"),
        (
            "path,text,channel\na.wav,one,left\n",
            "a.csv:2: channel: expected a number, found 'left'",
        ),
    ],
)
def test_unreadable_rows_are_named_with_their_line(tmp_path, rows, message):
    with pytest.raises(ListError if isinstance(rows, str) else ValueError, match=message):
        rows_of(tmp_path, "a.csv", rows)


def test_a_part_that_starts_at_0_ends_after_its_duration(tmp_path):
    rows = "path\ttext\tstart\tduration\na.wav\tone\t0\t2.5\na.wav\ttwo\t2.5\t1\nb.wav\tall\t\t3\n"
    assert rows_of(tmp_path, "a.tsv", rows) == [
        ("a_0000000", "one", 0.0, 2.5),
        ("a_0002500", "two", 2.5, 3.5),
        ("b", "all", 0.0, None),
    ]


def test_a_part_without_an_end_ends_with_its_recording(tmp_path):
    rows = "path\ttext\tstart\na.wav\tone\t1.5\n"
    assert rows_of(tmp_path, "a.tsv", rows) == [("a_0001500", "one", 1.5, None)]


def test_empty_rows_are_ignored_and_keys_have_no_spaces(tmp_path):
    rows = "\ufeffwav_filename,wav_filesize,transcript\r\nmy a.wav,12,one\r\n,,\r\n\r\n"
    assert rows_of(tmp_path, "a.csv", rows) == [("my_a", "one", 0.0, None)]


def test_a_channel_is_a_number(tmp_path):
    (tmp_path / "a.tsv").write_text("path\ttext\tchannel\na.wav\tone\t0\nb.wav\ttwo\t\n")
    assert [line.extra for line in read_tsv(str(tmp_path / "a.tsv"))] == [{"channel": 0}, {}]


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("a.csv", "path,text\na.wav,schön\n".encode("cp1252"), "not UTF-8, read as cp1252"),
        ("a.csv", "path;text\na.wav;one\n", "fields are separated by a semicolon"),
        ("a.tsv", "path,text\na.wav,one\n", "fields are separated by a comma"),
        ("a.tsv", 'path\ttext\na.wav\t"one, ""two"""\n', "cells are in quotes"),
        ("a.csv", 'path,text\na.wav,"one\ntwo"\n', "line breaks in cells are blanks in 1 rows"),
        ("a.csv", "My corpus,\npath,text\na.wav,one\n", r"no utterances: \['My corpus'\]"),
    ],
)
def test_what_was_found_out_by_looking_is_told(tmp_path, capsys, name, content, note):
    assert len(rows_of(tmp_path, name, content)) == 1
    assert re.search(note, capsys.readouterr().out)


def test_a_line_break_in_a_cell_is_a_blank(tmp_path):
    rows = 'path,text\na.wav,"one\r\ntwo"\nb.wav,three\n'
    assert [row[1] for row in rows_of(tmp_path, "a.csv", rows)] == ["one two", "three"]


BAD = "path\ttext\na.wav\tone\nb.wav\t\n\ttwo\nc.wav\t#NAME?\nd.wav\tx\ty\n"


def test_all_rows_that_cannot_be_used_are_named_at_once(tmp_path):
    with pytest.raises(ListError, match="4 of 5 rows cannot be used; .*--allow_bad") as error:
        rows_of(tmp_path, "a.tsv", BAD)
    reasons = [line.rpartition("a.tsv:")[2] for line in str(error.value).splitlines()[1:]]
    assert reasons == [
        "3: no text",
        "4: no audio",
        "5: the text is #NAME?, the error of a formula; format the cell as text",
        "6: expected 2 fields, found 3",
    ]


def test_rows_that_cannot_be_used_are_left_out_and_named_if_asked(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text(BAD)
    lines = read_tsv(str(tmp_path / "a.tsv"), None, TableOptions(allow_bad=True))
    assert [line.key for line in lines] == ["a"]
    assert "rows that cannot be used: 4 left out (" in capsys.readouterr().err


def test_a_table_of_times_is_of_the_recording_that_has_its_name(tmp_path):
    rows = "Beginn;Ende;Text\n0:01,5;0:02;eins\n0:03;0:04;zwei\n"
    assert rows_of(tmp_path, "talk.csv", rows) == [
        ("talk_0001500", "eins", 1.5, 2.0),
        ("talk_0003000", "zwei", 3.0, 4.0),
    ]
