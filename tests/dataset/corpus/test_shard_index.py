import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.dataset.corpus.test_shard_corpus import KEYS, audio_of, write_list
from tests.support.data.hostile_tars import member
from tests.support.data.tars import wav, write_tar
from wenet_uio.dataset.corpus.index import read_index, write_index
from wenet_uio.dataset.corpus.open_list import build_index, index_of, open_list
from wenet_uio.dataset.corpus.shard_index import LOST, STALE, shard_index, sidecar_of
from wenet_uio.dataset.types import SampleRef


def indexed(shard, compare="pages"):
    return shard_index(shard, Path("no folder"), compare=compare)


def keys(rows):
    return [rows.key(row) for row in range(len(rows))]


@pytest.fixture
def tar(tmp_path):
    """A tar with its index."""
    write_list(tmp_path)
    indexed(str(tmp_path / "x.tar"))
    return tmp_path / "x.tar"


def test_an_index_is_made_once_and_again_for_a_tar_with_other_pages(tar, tmp_path):
    made = sidecar_of(tar).stat().st_mtime_ns
    assert keys(indexed(str(tar))[0]) == KEYS
    assert sidecar_of(tar).stat().st_mtime_ns == made
    write_list(tmp_path, KEYS[::-1])
    assert keys(indexed(str(tar), compare="size")[0]) == KEYS
    assert keys(indexed(str(tar))[0]) == KEYS[::-1]


def test_a_copy_of_a_tar_and_its_index_is_not_indexed_again(tar, tmp_path):
    (tmp_path / "copy").mkdir()
    shutil.copy(sidecar_of(tar), tmp_path / "copy" / "x.tar.idx")
    shutil.copy(tar, tmp_path / "copy" / "x.tar")
    made = (tmp_path / "copy" / "x.tar.idx").stat().st_mtime_ns
    assert keys(indexed(str(tmp_path / "copy" / "x.tar"))[0]) == KEYS
    assert (tmp_path / "copy" / "x.tar.idx").stat().st_mtime_ns == made


def test_a_full_comparison_finds_an_index_with_other_samples_and_makes_it_again(tar):
    rows, bad, meta = read_index(sidecar_of(tar))
    assert indexed(str(tar), compare="all")[1] == []
    changed = rows.num_samples.copy()
    changed[3] += 1
    write_index([sidecar_of(tar)], replace(rows, num_samples=changed), bad, meta)
    assert indexed(str(tar))[0].num_samples[3] == changed[3]
    assert indexed(str(tar), compare="all")[1] == [(str(tar), STALE)]
    assert indexed(str(tar), compare="all")[1] == []
    assert indexed(str(tar))[0].num_samples[3] == rows.num_samples[3]


def test_samples_that_a_damaged_tar_has_lost_stay_named_when_it_is_indexed_again(tar):
    data = tar.read_bytes()
    tar.write_bytes(data[:20_000])
    problems = indexed(str(tar))[1]
    lost = [key for key, reason in problems if reason == f"{LOST} (in x.tar)"]
    assert lost == KEYS[len(KEYS) - len(lost) :]
    assert len(lost) > 10
    tar.write_bytes(data[:19_000])
    assert [key for key, reason in indexed(str(tar))[1] if LOST in reason][-len(lost) :] == lost
    assert [key for key, reason in indexed(str(tar), compare="all")[1] if LOST in reason][
        -len(lost) :
    ] == lost
    tar.write_bytes(data)
    assert indexed(str(tar))[1] == []


def test_samples_that_were_removed_from_a_sound_tar_are_not_reported(tar, tmp_path):
    write_list(tmp_path, KEYS[:3])
    rows, bad = indexed(str(tar))
    assert (keys(rows), bad) == (KEYS[:3], [])


def test_entries_of_a_manifest_are_named_if_their_tar_is_garbage(tmp_path):
    write_tar(tmp_path / "audio.tar", [("a.wav", wav()), ("b.wav", wav())])
    entries = [f'{{"audio_filepath": "{name}.wav", "text": "x"}}\n' for name in "ab"]
    (tmp_path / "manifest.json").write_text("".join(entries))
    shard = f"{tmp_path}/audio.tar\t{tmp_path}/manifest.json"
    assert keys(indexed(shard)[0]) == ["a", "b"]
    for content in (b"garbage" * 999, b""):
        (tmp_path / "audio.tar").write_bytes(content)
        sidecar_of(tmp_path / "audio.tar", str(tmp_path / "manifest.json")).unlink()
        rows, bad = indexed(shard)
        assert len(rows) == 0
        assert bad[1:] == [("a", "a.wav is not in the tar"), ("b", "b.wav is not in the tar")]


def test_a_name_that_occurs_twice_is_reported_for_a_tar_with_a_manifest(tmp_path):
    members = [member("a.wav", wav(seed=1)), member("a.wav", wav(seed=2))]
    (tmp_path / "audio.tar").write_bytes(b"".join(members) + bytes(1024))
    (tmp_path / "manifest.json").write_text('{"audio_filepath": "a.wav", "text": "x"}\n')
    _, bad = indexed(f"{tmp_path}/audio.tar\t{tmp_path}/manifest.json")
    assert bad == [("a.wav", "2 members have this name, and only the last is used (in audio.tar)")]


def test_flipped_bytes_in_the_columns_of_an_index_exchange_no_audio(tar, tmp_path):
    data_list, generator = str(tmp_path / "data.list"), random.Random(0)
    sound = sidecar_of(tar).read_bytes()
    columns = sound.index(b'"meta"') + 1000
    for _ in range(60):
        content = bytearray(sound)
        for _ in range(generator.choice([1, 1, 4])):
            content[generator.randrange(columns, len(content))] = generator.randrange(256)
        sidecar_of(tar).write_bytes(content)
        build_index(data_list, "shard")
        corpus = open_list(data_list, "shard")
        for row in range(int(corpus.samples[0])):
            try:
                utterance = corpus.read(SampleRef(0, row))
            except ValueError:
                continue
            if utterance.key in KEYS:
                assert bytes(utterance.audio) == audio_of(utterance.key)
                assert utterance.text == f"text of {utterance.key}"
    index_of(data_list).unlink()


def test_an_index_whose_columns_do_not_fit_each_other_is_made_again(tar):
    rows, bad, meta = read_index(sidecar_of(tar))
    unsound = {
        "key_end": rows.key_end[::-1],
        "audio_size": rows.audio_size[:-1],
        "text_size": rows.text_size.astype(np.float64),
        "keys": rows.keys[:-1],
    }
    for name, column in unsound.items():
        write_index([sidecar_of(tar)], replace(rows, **{name: column}), bad, meta)
        assert keys(indexed(str(tar))[0]) == KEYS


def test_a_tar_that_was_only_touched_is_scanned_once(tar, monkeypatch):
    os.utime(tar, (time.time() + 3600,) * 2)
    assert keys(indexed(str(tar))[0]) == KEYS
    # As if the clock had passed the time of the tar
    os.utime(sidecar_of(tar), (time.time() + 3600,) * 2)
    monkeypatch.setattr("wenet_uio.dataset.corpus.shard_index.scan_shard", None)
    assert keys(indexed(str(tar))[0]) == KEYS


def test_a_full_comparison_that_finds_nothing_writes_nothing(tar):
    made = sidecar_of(tar).stat().st_mtime_ns
    assert indexed(str(tar), compare="all")[1] == []
    assert sidecar_of(tar).stat().st_mtime_ns == made
