"""Objects of gs://, read from an emulator of Google Cloud Storage by their real driver.

Driver and emulator bring 80 MB of packages, so that they are no requirement of the tests:

    pip install gcsfs gcp-storage-emulator
"""

import socket

import pytest

from tests.support.storage.remote_corpus import (
    assert_same_batches,
    batches_of,
    batches_of_local,
    write_list,
)
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.driver_store import driver
from wenet_uio.dataset.storage.transfer import transport
from wenet_uio.dataset.storage.versions import ChangedError

gcsfs = pytest.importorskip(
    "gcsfs", reason="the driver of gs:// is not installed: pip install gcsfs"
)
server = pytest.importorskip(
    "gcp_storage_emulator.server", reason="pip install gcp-storage-emulator"
)


@pytest.fixture
def bucket(monkeypatch):
    """gs://speech on loopback, named in the environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    # Asks a service that the emulator lacks
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    gcsfs.GCSFileSystem.clear_instance_cache()
    with server.create_server("127.0.0.1", port, in_memory=True, default_bucket="speech"):
        yield driver("gs://speech/x")[0]
    gcsfs.GCSFileSystem.clear_instance_cache()


def test_shards_of_gs_give_the_batches_of_local_ones(bucket, store, tmp_path, local):
    for path in store.glob("*.tar"):
        bucket.put_file(str(path), f"speech/train/{path.name}")
    for number, name in enumerate(("shards_*.tar", "shards_{000000000..000000003}.tar")):
        data_list = write_list(tmp_path / f"{number}.list", [f"gs://speech/train/{name}"])
        assert_same_batches(batches_of(data_list, workers=number), batches_of_local(local))


def test_any_range_is_read_and_a_changed_object_is_refused(bucket):
    data = bytes(range(256)) * 100
    bucket.pipe_file("speech/x.bin", data)
    uri = "gs://speech/x.bin"
    version = transport(uri).version(uri)
    for start, end in [(0, None), (5, 300), (len(data) - 1, None)]:
        assert b"".join(transport(uri).chunks(uri, start, end, version)) == data[start:end]
    bucket.pipe_file("speech/x.bin", data[::-1])
    with pytest.raises(ChangedError):
        objects.read_range(uri, 0, 10, version)
    assert not objects.exists("gs://speech/none")
