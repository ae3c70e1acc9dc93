"""Each transport reads any range of an object of a given version, and says what it cannot read."""

import json
import os
import re

import fsspec
import pytest

from tests.support.storage.oss_server import serving_oss
from tests.support.storage.servers import serving, serving_ftp, serving_s3
from tests.support.storage.webhdfs_server import serving_webhdfs
from wenet_uio.dataset.storage import driver_store, objects
from wenet_uio.dataset.storage.transfer import TRANSPORTS, transport, version_of
from wenet_uio.dataset.storage.versions import ChangedError, DriverError, RefusedError, Version

DATA = bytes(range(256)) * 1024


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # A transport makes one attempt, and the machine may be busy
    monkeypatch.setenv("WENET_UIO_DEADLINE", "100")
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "x.bin").write_bytes(DATA)
    (folder / "empty").touch()
    return folder


@pytest.fixture(params=["http", "ftp", "s3", "oss", "webhdfs", "memory"])
def url(request, folder, monkeypatch):
    """URL of a folder in a running server."""
    if request.param == "memory":
        monkeypatch.setenv("WENET_UIO_STORES", "memory")
        files = fsspec.filesystem("memory")
        files.pipe({"/store/x.bin": DATA, "/store/empty": b""})
        yield "memory://store"
        files.rm("/store", recursive=True)
        return
    if request.param == "oss":
        pytest.importorskip(
            "ossfs", reason="the driver of oss:// is not installed: pip install ossfs"
        )
        with serving_oss(folder.parent, monkeypatch):  # the folder is a bucket
            yield f"oss://{folder.name}"
        return
    servers = {"http": serving, "ftp": serving_ftp, "webhdfs": serving_webhdfs}
    with servers.get(request.param, lambda f: serving_s3(f, monkeypatch))(folder) as server:
        yield getattr(server, "url", server)


def test_a_transport_reads_any_range(url):
    uri = f"{url}/x.bin"
    version = transport(uri).version(uri)
    assert version.size == len(DATA)
    for start, end in [(0, None), (5, None), (5, 300), (0, len(DATA)), (len(DATA) - 1, None)]:
        assert b"".join(transport(uri).chunks(uri, start, end, version)) == DATA[start:end]


def test_a_transport_reads_an_object_of_unknown_version_to_its_end(url):
    assert objects.read_range(f"{url}/x.bin", 0, None, Version(None)) == DATA


def test_a_transport_reads_an_empty_object(url):
    uri = f"{url}/empty"
    version = transport(uri).version(uri)
    assert version.size == 0
    assert b"".join(transport(uri).chunks(uri, 0, None, version)) == b""


def test_a_transport_refuses_another_version(url):
    uri = f"{url}/x.bin"
    with pytest.raises(ChangedError, match="changed"):
        list(transport(uri).chunks(uri, 0, None, Version(3, "other")))


def test_a_transport_names_an_object_that_is_missing(url):
    with pytest.raises(FileNotFoundError, match="none"):
        transport(url).version(f"{url}/none")


def test_schemes_without_a_transport_of_their_own_go_through_their_driver(monkeypatch):
    monkeypatch.setenv("WENET_UIO_STORES", "anything")
    assert set(TRANSPORTS) == {"http", "https", "ais", "oss", "ftp"}
    assert transport("s3://bucket/x") == transport("anything://x")


def test_a_transport_notices_an_object_of_the_same_size_that_changed(url, folder):
    if url.startswith(("memory", "s3")):
        pytest.skip("the objects of this store are no files")
    uri = f"{url}/x.bin"
    version = transport(uri).version(uri)
    (folder / "x.bin").write_bytes(DATA[::-1])
    os.utime(folder / "x.bin", (1_000_000_000, 1_000_000_000))
    with pytest.raises(ChangedError, match="changed"):
        list(transport(uri).chunks(uri, 0, 10, version))


@pytest.mark.parametrize(
    "without", [("SIZE",), ("MDTM",), ("SIZE", "MDTM"), ("SIZE", "MDTM", "REST")]
)
def test_an_ftp_server_without_a_command_is_read(folder, without, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(folder.parent / "cache"))
    with serving_ftp(folder, without) as url:
        assert objects.read_bytes(f"{url}/x.bin") == DATA
        assert objects.read_bytes(f"{url}/empty") == b""
        with pytest.raises(FileNotFoundError, match="none"):
            objects.read_bytes(f"{url}/none")


def test_an_ftp_server_without_ranges_is_refused_by_name_where_ranges_are_needed(folder):
    with (
        serving_ftp(folder, ("REST",)) as url,
        pytest.raises(RefusedError, match=r"/x\.bin: 50[02]"),
    ):
        list(transport(url).chunks(f"{url}/x.bin", 5, 300, Version(None)))


@pytest.mark.parametrize(
    "uri",
    ["hf://", "hf://gpt2", "hf://datasets", "hf://datasets/name", "hf://org/na me", "hf://a@b@c/d"],
)
def test_an_address_of_a_hub_with_a_wrong_form_is_refused_at_once(uri, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("another attempt"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises((DriverError, FileNotFoundError), match=re.escape(uri)):
        version_of(uri)


def test_a_driver_that_reads_half_an_answer_is_asked_again(monkeypatch):
    class Filesystem:
        asked = 0

        def info(self, path):
            self.asked += 1
            if self.asked < 3:
                json.loads('{"size": 1')
            return {"size": 1}

    filesystem = Filesystem()
    monkeypatch.setattr(driver_store, "driver", lambda uri: (filesystem, uri))
    assert version_of("hf://org/name/file").size == 1
