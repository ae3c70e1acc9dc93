"""Every tool gives utterances without a key the same keys."""

import json
from pathlib import Path

import pytest

from tests.dataset.support.tars import everything, wav
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.diagnose.check import Reading, check_corpus
from wenet_uio.diagnose.check_shards import opened_for_check
from wenet_uio.executor import Executor
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.manifests import convert_manifest
from wenet_uio.prepare.own_corpus import into_parts, read_transcripts
from wenet_uio.prepare.readers import READERS

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
        lines = READERS["kaldi"](str(tmp_path / "kaldi"))
        assert [line.key for line in lines] == KEYS
        parts = into_parts(read_transcripts(Path(source)), "keep")
        assert sorted(one.key for of in parts.values() for one in of) == KEYS
    assert make_raw_list(lines, str(tmp_path / "made.list")) == []
    assert make_shard_list(lines, tmp_path / "s", str(tmp_path / "shard.list")) == []
    assert keys_in(tmp_path / "made.list", "raw") == keys_in(tmp_path / "shard.list", "shard") == KEYS
    digests = {
        open_list(str(tmp_path / name), kind).digest for name, kind in (("made.list", "raw"), ("shard.list", "shard"))
    }
    assert digests == {open_list(manifest, "raw").digest}


def test_a_check_finds_no_duplicate_among_equal_file_names(manifest):
    with opened_for_check(manifest, "raw") as (corpus, findings):
        report = check_corpus(corpus, findings, Reading())
    assert report.counts["duplicate_key"] == 0
