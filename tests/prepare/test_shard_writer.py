import hashlib
import tarfile

import pytest

from tests.support.data.tars import wav
from wenet_uio.dataset.corpus.shard_index import scan_shard, sidecar_of
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.formats.tar_members import END_BYTES
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.shard_writer import PackedSample, bytes_in_shard, write_shard

SAMPLES = [
    PackedSample("a", "one two", b"x" * 700, "wav", 8000, 16000),
    # A name longer than a plain tar header has room for
    PackedSample("é" * 120, "", b"y" * 512, "flac", 4000, 8000),
]


def test_a_shard_is_a_tar_of_text_and_audio_members_in_the_order_of_the_samples(tmp_path):
    write_shard(tmp_path / "x.tar", SAMPLES)
    with tarfile.open(tmp_path / "x.tar") as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames()}
    long = SAMPLES[1].key
    assert list(members) == ["a.txt", "a.wav", f"{long}.txt", f"{long}.flac"]
    assert list(members.values()) == [b"one two", b"x" * 700, b"", b"y" * 512]


def test_size_digest_and_rows_are_those_of_the_tar(tmp_path):
    written = write_shard(tmp_path / "x.tar", SAMPLES)
    data = (tmp_path / "x.tar").read_bytes()
    assert (written.size, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert written.size == sum(map(bytes_in_shard, SAMPLES)) + END_BYTES
    assert written.rows.seconds.tolist() == [0.5, 0.5]
    assert sidecar_of(tmp_path / "x.tar").is_file()


def test_the_same_samples_give_the_same_bytes(tmp_path):
    for name in ("a.tar", "b.tar"):
        write_shard(tmp_path / name, iter(SAMPLES))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_an_error_in_the_samples_leaves_no_file(tmp_path):
    def samples():
        yield SAMPLES[0]
        raise ValueError("bad audio")

    with pytest.raises(ValueError, match="bad audio"):
        write_shard(tmp_path / "x.tar", samples())
    assert list(tmp_path.iterdir()) == []


def test_other_fields_are_stored_and_the_index_is_that_of_a_scan(tmp_path):
    samples = [
        PackedSample("a", "one", wav(0.5), "wav", 4000, 8000, {"language": "en"}),
        PackedSample("b", "ein", wav(0.4), "wav", 3200, 8000),
    ]
    written = write_shard(tmp_path / "x.tar", samples)
    assert written.size == sum(map(bytes_in_shard, samples)) + END_BYTES
    (tmp_path / "x.list").write_text(f"{tmp_path}/x.tar\n")
    corpus = open_corpus(str(tmp_path / "x.list"), "shard")
    found = [corpus.read(SampleRef(0, row)) for row in range(2)]
    assert [(each.text, each.extra) for each in found] == [("one", {"language": "en"}), ("ein", {})]
    sidecar_of(tmp_path / "x.tar").unlink()
    rows = scan_shard(ShardFiles(str(tmp_path / "x.tar")), DEFAULT_LAYOUT, str(tmp_path / "x.tar"))[
        0
    ]
    assert rows.digest() == written.rows.digest()
    assert bytes(rows.records) == bytes(written.rows.records)
