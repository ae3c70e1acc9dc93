from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.data.parquet import write_table
from tests.support.data.tars import wav
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.corpus_parts import Recording
from wenet_uio.prepare.embedded import read_parquet, with_audio, write_audio
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.manifests import convert_manifest


def test_audio_is_written_inside_its_folder_whatever_the_keys_are(tmp_path):
    keys = ["../../up", "/etc/x", "a/b", "a%2Fb"]
    audio = [{"bytes": wav(0.1, seed=seed), "path": "a.wav"} for seed in range(len(keys))]
    rows = [{"audio": each, "text": "x", "id": key} for each, key in zip(audio, keys, strict=True)]
    write_table(tmp_path / "t.parquet", rows, 3)
    lines = read_parquet(str(tmp_path / "t.parquet"))
    assert [line.key for line in lines] == keys
    written = write_audio([(line.wav, line.key) for line in lines], tmp_path / "audio")
    assert {Path(path).parent for path in written.values()} == {tmp_path / "audio"}
    assert [Path(written[line.wav]).read_bytes() for line in lines] == [
        row["audio"]["bytes"] for row in rows
    ]


def test_rows_without_audio_or_text_are_left_out_counted_and_named(tmp_path, capsys):
    audio = {"bytes": wav(0.1), "path": "a.wav"}
    rows = [{"audio": audio, "text": "a"}, {"audio": {"bytes": None, "path": "b.wav"}, "text": "b"}]
    rows += [
        {"audio": audio | {"path": "c.wav"}, "text": " "},
        {"audio": audio | {"path": "d.wav"}, "text": None},
    ]
    write_table(tmp_path / "t.parquet", rows, 3)
    told = f"{tmp_path}/a.list.audio: rows without audio: 1 left out ({tmp_path}/t.parquet: b)"
    assert (
        convert_manifest(
            str(tmp_path / "t.parquet"), None, str(tmp_path / "a.list"), "raw", Executor()
        )
        == 1
    )
    assert told in capsys.readouterr().err
    lines = read_parquet(str(tmp_path / "t.parquet"))
    assert [line.key for line in lines] == ["a", "b"]
    assert "t.parquet: rows without a text: 2 left out" in capsys.readouterr().err
    parts = {"train": [Recording(line.key, Path(line.wav), line.text) for line in lines]}
    assert [each.key for each in with_audio(parts, tmp_path)["train"]] == ["a"]


def test_a_set_whose_rows_have_paths_in_place_of_audio_is_refused(tmp_path):
    write_table(
        tmp_path / "t.parquet", [{"audio": {"bytes": None, "path": "a.wav"}, "text": "x"}], 1
    )
    (line,) = read_parquet(str(tmp_path / "t.parquet"))
    with pytest.raises(
        ListError,
        match="t.parquet: a: no audio in its row, only a path; save the set with its audio",
    ):
        write_audio([(line.wav, line.key)], tmp_path / "audio")


def test_rows_that_state_equal_paths_get_keys_by_the_one_rule(tmp_path):
    row = {"audio": {"bytes": wav(0.1), "path": "audio.wav"}, "text": "x"}
    for name in ("0.parquet", "1.PARQUET"):
        write_table(tmp_path / name, [row, row], 1)
    lines = read_parquet(str(tmp_path))
    assert [line.key for line in lines] == ["audio", "audio-sub1", "audio-sub2", "audio-sub3"]
    assert len({line.wav for line in lines}) == 4


def test_the_column_of_several_columns_of_texts_is_named(tmp_path, capsys):
    row = {"audio": {"bytes": wav(0.1), "path": "a.wav"}, "transcription": "1", "sentence": "one"}
    write_table(tmp_path / "t.parquet", [row], 1)
    for field, text in ((None, "one"), ("transcription", "1")):
        (line,) = read_parquet(str(tmp_path / "t.parquet"), field)
        assert line.text == text
    told = f"{tmp_path}/t.parquet: the column sentence has the texts; --text_field transcription takes another column\n"
    assert capsys.readouterr().out == told


@pytest.mark.third
@pytest.mark.parametrize("form", ["raw", "nemo", "kaldi", "lhotse"])
@pytest.mark.parametrize(
    "times",
    [
        {"offset": 0.1, "duration": 0.2},
        {"start": 0.1, "end": 0.2},
        {"start": 0.1},
        {"begin": 0.1, "end": 0.2},
        {"start_time": 0.1, "end_time": 0.2},
    ],
)
def test_columns_of_times_cut_nothing_in_any_list_and_that_is_said(tmp_path, capsys, form, times):
    if form == "lhotse":
        pytest.importorskip("lhotse")
    audio = {"bytes": wav(0.4), "path": "a.wav"}
    write_table(tmp_path / "t.parquet", [{"audio": audio, "text": "a", **times}], 1)
    target = str(tmp_path / {"kaldi": "kaldi", "lhotse": "o.jsonl.gz"}.get(form, "o.list"))
    assert convert_manifest(str(tmp_path / "t.parquet"), None, target, form, Executor()) == 1

    (line,) = FORMS[form].read(target)
    assert (line.start, line.end) == (0.0, None)
    assert line.extra.get("duration", 0.4) == 0.4
    told = capsys.readouterr().err
    assert f"{' and '.join(times)} cut" in told
    assert "nothing: the audio of a row is taken whole" in told
