import hashlib
import tarfile

import pytest

from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.prepare.shard_writer import END_BYTES, PackedSample, bytes_in_shard, write_shard

SAMPLES = [
    PackedSample("a", "one two", b"x" * 700, "wav", 8000, 16000),
    PackedSample("é" * 120, "", b"y" * 512, "flac", 4000, 8000),  # a name longer than a plain tar header has room for
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
