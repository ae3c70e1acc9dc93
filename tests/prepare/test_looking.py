"""A corpus that is not clear gets one line that says what was found and what to give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.data.transcripts import with_audio
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.looking import detect_form
from wenet_uio.prepare.own_corpus import ReadOptions, into_parts, read_transcripts

CUE = "1\n00:00:01,000 --> 00:00:02,000\none\n"
GRID = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n9\n<exists>\n2\n'
GRID += '"IntervalTier"\n"{}"\n0\n9\n1\n0\n9\n"one two"\n"IntervalTier"\n"{}"\n0\n9\n2\n0\n4\n"1"\n4\n9\n"two 2"\n'


def write(folder, files: dict[str, str]):
    for name, text in files.items():
        with_audio(folder, name)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ({"a.wav": "", "a.txt": "one", "README.txt": "about", "LICENSE": ""}, "pairs"),
        ({"d/a.flac": "", "d/a.lab": "one"}, "pairs"),
        ({"a.wav": "", "a.normalized.txt": "one", "a.original.txt": "1"}, "pairs"),
        ({"wavs/a.wav": "", "metadata.csv": "a|1|one\nb|2|two\n"}, "ljspeech"),
        ({"wavs/a.wav": "", "metadata.csv": "a|One, two\nb|2, and 3\n"}, "ljspeech"),
        ({"wavs/a.wav": "", "metadata.csv": "a|1|one\nb|two\nc|3|\n"}, "ljspeech"),
        ({"a.wav": "", "metadata.csv": "file_name,transcription\na.wav,yes|no\n"}, "csv"),
        ({"a.wav": "", "metadata.csv": "a.wav,yes|no\n"}, "csv"),
        ({"a.wav": "", "metadata.jsonl": '{"file_name": "a.wav", "text": "one"}\n'}, "nemo"),
        ({"1/2/1-2-3.flac": "", "1/2/1-2.trans.txt": "1-2-3 ONE\n"}, "transcripts"),
        ({"wav/a.wav": "", "etc/PROMPTS": "a ONE\n"}, "transcripts"),
        ({"a.wav": "", "a.en.srt": CUE}, "srt"),
        ({"a.wav": "", "a.vtt": f"WEBVTT\n\n{CUE}"}, "vtt"),
        ({"a.wav": "", "A.TEXTGRID": "", "a.TextGrid": ""}, "textgrid"),
        ({"a.wav": "", "b.wav": "", "all.ctm": "a 1 0 1 one\n"}, "ctm"),
        ({"wav.scp": "", "text": "", "a.wav": "", "a.txt": "one"}, "kaldi"),
        ({"train.srt": CUE}, "srt"),
    ],
)
def test_the_form_of_a_folder_is_found_out_by_looking(files, form, tmp_path):
    assert detect_form(write(tmp_path, files)) == form


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("all.txt", "a one\nb two\n", "transcripts"),
        ("all.txt", "a|one\nb|two\n", "ljspeech"),
        ("transcripts.txt", "a|one\n", "transcripts"),
        ("a.SRT", CUE, "srt"),
        ("all.ctm", "a 1 0 1 one", "ctm"),
    ],
)
def test_the_form_of_a_file_is_found_out_by_looking(name, text, form, tmp_path):
    write(tmp_path, {name: text})
    assert detect_form(tmp_path / name) == form


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (
            {},
            {},
            "no form of corpus is recognised: it has no file; name a file of transcripts, or give "
            "--form raw, ",
        ),
        (
            {"clips/a.mp3": "", "clip_durations.tsv": "clip\n", "train.tsv": "path\tsentence\n"},
            {},
            "name a file of transcripts, such as train.tsv, or give",
        ),
        (
            {"a.wav": "", "metadata.csv": "path,text\ra.wav,one\n"},
            {},
            "csv:1: a carriage return inside a line; ",
        ),
        (
            {"a.wav": "", "metadata.csv": "a|one\rb|two\n"},
            {},
            "metadata.csv:1: a carriage return inside a line; make",
        ),
        (
            {"a.wav": "", "a.txt": "o\0n\0"},
            {},
            "a.txt: holds NUL characters; convert the file with iconv if it is ",
        ),
        (
            {"a.wav": "", "metadata.csv": "path\0,text\n"},
            {},
            "metadata.csv:1: holds NUL characters; convert the file",
        ),
        (
            {"a.wav": "", "b.txt": "one"},
            {},
            r"1 audio files, and none has a file of text of the same name \(1 .*, 1 ",
        ),
        (
            {"a.wav": "", "a.txt": "one", "a.srt": CUE},
            {},
            r"may be a file with the text .* \(a.txt\): --form pairs, or SRT subtitles .* "
            r"\(a.srt\): --form srt$",
        ),
        (
            {"a.wav": "", "metadata.csv": "a|one\n", "a.txt": "one"},
            {},
            "may be a table with bars, .*--form ljspeech, or .*--form pairs",
        ),
        (
            {"a.wav": "", "a.txt": "one", "a.lab": "ONE"},
            {},
            "a.wav: its text may be a.lab or a.txt; name one: --text_field lab or --text_field txt",
        ),
        (
            {"a.wav": "", "a.en.srt": CUE, "a.de.srt": CUE},
            {},
            "--text_field de.srt or --text_field en.srt",
        ),
        ({"a.wav": "", "a.txt": "one"}, {"text_field": "lab"}, "no file lab in it"),
        ({"a.wav": "", "a.txt": " \n"}, {}, "no utterance in it"),
        (
            {"a.wav": "", "a.srt": "hello"},
            {},
            "a.srt:1: expected the number or the times of a cue, found 'hello'",
        ),
        ({"a.wav": "", "a.srt": ""}, {}, "a.srt: no subtitle in it, such as 00:00:01,000 --> "),
        (
            {"a.wav": "", "a.srt": CUE.replace("02,", "00,")},
            {},
            "a.srt:2: a cue starts at 1.0 s and ends at 0.0 s",
        ),
        (
            {"a.wav": "", "a.srt": CUE.replace("-->", "->")},
            {},
            "a.srt:2: expected times as 00:00:01,000 --> 00:00:02,500",
        ),
        (
            {"a.wav": "", "a.vtt": f"WEBVTT\n\n{CUE}".replace("00:00:02,", "2,")},
            {},
            "a.vtt:4: expected times as 00",
        ),
        (
            {"a.wav": "", "a.flac": "", "a.txt": "one"},
            {},
            "a.txt: its audio may be a.flac or a.wav; move one of them",
        ),
        ({"a.wav": "", "a.TextGrid": "x"}, {}, "a.TextGrid: not a TextGrid of Praat"),
        (
            {"a.wav": "", "a.TextGrid": GRID.format("A", "B")[:100]},
            {},
            "a.TextGrid: a TextGrid that is cut short",
        ),
        (
            {"a.wav": "", "a.TextGrid": GRID.format("ann", "bo")},
            {},
            r"several tiers have texts \(ann, bo\); name one of them: --text_field ann",
        ),
        (
            {"a.wav": "", "a.TextGrid": GRID.format("a", "b")},
            {"text_field": "c"},
            "no tier c; its tiers .* a, b",
        ),
        (
            {"a.wav": "", "x.ctm": "a 1 0\n"},
            {},
            "x.ctm:1: expected recording channel start duration word, found 'a 1",
        ),
        ({"a.wav": "", "x.ctm": "b 1 0 1 one\n"}, {}, "audio b is not in "),
        (
            {"a.wav": "", "a.tsv": "one"},
            {"path": "a.tsv", "form": "srt"},
            "a.tsv:1: expected the number or the times of",
        ),
        (
            {"a.wav": "", "a.wrd": "a 1 0"},
            {"path": "a.wrd", "form": "ctm"},
            "a.wrd:1: expected recording channel start",
        ),
        ({"a.wav": "", "a.txt": "one"}, {"form": "ctm"}, "no file .ctm in it"),
        ({"a.wav": "", "x.ctm": "a 1 nan 1 one\n"}, {}, "x.ctm:1: starts at nan s and lasts 1.0 s"),
        (
            {"a.wav": "", "metadata.tsv": "path\ttext\tText\na.wav\t1\t2\n"},
            {},
            "tsv:1: two columns are named as text",
        ),
        (
            {"a.wav": "", "metadata.tsv": "path\ttext\tstart\na.wav\t1\tinf\n"},
            {},
            "start: expected a number, found",
        ),
        (
            {"a.wav": "", "a.TextGrid": GRID.format("x", "x")},
            {},
            "2 tiers with texts are named x; rename one of them",
        ),
        (
            {"a.wav": "", "metadata.csv": "a|one\nb|two|2\n"},
            {"form": "ljspeech"},
            "2: expected 2 columns .* 3$",
        ),
        ({"a.wav": "", "metadata.csv": "a|one|\n"}, {}, "metadata.csv:1: no text in column 3"),
        (
            {"a.wav": "", "metadata.csv": "a|one\n"},
            {"text_field": "normalized"},
            "--text_field can be raw",
        ),
        (
            {"a.wav": "", "transcripts.txt": "a\n"},
            {},
            "transcripts.txt:1: expected a name and a text, found 'a'",
        ),
        (
            {"1/a.wav": "", "2/a.wav": "", "transcripts.txt": "a one\n"},
            {},
            "audio a may be .*1/a.wav or .*2/a.wav",
        ),
        (
            {"a.wav": "", "b.wav": "", "transcripts.txt": "a one\nc two\n"},
            {},
            "c: audio c is not in ",
        ),
    ],
)
def test_an_unclear_corpus_is_refused_with_one_line(files, options, message, tmp_path):
    with pytest.raises(ValueError, match=message) as error:
        chosen = {name: value for name, value in options.items() if name != "path"}
        read_transcripts(write(tmp_path, files) / options.get("path", "."), ReadOptions(**chosen))
    assert "\n" not in str(error.value)


def test_a_text_in_another_encoding_is_named_with_its_line(tmp_path):
    write(tmp_path, {"a.wav": ""})
    (tmp_path / "a.txt").write_bytes("one\ncafé".encode("latin-1"))
    with pytest.raises(ListError, match="a.txt:2: not UTF-8; convert the file with iconv"):
        read_transcripts(tmp_path)


@pytest.mark.parametrize(
    ("files", "field", "text"),
    [
        ({"a.wav": "", "a.txt": "one", "a.lab": "ONE"}, "lab", "ONE"),
        ({"a.wav": "", "a.original.txt": "1", "a.normalized.txt": "one"}, "normalized", "one"),
        ({"a.wav": "", "a.en.srt": CUE, "a.de.srt": CUE.replace("one", "eins")}, "de", "eins"),
        ({"a.wav": "", "a.TextGrid": GRID.format("ann", "bo")}, "ann", "one two"),
        ({"wavs/a.wav": "", "metadata.csv": "a|1|one\n"}, "raw", "1"),
        ({"wavs/a.wav": "", "metadata.csv": "a|1|one\n"}, None, "one"),
        ({"a.wav": "", "metadata.csv": "path,text,said\na.wav,1,one\n"}, "said", "one"),
        (
            {"a.wav": "", "metadata.jsonl": '{"wav": "a.wav", "text": "1", "said": "one"}\n'},
            "said",
            "one",
        ),
        (
            {"d/a.wav": "", "metadata.jsonl": '{"file_name": "d/a.wav", "transcription": "one"}\n'},
            None,
            "one",
        ),
        (
            {
                "d/a.wav": "",
                "metadata.jsonl": '{"file_name": "d/a.wav", "text": "1", "said": "one"}\n',
            },
            "said",
            "one",
        ),
        (
            {
                "a.wav": "",
                "metadata.jsonl": '{"file_name": "a.wav", "sentence": "1", "text": "one"}\n',
            },
            "text",
            "one",
        ),
        (
            {"a.wav": "", "a.txt": "one", "._a.wav": "", "._a.txt": "1", "__MACOSX/._a.wav": ""},
            None,
            "one",
        ),
    ],
)
def test_one_word_chooses_among_several_texts(files, field, text, tmp_path):
    (line,) = read_transcripts(write(tmp_path, files), ReadOptions(text_field=field))
    assert line.text == text


def test_what_is_left_out_is_counted_and_named(tmp_path, capsys):
    files = {"a.wav": "", "a.txt": "one", "b.wav": "", "b.txt": "", "c.wav": "", "d.txt": "four"}
    assert [line.key for line in read_transcripts(write(tmp_path, files))] == ["a"]
    told = capsys.readouterr()
    assert [
        line.partition(": ")[2].replace(str(tmp_path), "") for line in told.err.splitlines()
    ] == [
        "audio without a text: 1 left out (/c.wav)",
        "texts without audio: 1 left out (/d.txt)",
        "files without a text: 1 left out (/b.txt)",
    ]
    assert told.out.startswith(
        f"{tmp_path}: a file with the text beside each audio file (--form pairs); 1 utterances"
    )


@pytest.mark.parametrize(
    ("file", "said"), [("a\u0308", "\u00e4"), ("\u00e4", "a\u0308"), ("o\u00e4", "o\u00e4")]
)
def test_accents_may_be_parts_of_letters_or_characters_of_their_own(file, said, tmp_path):
    write(tmp_path / "pairs", {f"{file}.wav": "", f"{said}.txt": "one"})
    write(tmp_path / "names", {f"d/{file}.wav": "", "transcripts.txt": f"{said} one\n"})
    write(tmp_path / "table", {f"{file}.wav": "", "metadata.tsv": f"path\ttext\n{said}.wav\tone\n"})
    for folder in ("pairs", "names", "table"):
        (line,) = read_transcripts(tmp_path / folder)
        assert (line.text, Path(line.wav).name) == ("one", f"{file}.wav")


def test_rows_of_ljspeech_without_a_text_are_left_out_counted_and_named(tmp_path, capsys):
    write(tmp_path, {"a.wav": "", "b.wav": "", "metadata.csv": "b|2\na|1|one\nc|3|\n"})
    assert [(line.key, line.text) for line in read_transcripts(tmp_path)] == [("a", "one")]
    told = capsys.readouterr()
    table = tmp_path / "metadata.csv"
    assert told.err.startswith(
        f"{table}: rows without a text in column 3: 2 left out ({table}:1, {table}:3)\n"
    )
    assert told.out.startswith(
        f"{table}: the texts are the third column; --text_field raw takes the second\n"
    )
    (tmp_path / "c.wav").touch()
    assert [line.text for line in read_transcripts(tmp_path, ReadOptions(text_field="raw"))] == [
        "2",
        "1",
        "3",
    ]


def test_the_column_of_several_columns_of_texts_is_named(tmp_path, capsys):
    write(tmp_path, {"a.wav": "", "a.tsv": "path\tSentence\ttext\na.wav\tone\t1\n"})
    assert [line.text for line in read_transcripts(tmp_path / "a.tsv")] == ["1"]
    told = capsys.readouterr().out.splitlines()[0]
    assert (
        told
        == f"{tmp_path}/a.tsv: the column text has the texts; --text_field sentence takes another "
        "column"
    )
    assert [
        line.text
        for line in read_transcripts(tmp_path / "a.tsv", ReadOptions(text_field="sentence"))
    ] == ["one"]
    assert "takes another column" not in capsys.readouterr().out


def test_subtitles_that_begin_at_once_are_utterances_and_those_of_equal_times_are_one(tmp_path):
    cues = [
        CUE.replace("01,", "00,"),
        CUE,
        CUE,
        CUE.replace("one", "on"),
        CUE.replace("02,", "03,"),
    ]
    parts = into_parts(
        read_transcripts(write(tmp_path, {"a.wav": "", "a.srt": "\n".join(cues)})), "keep"
    )
    found = sorted((line.key, line.text) for of in parts.values() for line in of)
    assert found == [("a_0000000", "one"), ("a_0001000-2", "one on"), ("a_0001000-3", "one")]


@pytest.mark.parametrize(
    "files",
    [{"metadata.csv": "a|one\n"}, {"transcripts.txt": "a one\n"}, {"x.ctm": "a 1 0 1 one\n"}],
)
def test_audio_that_a_table_does_not_name_is_counted_and_named(files, tmp_path, capsys):
    write(tmp_path, {"d/a.wav": "", "d/b.wav": "", "c.flac": "", **files})
    read_transcripts(tmp_path / "d" / "..")
    told = capsys.readouterr().err
    assert "audio without a text: 2 left out (" in told
    assert "a.wav" not in told


def test_both_sides_of_a_call_may_begin_at_once(tmp_path):
    lines = read_transcripts(
        write(tmp_path, {"a.wav": "", "x.ctm": "a A 0 1 one\na B 0 1 two\n"}), ReadOptions()
    )
    assert [(line.key, line.text) for line in lines] == [
        ("a_0000000_0", "one"),
        ("a_0000000_1", "two"),
    ]
