"""Exports of Label Studio and lists of FunASR."""

from __future__ import annotations

import json

import pytest

from tests.support.data.transcripts import with_audio
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.own_corpus import ReadOptions, read_transcripts


def read(path, **options):
    lines = read_transcripts(path, ReadOptions(**options))
    return [
        (line.key, line.wav.rpartition("/")[2], line.text, line.start, line.end) for line in lines
    ]


def exported(tmp_path, tasks):
    with_audio(tmp_path, "audio/a.wav", "audio/b c.wav")
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    return tmp_path / "export.json"


def result(name, kind, **value):
    return {"id": name, "from_name": kind, "type": kind, "value": value}


def task(wav, *results, **annotation):
    return {"id": 1, "data": {"audio": wav}, "annotations": [{"result": results, **annotation}]}


UPLOADED = "/data/upload/3/1a2b3c4d-a.wav"
LOCAL = "/data/local-files/?d=audio/b%20c.wav"


def test_regions_are_utterances_and_other_texts_are_those_of_their_file(tmp_path):
    regions = [
        result("y", "labels", start=2.0, end=3.5, channel=0, labels=["Speaker 2"]),
        result("y", "transcription", start=2.0, end=3.5, text=["second", "part"]),
        result("x", "labels", start=0.5, end=1.0, labels=["Speaker 1"]),
        result("x", "transcription", start=0.5, end=1.0, text=["first"]),
    ]
    tasks = [task(UPLOADED, *regions), task(LOCAL, result("z", "transcription", text=["whole"]))]
    assert read(exported(tmp_path, tasks)) == [
        ("a_0000500", "a.wav", "first", 0.5, 1.0),
        ("a_0002000", "a.wav", "second part", 2.0, 3.5),
        ("b_c", "b c.wav", "whole", 0.0, None),
    ]


def test_one_control_is_chosen_and_cancelled_work_is_not_read(tmp_path, capsys):
    texts = [result("x", name, start=0, end=1, text=[name]) for name in ("english", "german")]
    cancelled = task(LOCAL, result("z", "english", text=["x"]), was_cancelled=True)
    path = exported(tmp_path, [task(UPLOADED, *texts), cancelled])
    assert [row[2] for row in read(path, text_field="german")] == ["german"]
    assert "tasks without a text: 1 left out (audio/b c.wav)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ({"transcription": "whole"}, [("a", "a.wav", "whole", 0.0, None)]),
        (
            {"label": [{"start": 0, "end": 1, "labels": ["S"]}], "transcription": "one"},
            [("a_0000000", "a.wav", "one", 0.0, 1.0)],
        ),
        (
            {
                "label": [{"start": 0, "end": 1}, {"start": 1, "end": 2}],
                "transcription": ["one", "two"],
            },
            [("a_0000000", "a.wav", "one", 0.0, 1.0), ("a_0001000", "a.wav", "two", 1.0, 2.0)],
        ),
    ],
)
def test_the_short_form_has_lists_of_times_and_texts(tmp_path, values, rows):
    assert read(exported(tmp_path, [{"audio": UPLOADED, "id": 1, **values}])) == rows


def test_its_tables_name_uploaded_files(tmp_path):
    exported(tmp_path, [])
    (tmp_path / "export.csv").write_text(f"audio,id,transcription\n{UPLOADED},1,one\n")
    assert read(tmp_path / "export.csv") == [("1", "a.wav", "one", 0.0, None)]


@pytest.mark.parametrize(
    ("content", "message"),
    [("[1]", "expected an array of tasks"), ("[{", "not JSON"), ('[{"x": 1}]', "no audio; .* x")],
)
def test_other_json_is_refused(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ListError, match=message):
        read(tmp_path / "a.json")


@pytest.mark.parametrize(
    "line",
    [
        {"key": "u", "source": "audio/a.wav", "source_len": 90, "target": "one", "target_len": 1},
        {
            "key": "u",
            "messages": [
                {"role": "system", "content": "transcribe"},
                {"role": "user", "content": "<|startofspeech|>!audio/a.wav<|endofspeech|>"},
                {"role": "assistant", "content": "one"},
            ],
        },
    ],
)
def test_lists_of_funasr_are_read(tmp_path, line):
    exported(tmp_path, [])
    (tmp_path / "train.jsonl").write_text(json.dumps(line) + "\n")
    assert read(tmp_path / "train.jsonl") == [("u", "a.wav", "one", 0.0, None)]
