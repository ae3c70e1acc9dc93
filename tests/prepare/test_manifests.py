import json
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile

from tests.support.data.nemo_sets import convert
from tests.support.data.tars import everything
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.extraction import extract, read_samples
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.manifests import WRITERS, convert_manifest
from wenet_uio.prepare.own_corpus import read_corpus

NAMES = {"raw": "data.list", "nemo": "manifest.json", "kaldi": "kaldi", "lhotse": "cuts.jsonl.gz"}


@pytest.fixture
def lines(make_utterances):
    """Three whole recordings, and three parts of one recording."""
    whole = make_utterances(3)
    pieces = [(0.0, 0.1), (0.1, 0.25), (0.1, None)]
    return [
        *whole,
        *(
            RawLine(f"piece{number}", whole[0].wav, "ab c", *span)
            for number, span in enumerate(pieces)
        ),
    ]


def content_of(line):
    """The fields that every form must keep; the open end of a part is replaced by the end of its
    recording.
    """
    frames = soundfile.info(line.wav).frames / 16000
    return (
        line.key,
        line.wav,
        line.text,
        round(line.start, 4),
        round(frames if line.end is None else line.end, 4),
    )


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in NAMES for b in NAMES if a != b])
def test_a_round_trip_keeps_key_audio_text_and_segment(lines, tmp_path, first, second):
    if "lhotse" in (first, second):
        pytest.importorskip("lhotse")
    executor = Executor(1, "threads")
    start, there, back = (
        tmp_path / f"{number}.{NAMES[form]}" for number, form in enumerate((first, second, first))
    )
    WRITERS[first](lines, str(start), executor)
    assert convert_manifest(str(start), first, str(there), second, executor) == 6
    assert convert_manifest(str(there), second, str(back), first, executor) == 6
    found = sorted(FORMS[first].read(str(back)), key=lambda line: line.key)
    assert [content_of(line) for line in found] == [
        content_of(line) for line in sorted(lines, key=lambda line: line.key)
    ]


def test_a_round_trip_keeps_the_other_fields(lines, tmp_path):
    pytest.importorskip("lhotse")
    extra = {"speaker": "s1", "language": "en", "snr": 12.5}
    lines = [replace(line, extra=extra) for line in lines]
    for form in ("nemo", "lhotse", "raw"):
        path = str(tmp_path / NAMES[form])
        WRITERS[form](lines, path, Executor())
        for line in FORMS[form].read(path):
            assert extra.items() <= line.extra.items()
    WRITERS["kaldi"](lines, str(tmp_path / "kaldi"), Executor())
    assert (tmp_path / "kaldi" / "utt2spk").read_text().splitlines()[0] == "piece0 s1"
    assert FORMS["kaldi"].read(str(tmp_path / "kaldi"))[0].extra == {
        "speaker": "s1",
        "language": "en",
    }


def test_fields_without_a_kaldi_table_are_named_and_stale_tables_removed(
    make_utterances, tmp_path, capsys
):
    lines = [replace(line, extra={"duration": 1.5, "snr": 3}) for line in make_utterances(2)]
    WRITERS["kaldi"]([replace(line, end=0.2) for line in lines], str(tmp_path / "k"), Executor())
    assert (tmp_path / "k" / "segments").exists()
    WRITERS["kaldi"](lines, str(tmp_path / "k"), Executor())
    assert sorted(path.name for path in (tmp_path / "k").iterdir()) == [
        "text",
        "utt2dur",
        "wav.scp",
    ]
    assert "Kaldi has no table for snr; left out" in capsys.readouterr().err


def test_recordings_with_the_same_file_name_get_different_names(lines, tmp_path):
    other = tmp_path / "other" / Path(lines[0].wav).name
    other.parent.mkdir()
    other.write_bytes(Path(lines[0].wav).read_bytes())
    WRITERS["kaldi"](
        [*lines, RawLine("other", str(other), "a", 0.1, 0.2)], str(tmp_path / "k"), Executor()
    )
    by_key = {line.key: line.wav for line in FORMS["kaldi"].read(str(tmp_path / "k"))}
    assert (by_key["other"], by_key["piece0"]) == (str(other), lines[0].wav)


def test_paths_beside_a_manifest_are_found(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    entry = {"audio_filepath": f"wav/{Path(line.wav).name}", "duration": 1.0, "text": "a"}
    (tmp_path / "manifest.json").write_text(json.dumps(entry) + "\n")
    convert_manifest(
        str(tmp_path / "manifest.json"), "nemo", str(tmp_path / "k"), "kaldi", Executor()
    )
    assert (tmp_path / "k" / "wav.scp").read_text() == f"utt0000 {line.wav}\n"


def test_a_byte_order_mark_before_a_manifest_is_ignored(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    entry = json.dumps({"audio_filepath": line.wav, "text": "a"})
    (tmp_path / "manifest.json").write_text(f"\ufeff{entry}\n", encoding="utf-8")
    assert [found.key for found in FORMS["nemo"].read(str(tmp_path / "manifest.json"))] == [
        line.key
    ]


@pytest.mark.parametrize("to", ["raw", "nemo", "kaldi", "lhotse"])
@pytest.mark.parametrize("form", ["tsv", "csv", "nemo"])
def test_missing_audio_is_named_whatever_the_target(make_utterances, tmp_path, form, to):
    (line,) = make_utterances(1)
    names = [line.wav, "gone.wav", "x" * 5000]
    if form == "nemo":
        text = "".join(
            json.dumps({"audio_filepath": name, "text": "a", "duration": 1.0}) + "\n"
            for name in names
        )
    else:
        rows = [("path", "text"), *((name, "a") for name in names)]
        text = "".join({"tsv": "\t", "csv": ","}[form].join(row) + "\n" for row in rows)
    (tmp_path / "source").write_text(text)
    with pytest.raises(
        ListError, match=r"source: 2 audio file\(s\) not found.*: .*gone.wav, .*xxx"
    ):
        convert_manifest(
            str(tmp_path / "source"), form, str(tmp_path / "out.jsonl"), to, Executor()
        )
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("form", ["raw", "nemo", "tsv", "csv"])
def test_a_missing_relative_path_is_named_in_the_folder_of_the_manifest(
    tmp_path, monkeypatch, form
):
    folder, other = tmp_path / "set", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    row = {"audio_filepath": "wav/gone.wav", "text": "a", "duration": 1.0}
    tables = {"tsv": "path\ttext\nwav/gone.wav\ta\n", "csv": "path,text\nwav/gone.wav,a\n"}
    (folder / "source").write_text(tables.get(form, json.dumps(row) + "\n"))
    monkeypatch.chdir(other)
    message = f"not found: {folder}/wav/gone.wav$"
    if form in tables:
        message = f"audio wav/gone.wav is not in {other}/../set or {other}; see --audio$"
    with pytest.raises(ListError, match=message):
        convert_manifest("../set/source", form, "out", "raw", Executor())


def test_a_missing_path_of_kaldi_is_named_in_the_working_folder(tmp_path, monkeypatch):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "wav.scp").write_text("a wav/gone.wav\n")
    (folder / "text").write_text("a b\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ListError, match=f"not found: {tmp_path}/wav/gone.wav$"):
        convert_manifest("set", "kaldi", "out", "raw", Executor())


def test_a_manifest_of_tars_says_how_the_tars_are_read_and_unpacked(
    make_utterances, tmp_path, monkeypatch
):
    lines = make_utterances(4)
    WRITERS["nemo"](lines, str(tmp_path / "m.json"), Executor())
    assert convert(tmp_path / "m.json", tmp_path / "set", shards=2) == 0
    manifest = tmp_path / "set" / "tarred_audio_manifest.json"
    target = str(tmp_path / "out.list")
    with pytest.raises(ListError, match=r"4 audio file\(s\) not found: .*NeMo's tars") as raised:
        convert_manifest(str(manifest), None, target, "raw", Executor())

    assert f"`{tmp_path}/set/audio_{{0..511}}.tar`, a tab and `{manifest}`" in str(raised.value)
    (tmp_path / "data.list").write_text(f"{tmp_path}/set/audio_{{0..1}}.tar\t{manifest}\n")
    corpus = open_list(str(tmp_path / "data.list"), "shard")
    assert (len(everything(corpus)), corpus.bad) == (4, [])

    assert f"unpack each tar: tools/extract_shard.py TAR --to {tmp_path}/set" in str(raised.value)
    for tar in (tmp_path / "set").glob("*.tar"):
        for sample in read_samples(str(tar)):
            extract(sample, tmp_path / "set")
    assert convert_manifest(str(manifest), None, target, "raw", Executor()) == 4


def test_a_manifest_without_shard_ids_in_a_folder_beside_the_tars_is_known_too(tmp_path):
    manifest = tmp_path / "sharded_manifests" / "manifest_0.json"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps({"audio_filepath": "a-sub1.wav", "text": "a"}) + "\n")
    (tmp_path / "audio_0.tar").touch()
    with pytest.raises(ListError, match="NeMo's tars") as raised:
        convert_manifest(str(manifest), None, str(tmp_path / "out"), "raw", Executor())
    assert "unpack" not in str(raised.value)  # an entry is a part of a member


def test_a_recipe_of_ones_own_corpus_says_what_to_do_with_tars_too(tmp_path):
    entry = {"audio_filepath": "a.wav", "text": "a", "shard_id": 0}
    (tmp_path / "m.json").write_text(json.dumps(entry) + "\n")
    with pytest.raises(ListError, match="audio a.wav is not in .*; see --audio; .*NeMo's tars"):
        read_corpus(tmp_path / "m.json")


def test_a_manifest_of_which_a_file_is_there_has_no_word_of_tars(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    entries = [{"audio_filepath": name, "text": "a"} for name in (line.wav, "gone.wav")]
    (tmp_path / "m.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (tmp_path / "audio_0.tar").touch()
    with pytest.raises(ListError, match="gone.wav$"):
        convert_manifest(str(tmp_path / "m.json"), None, str(tmp_path / "out"), "raw", Executor())


def test_a_manifest_of_files_has_no_word_of_tars(tmp_path):
    (tmp_path / "m.json").write_text('{"audio_filepath": "gone.wav", "text": "a"}\n')
    (tmp_path / "backup.tar").touch()
    with pytest.raises(ListError, match="gone.wav$"):
        convert_manifest(str(tmp_path / "m.json"), None, str(tmp_path / "out"), "raw", Executor())


def test_a_wav_that_is_cut_short_is_named_where_its_length_is_needed(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    Path(line.wav).write_bytes(Path(line.wav).read_bytes()[:2000])
    with pytest.raises(ListError, match=r"utt0000: .*utt0000.wav: cut short"):
        WRITERS["nemo"]([line], str(tmp_path / "out"), Executor())


def test_errors_of_a_conversion_name_the_utterance_or_line(lines, tmp_path):
    WRITERS["raw"]([*lines, lines[0]], str(tmp_path / "twice"), Executor())
    with pytest.raises(ListError, match="key utt0000 comes twice"):
        convert_manifest(str(tmp_path / "twice"), "raw", str(tmp_path / "k"), "kaldi", Executor())
    Path(lines[1].wav).write_bytes(b"no audio")
    with pytest.raises(ListError, match=r"(?s)1 of 3 audio files cannot be read:\n.*utt0001.wav: "):
        WRITERS["nemo"](lines, str(tmp_path / "out"), Executor())
    with pytest.raises(ListError, match="the key 'a b' must have no space"):
        WRITERS["kaldi"]([replace(lines[0], key="a b")], str(tmp_path / "k"), Executor())
    (tmp_path / "bad").write_text('{"key": 1}\n')
    with pytest.raises(ListError, match="bad:1: needs strings wav and txt"):
        convert_manifest(str(tmp_path / "bad"), "raw", str(tmp_path / "out"), "nemo", Executor())
    with pytest.raises(ListError, match="bad: no such folder; expected a Kaldi directory"):
        convert_manifest(str(tmp_path / "bad"), "kaldi", str(tmp_path / "out"), "nemo", Executor())
    assert not (tmp_path / "out").exists()
