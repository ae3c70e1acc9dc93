"""The digest of the contents of a list changes with its texts, and with nothing else."""

import gzip
import os
from dataclasses import replace

import pytest

from tests.support.data.loading import TOKENIZER
from tests.support.data.packing import pack
from tests.support.data.tars import wav, write_tar
from wenet_uio.dataset.corpus.mixture import Mixture, WeightedCorpus
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.prepare.sharding import ShardOptions


def opened(data_list, form):
    return open_list(str(data_list), form)


def with_other_texts(lines):
    """The same utterances with texts of the same length."""
    return [replace(line, text=line.text.replace("a", "c")) for line in lines]


def raw_list(folder, lines):
    path = folder / "raw.list"
    path.write_text("".join(line.to_json() + "\n" for line in lines))
    return path


def shard_list(folder, lines):
    pack(lines, folder / "shards", str(folder / "shard.list"), ShardOptions(per_shard=4))
    return folder / "shard.list"


@pytest.mark.parametrize(("write", "form"), [(raw_list, "raw"), (shard_list, "shard")])
def test_texts_of_equal_length_change_the_contents_and_not_the_digest(
    make_utterances, tmp_path, write, form
):
    lines = make_utterances(12)
    before = opened(write(tmp_path, lines), form)
    contents = before.contents_digest
    after = opened(write(tmp_path, with_other_texts(lines)), form)
    assert after.digest == before.digest
    assert after.contents_digest != contents


@pytest.mark.parametrize("form", ["raw", "shard"])
def test_a_list_that_is_opened_again_touched_or_wrapped_has_the_same_contents(make_lists, form):
    path = make_lists(12, per_shard=4)[form]
    corpus = opened(path, form)
    os.utime(path)
    assert opened(path, form).contents_digest == corpus.contents_digest
    assert TokenCounted(corpus, TOKENIZER).contents_digest == corpus.contents_digest
    mixture = Mixture("mixture", [WeightedCorpus(corpus, 1.0)], 12, False)
    assert mixture.contents_digest != corpus.contents_digest
    assert (
        mixture.contents_digest
        == Mixture("other", [WeightedCorpus(corpus, 1.0)], 6, False).contents_digest
    )


def test_a_packed_tar_with_other_texts_of_equal_length_changes_the_contents(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    packed = tmp_path / "a.tar.gz"
    (tmp_path / "data.list").write_text(f"{packed}\n")

    def written(text):
        write_tar(tmp_path / "a.tar", [("a.txt", text), ("a.wav", wav())])
        packed.write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
        build_index(str(tmp_path / "data.list"), "shard")
        return opened(tmp_path / "data.list", "shard")

    before = written("abc")
    contents = before.contents_digest
    after = written("xyz")
    assert after.digest == before.digest
    assert after.contents_digest != contents
    assert opened(tmp_path / "data.list", "shard").contents_digest == after.contents_digest
