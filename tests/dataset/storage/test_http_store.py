"""Objects of oss://, read from and written to a stand-in for the store by its real driver."""

import os
from pathlib import Path

import pytest

from tests.support.storage.oss_server import KEY_ID, SECRET, serving_oss
from tests.support.storage.remote_corpus import (
    assert_same_batches,
    batches_of,
    batches_of_local,
    write_list,
)
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.http_store import find_version
from wenet_uio.dataset.storage.transfer import transport
from wenet_uio.dataset.storage.versions import DriverError, StorageError
from wenet_uio.prepare.upload import put_shards, try_store

pytest.importorskip("ossfs", reason="the driver of oss:// is not installed: pip install ossfs")


@pytest.fixture
def buckets(tmp_path, store) -> Path:
    """A folder of buckets; the bucket `speech` has the shards below train/."""
    folder = tmp_path / "buckets"
    (folder / "speech/train").mkdir(parents=True)
    for path in store.glob("*.tar*"):
        (folder / "speech/train" / path.name).write_bytes(path.read_bytes())
    return folder


def test_shards_of_oss_give_the_batches_of_local_ones(buckets, tmp_path, local, monkeypatch):
    expected = batches_of_local(local)
    with serving_oss(buckets, monkeypatch):
        for number, name in enumerate(
            ("shards_*.tar", "shards_{000000000..000000003}.tar", "shards_*.tar.gz")
        ):
            data_list = write_list(tmp_path / f"{number}.list", [f"oss://speech/train/{name}"])
            assert_same_batches(batches_of(data_list, workers=number % 2), expected)


def test_any_range_of_an_object_is_read(buckets, monkeypatch):
    data = os.urandom(100_000)
    (buckets / "speech/a b%20.bin").write_bytes(data)
    uri = "oss://speech/a b%20.bin"
    with serving_oss(buckets, monkeypatch):
        version = find_version(uri)
        assert version.size == len(data)
        for start, end in [(0, None), (0, len(data)), (5, 300), (99_990, None), (99_999, 100_000)]:
            assert b"".join(transport(uri).chunks(uri, start, end, version)) == data[start:end]
        assert objects.read_bytes(uri) == data
        (buckets / "speech/a b%20.bin").write_bytes(data[::-1])
        with pytest.raises(StorageError, match="changed since it was indexed"):
            objects.read_range(uri, 0, 10, version)


def test_a_region_signs_by_version_4(buckets, monkeypatch):
    with serving_oss(buckets, monkeypatch) as server:
        monkeypatch.setenv("OSS_REGION", "cn-test")
        assert objects.exists("oss://speech/train/shards_000000000.tar")
        assert server.requests[-1][2]["x-oss-signature-version"] == "OSS4-HMAC-SHA256"


def test_errors_name_the_object_and_no_secret(buckets, monkeypatch, cache_folder):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    with serving_oss(buckets, monkeypatch):
        assert not objects.exists("oss://speech/train/none.tar")
        with pytest.raises(FileNotFoundError, match="oss://nowhere/a.tar: HTTP 404"):
            objects.read_bytes("oss://nowhere/a.tar")
        monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "not-the-right-secret")
        with pytest.raises(PermissionError, match="oss://speech/a.tar: HTTP 403"):
            objects.read_bytes("oss://speech/a.tar")
    # Nobody listens now
    with pytest.raises(StorageError, match="oss://speech/b.tar: no data received") as error:
        objects.read_bytes("oss://speech/b.tar")
    with pytest.raises(StorageError, match=r"oss://speech/\*.tar: cannot be listed") as listing:
        objects.matches("oss://speech/*.tar")
    for text in (
        str(error.value),
        str(listing.value),
        *(path.read_text() for path in cache_folder.rglob("*.failed")),
    ):
        assert not any(
            secret in text for secret in (KEY_ID, SECRET, "not-the-right-secret", "Signature=h")
        )


def test_an_endpoint_that_is_not_set_or_not_valid_is_refused(monkeypatch):
    monkeypatch.delenv("OSS_ENDPOINT", raising=False)
    with pytest.raises(DriverError, match="set OSS_ENDPOINT"):
        objects.read_bytes("oss://speech/a.tar")
    monkeypatch.setenv("OSS_ENDPOINT", "https://oss-cn-hangzhou.aliyuncs.com")
    with pytest.raises(DriverError, match="oss://speech/"):
        objects.read_bytes("oss://speech/")


def test_shards_are_uploaded_once_and_can_be_read(buckets, tmp_path, local, store, monkeypatch):
    (buckets / "new").mkdir()
    with serving_oss(buckets, monkeypatch):
        try_store("oss://new/folder")
        remote = tmp_path / "remote.list"
        assert put_shards(local, "oss://new/folder", str(remote), Executor(1)) == (4, 4)
        monkeypatch.setenv("TZ", "Asia/Shanghai")  # ossfs takes times of the store for local times
        assert put_shards(local, "oss://new/folder", str(remote), Executor(1)) == (4, 0)
        assert len(read_shard_list(remote)) == 4
        assert_same_batches(batches_of(str(remote)), batches_of_local(local))
        assert objects.matches("oss://new/folder/*.tar") == read_shard_list(remote)
        # A listing is never older than its call
        (buckets / "new/folder/extra.tar").write_bytes(b"")
        assert len(objects.matches("oss://new/folder/*.tar")) == 5
