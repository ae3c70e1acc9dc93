"""Reading shards whose tar or index was changed: an utterance is right, or refused by name."""

import os
import random
import tarfile
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.support.data.nemo import write_tarred
from tests.support.data.tars import everything, wav, write_tar
from tests.support.storage.servers import serving
from wenet_uio.dataset.corpus import shard_corpus
from wenet_uio.dataset.corpus.index import COLUMNS, read_index, write_index
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.corpus.shard_corpus import Recent
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef

KEYS = [f"{letter}{number:03d}" for number in range(10) for letter in "ab"]


def audio_of(key):
    """Audio of one length for all keys, with other samples for each."""
    return wav(0.2, seed=KEYS.index(key))


def write_list(folder, keys=KEYS, text="text of {}", suffix="txt", name="{}"):
    """A list with one tar, whose members all have the size of those for other keys in the same
    place.
    """
    members = [
        item
        for key in keys
        for item in (
            (f"{name.format(key)}.{suffix}", text.format(key)),
            (f"{name.format(key)}.wav", audio_of(key)),
        )
    ]
    write_tar(folder / "x.tar", members)
    (folder / "data.list").write_text(f"{folder}/x.tar\n")
    return str(folder / "data.list")


def checked(corpus, key_of=lambda key: key):
    """Keys of the utterances that are refused; asserts that all others are right."""
    refused = []
    for row in range(corpus.samples[0]):
        try:
            utterance = corpus.read(SampleRef(0, row))
        except ListError as error:
            assert "changed" in str(error)
            refused.append(corpus.key(SampleRef(0, row)))
            continue
        key = key_of(utterance.key)
        assert bytes(utterance.audio) == audio_of(key)
        assert utterance.text in (f"text of {key}", f"word of {key}")
    return refused


def age(path, seconds):
    os.utime(path, (path.stat().st_mtime + seconds,) * 2)


@pytest.mark.parametrize("seconds", [0, -3600, 30])
@pytest.mark.parametrize("suffix", ["txt", "json"])
def test_a_tar_of_equal_size_that_replaced_another_is_refused_until_it_is_indexed(
    tmp_path, seconds, suffix
):
    text = "text of {}" if suffix == "txt" else '{{"text": "text of {}"}}'
    data_list = write_list(tmp_path, text=text, suffix=suffix)
    assert checked(open_list(data_list, "shard")) == []
    write_list(tmp_path, [*KEYS[2:], *KEYS[:2]], text=text, suffix=suffix)
    age(tmp_path / "x.tar", seconds)
    assert checked(open_list(data_list, "shard")) == KEYS
    build_index(data_list, "shard")
    corpus = open_list(data_list, "shard")
    assert corpus.key(SampleRef(0, 0)) == KEYS[2]
    assert checked(corpus) == []


def test_a_tar_with_other_texts_of_the_same_length_is_indexed_again(tmp_path):
    data_list = write_list(tmp_path, text='{{"text": "text of {}"}}', suffix="json")
    open_list(data_list, "shard")
    write_list(tmp_path, text='{{"text": "word of {}"}}', suffix="json")
    assert checked(open_list(data_list, "shard")) == KEYS
    build_index(data_list, "shard")
    assert {u.text[:4] for u in everything(open_list(data_list, "shard"))} == {"word"}


def test_a_tar_that_is_replaced_while_it_is_read_is_refused_by_its_headers(tmp_path):
    data_list = write_list(tmp_path)
    corpus = open_list(data_list, "shard")
    assert checked(corpus) == []
    shard_corpus._open_tars.drop_all_of(corpus._owner)
    os.remove(tmp_path / "x.tar")
    write_list(tmp_path, [*KEYS[2:], *KEYS[:2]])
    assert checked(corpus) == KEYS


PLACES = ("audio_offset", "audio_size", "text_offset", "text_size")


@pytest.mark.parametrize("suffix", ["txt", "json"])
@pytest.mark.parametrize("name", ["{}", "é{}", "{}" + "n" * 120, "d/./{}", "./{}", "a {}"])
def test_an_index_in_any_order_exchanges_no_audio(tmp_path, suffix, name):
    text = "text of {}" if suffix == "txt" else '{{"text": "text of {}"}}'
    data_list = write_list(tmp_path, text=text, suffix=suffix, name=name)
    corpus = open_list(data_list, "shard")
    stem = {corpus.key(SampleRef(0, row)): KEYS[row] for row in range(len(KEYS))}
    rows, bad, meta = read_index(sidecar_of(tmp_path / "x.tar"))
    generator = random.Random(0)
    for moved in product([False, True], repeat=len(PLACES)):
        order = generator.sample(range(len(KEYS)), len(KEYS))
        changed = {
            name: getattr(rows, name)[order]
            for name, is_moved in zip(PLACES, moved, strict=True)
            if is_moved
        }
        write_index([sidecar_of(tmp_path / "x.tar")], replace(rows, **changed), bad, meta)
        refused = checked(open_list(data_list, "shard"), stem.get)
        assert refused or not {"audio_offset", "text_offset"} & changed.keys()


@pytest.mark.parametrize("value", [0, 1, 511, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("column", PLACES)
@pytest.mark.parametrize("suffix", ["txt", "json"])
def test_an_index_with_places_outside_the_tar_is_refused(tmp_path, suffix, column, value):
    data_list = write_list(
        tmp_path,
        text="text of {}" if suffix == "txt" else '{{"text": "text of {}"}}',
        suffix=suffix,
    )
    open_list(data_list, "shard")
    rows, bad, meta = read_index(sidecar_of(tmp_path / "x.tar"))
    values = np.full(len(rows), min(value, np.iinfo(COLUMNS[column]).max), COLUMNS[column])
    write_index([sidecar_of(tmp_path / "x.tar")], replace(rows, **{column: values}), bad, meta)
    # Of the first or last sample, a record stays at its place
    right = suffix == "json" and column.startswith("text")
    assert len(checked(open_list(data_list, "shard"))) >= len(KEYS) - right


def test_links_and_manifests_are_read_and_an_index_in_another_order_is_refused(tmp_path):
    members = [
        item
        for key in KEYS
        for item in ((f"{key}.txt", f"text of {key}"), (f"own/{key}.wav", audio_of(key)))
    ]
    write_tar(tmp_path / "x.tar", members)
    with tarfile.open(tmp_path / "x.tar", "a") as tar:
        for key in KEYS:
            for suffix, target in (("txt", f"../{key}.txt"), ("wav", f"../own/{key}.wav")):
                link = tarfile.TarInfo(f"linked/{key}.{suffix}")
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
    (tmp_path / "data.list").write_text(f"{tmp_path}/x.tar\n")
    corpus = open_list(str(tmp_path / "data.list"), "shard")
    assert [corpus.key(SampleRef(0, row)) for row in range(len(KEYS))] == [
        f"linked/{key}" for key in KEYS
    ]
    assert checked(corpus, lambda key: key.removeprefix("linked/")) == []
    rows, bad, meta = read_index(sidecar_of(tmp_path / "x.tar"))
    moved = replace(rows, audio_offset=rows.audio_offset[::-1])
    write_index([sidecar_of(tmp_path / "x.tar")], moved, bad, meta)
    assert len(checked(open_list(str(tmp_path / "data.list"), "shard"))) == len(KEYS)


def test_a_tar_with_a_manifest_that_was_replaced_is_refused(tmp_path):
    write_tarred(tmp_path, "set")
    tar, manifest = tmp_path / "set" / "audio_0.tar", tmp_path / "set" / "manifest_0.json"
    data_list = tmp_path / "data.list"
    data_list.write_text(f"{tar}\t{manifest}\n")
    assert len(everything(open_list(str(data_list), "shard"))) == 2
    rows, bad, meta = read_index(sidecar_of(tar, str(manifest)))
    for names in [PLACES[:1], PLACES[:2], PLACES[2:], PLACES]:
        moved = replace(rows, **{name: getattr(rows, name)[::-1] for name in names})
        write_index([sidecar_of(tar, str(manifest))], moved, bad, meta)
        for row in range(len(rows)):
            with pytest.raises(ListError, match="changed"):
                open_list(str(data_list), "shard").read(SampleRef(0, row))


def test_an_index_in_another_order_beside_a_remote_tar_exchanges_no_audio(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    open_list(write_list(tmp_path / "store"), "shard")
    sidecar = sidecar_of(tmp_path / "store" / "x.tar")
    rows, bad, meta = read_index(sidecar)
    write_index([sidecar], replace(rows, audio_offset=rows.audio_offset[::-1]), bad, meta)
    with serving(tmp_path / "store") as server:
        (tmp_path / "remote.list").write_text(f"{server.url}/x.tar\n")
        assert checked(open_list(str(tmp_path / "remote.list"), "shard")) == KEYS


def test_the_value_that_was_used_longest_ago_is_replaced():
    recent = Recent(2)
    recent.put(1, "a")
    recent.put(2, "b")
    assert recent.get(1) == "a"
    recent.put(3, "c")
    assert [recent.get(number) for number in (1, 2, 3)] == ["a", None, "c"]


def test_the_oldest_value_can_be_dropped_and_an_empty_collection_stays_empty():
    recent = Recent(2)
    recent.put(1, "a")
    recent.drop_oldest()
    recent.drop_oldest()
    assert recent.get(1) is None


def test_the_values_of_an_owner_can_be_dropped():
    recent, owner = Recent(9), object()
    recent.put((owner, 1), "a")
    recent.put((object(), 1), "b")
    recent.put(1, "c")
    recent.drop_all_of(owner)
    assert list(recent._values.values()) == ["b", "c"]
