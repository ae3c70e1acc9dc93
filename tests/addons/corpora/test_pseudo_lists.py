"""Lists of pseudo labels: raw lists, shards with and without texts, counts, mixtures."""

import json
import tarfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from tests.support.data.packing import pack
from wenet_uio.addons.corpora.pseudo_labels import Limits
from wenet_uio.addons.corpora.pseudo_lists import write_labelled, write_mixture, write_unlabelled
from wenet_uio.config.mixture import load_mixture
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.types import AudioUtterance, SampleRef
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.sharding import ShardOptions

KEYS = ["u3", "u1", "u2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three utterances of 1, 2 and 3 seconds as raw list and as shards, and the results of a
    recognition.
    """
    monkeypatch.chdir(tmp_path)
    for place, key in enumerate(KEYS, 1):
        soundfile.write(f"{key}.wav", np.full(8000 * place, 0.1), 8000)
    lines = [
        RawLine(key, str(tmp_path / f"{key}.wav"), "secret", extra={"speaker": "s"}) for key in KEYS
    ]
    assert make_raw_list(lines, "raw.list") == []
    assert pack(lines, "shards", "shard.list", ShardOptions(per_shard=2)) == []
    Path("out").mkdir()
    hypotheses = [{"text": f"text {key}", "score": -1.0, "confidence": 0.9} for key in KEYS]
    hypotheses[1]["confidence"] = 0.2
    Path("out/nbest.jsonl").write_text(
        "".join(
            json.dumps({"key": key, "hypotheses": [best]}) + "\n"
            for key, best in zip(KEYS, hypotheses, strict=True)
        )
    )
    return tmp_path


def samples(data_list, data_type):
    corpus = open_list(data_list, data_type)
    refs = [
        SampleRef(shard, row)
        for shard in range(corpus.num_shards)
        for row in range(corpus.samples[shard])
    ]
    return {each.key: each for each in map(corpus.read, refs)}


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_labels_replace_the_texts_of_raw_lists_and_of_shards(folder, data_type):
    write_unlabelled(f"{data_type}.list", data_type, "more/unlabelled.list")
    assert {
        key: each.text for key, each in samples("more/unlabelled.list", data_type).items()
    } == dict.fromkeys(KEYS, "")
    limits = Limits(min_confidence=0.5)
    counts = write_labelled("more/unlabelled.list", data_type, "out", limits, "more/data.list")
    found = samples("more/data.list", data_type)
    assert {key: each.text for key, each in found.items()} == {"u3": "text u3", "u2": "text u2"}
    assert counts == json.loads(Path("more/data.list.json").read_text())
    kept = {"utterances": 2, "seconds": 4.0, "characters": 14, "changed_texts": 0}
    assert counts["kept"] == kept
    assert counts["left_out"] == {"confidence": {"utterances": 1, "seconds": 2.0}}
    assert counts["utterances"] == 3
    assert counts["limits"]["min_confidence"] == 0.5
    left_out = json.loads(Path("more/data.list.left_out.jsonl").read_text())
    assert left_out == {"key": "u1", "reason": "confidence", "detail": "0.2"}


def test_tars_are_not_changed_and_left_out_samples_say_why(folder):
    before = {path: path.read_bytes() for path in Path("shards").glob("*.tar")}
    write_unlabelled("shard.list", "shard", "unlabelled.list")
    assert open_list("unlabelled.list", "shard").bad == []
    write_labelled("unlabelled.list", "shard", "out", Limits(min_confidence=0.5), "data.list")
    assert {path: path.read_bytes() for path in Path("shards").glob("*.tar")} == before
    assert open_list("data.list", "shard").bad == [("u1", "pseudo label: confidence")]


def test_a_raw_list_without_texts_and_with_relative_paths_is_labelled_and_keeps_its_fields(folder):
    Path("sub").mkdir()
    lines = [{"key": key, "wav": f"../{key}.wav", "speaker": "s"} for key in KEYS]
    Path("sub/raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_unlabelled("sub/raw.list", "raw", "unlabelled.list")
    write_labelled("unlabelled.list", "raw", "out", Limits(), "labels/data.list")
    found = samples("labels/data.list", "raw")
    assert [(each.text, each.extra["speaker"]) for each in found.values()] == [
        (f"text {key}", "s") for key in KEYS
    ]


def test_tars_of_audio_alone_are_labelled(folder):
    with tarfile.open("audio.tar", "w") as tar:
        for key in KEYS:
            tar.add(f"{key}.wav")
    Path("audio.list").write_text("audio.tar\n")
    write_unlabelled("audio.list", "shard", "unlabelled.list")
    write_labelled("unlabelled.list", "shard", "out", Limits(), "data.list")
    assert [each.text for each in samples("data.list", "shard").values()] == [
        f"text {key}" for key in KEYS
    ]


def test_segments_of_a_manifest_stay_segments(folder):
    with tarfile.open("audio_7.tar", "w") as tar:
        tar.add("u2.wav")
    entries = [
        {"audio_filepath": "u2.wav", "text": "", "offset": start, "duration": 1.0}
        for start in (0.0, 1.5)
    ]
    Path("manifest.json").write_text(
        "".join(json.dumps(each | {"shard_id": 7}) + "\n" for each in entries)
    )
    Path("nemo.list").write_text("audio_7.tar\tmanifest.json\t7\n")
    write_unlabelled("nemo.list", "shard", "unlabelled.list")
    keys = list(samples("unlabelled.list", "shard"))
    Path("out/nbest.jsonl").write_text(
        "".join(json.dumps({"key": key, "hypotheses": [{"text": key}]}) + "\n" for key in keys)
    )
    write_labelled("unlabelled.list", "shard", "out", Limits(), "data.list")
    found = samples("data.list", "shard").values()
    excerpts = [each for each in found if isinstance(each, AudioUtterance)]
    assert [(each.text, each.start, each.end) for each in excerpts] == [
        (keys[0], 0.0, 1.0),
        (keys[1], 1.5, 2.5),
    ]


def test_audio_that_cannot_be_read_is_counted_and_listed(folder):
    Path("u1.wav").write_bytes(b"")
    write_unlabelled("raw.list", "raw", "unlabelled.list")
    counts = write_labelled("unlabelled.list", "raw", "out", Limits(), "data.list")
    assert counts["utterances"] == 3
    assert counts["left_out"] == {"not_indexed": {"utterances": 1, "seconds": 0.0}}
    assert json.loads(Path("data.list.left_out.jsonl").read_text())["key"] == "u1"


def test_an_error_says_why_no_utterance_gets_a_label(folder):
    write_unlabelled("raw.list", "raw", "unlabelled.list")
    with pytest.raises(
        ListError, match=r"no utterance gets a label \(short 3\); see data.list.left_out.jsonl"
    ):
        write_labelled("unlabelled.list", "raw", "out", Limits(min_seconds=60), "data.list")
    assert not Path("data.list.json").exists()


def test_bad_and_empty_lists_are_refused_by_line(folder):
    Path("bad.list").write_text('{"wav": "a.wav"}\nnot json\n')
    with pytest.raises(ListError, match=r"bad\.list:2: not JSON"):
        write_unlabelled("bad.list", "raw", "unlabelled.list")
    Path("bad.list").write_text("\n")
    with pytest.raises(ListError, match=r"bad\.list: the list is empty"):
        write_unlabelled("bad.list", "raw", "unlabelled.list")
    assert not Path("unlabelled.list").exists()


def test_a_mixture_weighs_transcribed_and_labelled_utterances(folder):
    write_unlabelled("raw.list", "raw", "unlabelled.list")
    write_labelled("unlabelled.list", "raw", "out", Limits(min_confidence=0.5), "data.list")
    write_mixture("raw.list", "data.list", "raw", "mixture.yaml")
    assert open_corpus("mixture.yaml", "raw").num_samples == 5
    write_mixture("raw.list", "data.list", "raw", "weighed.yaml", 0.75)
    assert [source.weight for source in load_mixture("weighed.yaml").sources] == [0.75, 0.25]
    write_mixture("mixture.yaml", "data.list", "raw", "nested.yaml", 0.5)
    assert yaml.safe_load(Path("nested.yaml").read_text())[0] == {
        "type": "group",
        "input_cfg": "mixture.yaml",
        "weight": 0.5,
    }
    assert open_corpus("nested.yaml", "raw").num_samples
    with pytest.raises(ValueError, match="above 0 and below 1, found 1"):
        write_mixture("raw.list", "data.list", "raw", "mixture.yaml", 1)
    with pytest.raises(FileNotFoundError, match="no such data list"):
        write_mixture("missing.list", "data.list", "raw", "mixture.yaml")


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_the_parts_have_each_line_of_the_list_once_whatever_was_there(folder, data_type):
    for lines in (1, 2, 5, 0, 2):
        write_unlabelled(f"{data_type}.list", data_type, "un.list", lines)
        whole = Path("un.list").read_text().splitlines()
        parts = [
            path.read_text().splitlines() for path in sorted(Path(".").glob("un.list.parts/*"))
        ]
        if lines:
            assert sorted(chain(*parts)) == sorted(whole)
            assert max(map(len, parts)) <= lines
        else:
            assert parts == []

    with pytest.raises(ValueError, match="part_lines: expected 0 or more, found -1"):
        write_unlabelled(f"{data_type}.list", data_type, "un.list", -1)


def test_a_line_without_usable_audio_is_in_no_part_and_is_counted(folder):
    Path("bad.wav").write_bytes(b"no audio")
    with Path("raw.list").open("a") as file:
        file.write(json.dumps({"key": "bad", "wav": "bad.wav"}) + "\n")
    write_unlabelled("raw.list", "raw", "un.list", 1)
    parts = [path.read_text() for path in sorted(Path("un.list.parts").iterdir())]
    assert [json.loads(part)["key"] for part in parts] == KEYS
    counts = write_labelled("un.list", "raw", "out", Limits(), "data.list")
    assert counts["left_out"]["not_indexed"]["utterances"] == 1
    assert counts["utterances"] == 4
