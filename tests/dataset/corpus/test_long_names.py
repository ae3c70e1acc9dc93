"""Data whose names are as long as names of files may be: the names of indexes, of their locks and
temporary files are longer.
"""

import json

import pytest

from tests.support.data.checking import check
from tests.support.data.tars import wav, write_tar
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

WORDS = Tokenizer(CharSplitter((), split_with_space=True), {"<blank>": 0, "<unk>": 1})
LENGTHS = (200, 233, 234, 246, 247, 251, 252, 255)
"""Bytes of a name. The name of a temporary file is 22 bytes longer, of a lock 9, of an index 4."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))


def named(folder, length, suffix):
    return folder / ("n" * (length - len(suffix)) + suffix)


def tar_in(folder, length):
    return write_tar(named(folder, length, ".tar"), [("a.txt", "one"), ("a.wav", wav())])


def shard(folder, length):
    (folder / "data.list").write_text(f"{tar_in(folder, length)}\n")
    return {"type": "shard", "data_list": str(folder / "data.list")}


def shard_list(folder, length):
    path = named(folder, length, ".list")
    path.write_text(f"{tar_in(folder, length)}\n")
    return {"type": "shard", "data_list": str(path)}


def raw(folder, length):
    named(folder, length, ".wav").write_bytes(wav())
    path = named(folder, length, ".list")
    line = {"key": "a", "wav": str(named(folder, length, ".wav")), "txt": "one"}
    path.write_text(json.dumps(line) + "\n")
    return {"type": "raw", "data_list": str(path)}


def nemo_tarred(folder, length):
    """A manifest and its tar, whose names together are longer still."""
    manifest = named(folder, length // 2, ".json")
    manifest.write_text(json.dumps({"audio_filepath": "a.wav", "text": "one", "duration": 0.5}))
    return {
        "type": "nemo_tarred",
        "manifest_filepath": str(manifest),
        "tarred_audio_filepaths": tar_in(folder, length),
    }


def text(folder, length):
    path = named(folder, length, ".txt")
    path.write_text("one\n")
    return {"type": "txt", "paths": str(path), "language": "en"}


def pair(folder, length):
    for suffix in (".en", ".de"):
        named(folder, length, suffix).write_text("one\n")
    return {
        "type": "txt_pair",
        "source_paths": str(named(folder, length, ".de")),
        "target_paths": str(named(folder, length, ".en")),
        "source_language": "de",
        "target_language": "en",
    }


def conversation(folder, length):
    turn = {"from": "user", "value": "one", "type": "text"}
    path = named(folder, length, ".jsonl")
    path.write_text(json.dumps({"id": "a", "conversations": [turn]}) + "\n")
    return {"type": "multimodal_conversation", "manifest_filepath": str(path)}


SOURCES = (shard, shard_list, raw, nemo_tarred, text, pair, conversation)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("source", SOURCES)
def test_data_with_a_long_name_is_indexed_once_and_read(tmp_path, source, length):
    conf = MixtureConf(sources=[source(tmp_path, length)])
    first = open_corpus(conf, "raw")
    assert first.texts(SampleRef(0, 0)).texts[-1] == "one"

    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert open_corpus(conf, "raw").digest == first.digest
    again = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert again == files


@pytest.mark.parametrize("length", LENGTHS)
def test_a_list_with_a_long_name_is_counted_in_tokens_and_checked(tmp_path, length):
    path = shard_list(tmp_path, length)["data_list"]
    counted = TokenCounted(open_list(path, "shard"), WORDS)
    assert counted.rows(0).text_length.tolist() == [1]
    assert check(path, "shard", processes=1, tokenizer=None, filters=False).losses == 0
