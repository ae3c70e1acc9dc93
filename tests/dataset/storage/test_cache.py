import gzip
import io
import os
import time
from pathlib import Path

import pytest

from tests.support.storage.servers import serving
from wenet_uio.dataset.storage import cache, cache_space
from wenet_uio.dataset.storage.versions import StorageError, Version


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of a server; the cache is beside it."""
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "3")
    folder = tmp_path / "store"
    for name in ("a/x.wav", "b/x.wav", "c/x.wav", "d/x.wav"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(name[:1].encode() * 1000)
    return folder


def copies(tmp_path):
    return {path.read_bytes()[:1].decode() for path in (tmp_path / "cache").rglob("*.wav")}


def fetch(server, name):
    return cache.fetch(f"{server.url}/{name}/x.wav")


def test_objects_with_the_same_base_name_do_not_collide(folder):
    with serving(folder) as server:
        for name in "abcd":
            with fetch(server, name) as file:
                assert file.read() == name.encode() * 1000


def test_a_cached_object_is_downloaded_once(folder):
    with serving(folder) as server:
        for _ in range(3):
            fetch(server, "a").close()
        assert server.requests == {"/a/x.wav": 1}


def test_a_changed_object_is_downloaded_again(folder, monkeypatch):
    with serving(folder) as server:
        fetch(server, "a").close()
        (folder / "a/x.wav").write_bytes(b"new")
        assert fetch(server, "a").read() == b"a" * 1000  # the version is used for an hour
        monkeypatch.setattr(cache, "VERSION_KEPT", 0.0)
        cache.current_version(f"{server.url}/a/x.wav", kept=0.0)
        assert fetch(server, "a").read() == b"new"


def test_a_change_noticed_during_the_transfer_is_downloaded_again(folder):
    with serving(folder) as server:
        cache.current_version(f"{server.url}/a/x.wav")
        (folder / "a/x.wav").write_bytes(b"new")
        assert fetch(server, "a").read() == b"new"


def test_the_least_recently_used_copy_is_evicted(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "3300")
    with serving(folder) as server:
        for name in "abc":
            fetch(server, name).close()
            time.sleep(0.02)
        fetch(server, "a").close()
        fetch(server, "d").close()
    assert copies(tmp_path) == {"a", "c", "d"}


def test_open_copies_are_not_evicted_and_a_cache_full_of_them_is_an_error(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "2200")
    with serving(folder) as server:
        first, second = fetch(server, "a"), fetch(server, "b")
        with pytest.raises(cache.CacheFullError, match="WENET_UIO_CACHE_BYTES"):
            fetch(server, "c")
        first.close()
        fetch(server, "c").close()
        second.close()
    assert copies(tmp_path) == {"b", "c"}


def test_only_files_of_the_cache_are_evicted(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "1100")
    with serving(folder) as server:
        fetch(server, "a").close()
        (place,) = (path.parent for path in (tmp_path / "cache").rglob("*.wav"))
        (place / "precious.wav").write_bytes(b"p" * 5000)
        fetch(server, "b").close()
    assert copies(tmp_path) == {"p", "b"}


def test_partial_files_of_a_killed_run_are_evicted_first(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "2200")
    with serving(folder) as server:
        fetch(server, "a").close()
        (copy,) = (tmp_path / "cache").rglob("*.wav")
        left = copy.with_name("0" * 32 + "-" + "0" * 16 + ".wav.1000.part")
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
        (tmp_path / "cache/uio1/lock").unlink()
        fetch(server, "b").close()
    assert not left.exists()
    assert copies(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("zeros", [100, 40 << 20])
def test_joined_gzip_files_are_unpacked_one_after_the_other(zeros):
    """The zeros are more than one step of the decompression may give."""
    parts = [b"first", bytes(zeros), b"last"]
    received = []
    packed = io.BytesIO(b"".join(map(gzip.compress, parts)))
    cache.unpack_gzip("a.tar.gz", packed, received.append)
    assert b"".join(received) == b"".join(parts)


def test_a_download_with_a_wrong_digest_gives_no_copy(folder, tmp_path):
    with serving(folder) as server:
        uri = f"{server.url}/a/x.wav"
        found = cache.current_version(uri)
        with pytest.raises(StorageError, match="its MD5 is"):
            cache.fetch(uri, Version(found.size, found.tag, md5="0" * 32))
    assert copies(tmp_path) == set()


def test_a_failure_is_remembered_by_this_run_for_a_while(folder):
    with serving(folder) as server:
        for _ in range(3):
            with pytest.raises(OSError, match="HTTP 404"):
                fetch(server, "none")
        assert server.requests["/none/x.wav"] == 1


@pytest.mark.parametrize(
    ("spare", "fits"), [(cache_space.SPARE, True), (cache_space.SPARE - 1, False)]
)
def test_the_last_of_the_disk_is_left_free_however_much_the_cache_may_use(
    tmp_path, monkeypatch, spare, fits
):
    """Other programs need it, and a journal of the file system."""
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", str(1 << 40))
    free, block = 1 << 30, 4096
    disk = os.statvfs_result(
        (block, block, free // block, free // block, free // block, 0, 0, 0, 0, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    if fits:
        cache_space.reserve(tmp_path, free - spare, "none")
        return
    with pytest.raises(cache_space.CacheFullError):
        cache_space.reserve(tmp_path, free - spare, "none")
