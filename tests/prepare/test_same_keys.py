"""Every tool gives utterances without a key the same keys."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.data.nemo_sets import convert as tarred
from tests.support.data.nemo_sets import corpus_of as tarred_corpus
from tests.support.data.nemo_sets import entries_of
from tests.support.data.packing import pack
from tests.support.data.tars import everything, wav
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import with_distinct_keys
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.manifests import convert_manifest
from wenet_uio.prepare.own_corpus import into_parts, read_transcripts

NAMES = ("d1/a.wav", "d2/a.wav", "d2/my b.wav")
KEYS = ["d1-a", "d2-a", "d2-my_b"]


@pytest.fixture
def manifest(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(wav(seed=len(name)))
    entries = [{"audio_filepath": name, "text": "x"} for name in NAMES]
    (tmp_path / "nemo.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (tmp_path / "a.tsv").write_text("path\ttext\n" + "".join(f"{name}\tx\n" for name in NAMES))
    return str(tmp_path / "nemo.json")


def keys_in(data_list, data_type):
    return [each.key for each in everything(open_list(str(data_list), data_type))]


def test_training_conversion_recipes_and_packing_agree_on_equal_file_names(manifest, tmp_path):
    assert keys_in(manifest, "raw") == KEYS
    for form, source in (("nemo", manifest), ("tsv", str(tmp_path / "a.tsv"))):
        convert_manifest(source, form, str(tmp_path / "raw.list"), "raw", Executor())
        assert keys_in(tmp_path / "raw.list", "raw") == KEYS
        convert_manifest(source, form, str(tmp_path / "kaldi"), "kaldi", Executor())
        lines = FORMS["kaldi"].read(str(tmp_path / "kaldi"))
        assert [line.key for line in lines] == KEYS
        parts = into_parts(read_transcripts(Path(source)), "keep")
        assert sorted(one.key for of in parts.values() for one in of) == KEYS
    assert make_raw_list(lines, str(tmp_path / "made.list")) == []
    assert pack(lines, tmp_path / "s", str(tmp_path / "shard.list")) == []
    assert (
        keys_in(tmp_path / "made.list", "raw") == keys_in(tmp_path / "shard.list", "shard") == KEYS
    )
    digests = {
        open_list(str(tmp_path / name), kind).digest
        for name, kind in (("made.list", "raw"), ("shard.list", "shard"))
    }
    assert digests == {open_list(manifest, "raw").digest}


def test_a_check_finds_no_duplicate_among_equal_file_names(manifest):
    with opened_for_check(manifest, "raw") as (corpus, findings):
        report = check_corpus(corpus, findings, Reading())
    assert report.counts["duplicate_key"] == 0


def test_segments_at_one_start_have_keys_of_their_own_in_every_tool(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(2.0))
    fields = [
        {"offset": 0.5, "duration": 0.5},
        {"offset": 0.5, "duration": 1.0},
        {"offset": 0.5, "duration": 1.0},
    ]
    missing = {"audio_filepath": "none/b.wav", "text": "x"}
    entries = [{"audio_filepath": "a.wav", "text": f"{n}", **each} for n, each in enumerate(fields)]
    (tmp_path / "b.wav").write_bytes(wav(0.5))
    entries += [missing, {"audio_filepath": "b.wav", "text": "x"}]
    manifest = tmp_path / "nemo.json"
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    expected = ["a_0.5-1", "a_0.5-1.5", "a_0.5-1.5-sub1", "b"]
    assert keys_in(manifest, "raw") == expected
    tarred(manifest, tmp_path / "set", "--allow_bad", shards=2)
    found = [each["key"] for each in entries_of(tmp_path / "set/tarred_audio_manifest.json")]
    assert (
        found
        == [each.key for each in everything(tarred_corpus(tmp_path / "set", shards=2))]
        == expected
    )
    lines = [
        replace(line, wav=str(tmp_path / "a.wav")) for line in FORMS["nemo"].read(str(manifest))[:3]
    ]
    assert pack(with_distinct_keys(lines), tmp_path / "s", str(tmp_path / "shard.list")) == []
    assert keys_in(tmp_path / "shard.list", "shard") == expected[:3]
