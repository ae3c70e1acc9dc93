"""Copies that were truncated, overwritten or decayed are fetched again, and damaged notes are not
used.
"""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from tests.support.storage.remote_corpus import (
    assert_same_batches,
    batches_of,
    batches_of_local,
    indexed_list,
)
from tests.support.storage.servers import serving
from wenet_uio.dataset.storage import cache, checksums, objects
from wenet_uio.dataset.storage.checksums import note_of
from wenet_uio.dataset.storage.copies import open_copy

DATA = os.urandom(100_000)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "x.tar").write_bytes(DATA)
    (folder / "y.tar.gz").write_bytes(gzip.compress(DATA))
    with serving(folder) as server:
        yield server


def copy_below(cache_folder, suffix=".tar"):
    (copy,) = cache_folder.rglob(f"*{suffix}")
    return copy


def truncate(copy):
    os.truncate(copy, 50_000)


def empty(copy):
    os.truncate(copy, 0)


def zero(copy):
    copy.write_bytes(bytes(len(DATA)))


def flip(copy):
    with open(copy, "r+b") as file:
        file.seek(70_000)
        file.write(bytes([DATA[70_000] ^ 1]))


def flip_and_restore_the_time(copy):
    status = copy.stat()
    flip(copy)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def lengthen(copy):
    with open(copy, "ab") as file:
        file.write(b"more")


def replace(copy):
    other = copy.with_name("other")
    other.write_bytes(DATA[::-1])
    other.replace(copy)


DAMAGES = (truncate, empty, zero, flip, flip_and_restore_the_time, lengthen, replace)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["x.tar", "y.tar.gz"])
def test_a_damaged_copy_is_fetched_again(name, damage, server, cache_folder, caplog):
    uri = f"{server.url}/{name}?token=secret"
    assert objects.read_bytes(uri) == DATA
    (whole,) = (path for path in cache_folder.rglob("*.tar") if path.read_bytes() == DATA)
    damage(whole)
    assert objects.read_bytes(uri) == DATA
    assert whole.read_bytes() == DATA
    assert f"/{name}?…: its copy {whole} is damaged and is removed" in caplog.text
    assert objects.read_bytes(uri) == DATA  # and is not fetched a third time
    assert server.requests[f"/{name}"] == (2 if name == "x.tar" else 1)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_worker_does_not_read_from_a_damaged_copy(damage, server, cache_folder):
    uri = f"{server.url}/x.tar"
    version = cache.current_version(uri)
    cache.fetch(uri, version).close()
    damage(copy_below(cache_folder))
    assert cache.copy_of(uri, version) is None
    assert list(cache_folder.rglob("*.tar")) == []


def decay(copy):
    """Change the contents as a failing disk does: without a trace in the times of the file."""
    flip(copy)
    size, checksum, _ = note_of(copy).read_text().split()
    note_of(copy).write_text(f"{size} {checksum} {copy.stat().st_ctime_ns}")


def test_contents_are_compared_once_in_every_process(server, cache_folder):
    uri = f"{server.url}/x.tar"
    assert objects.read_bytes(uri) == DATA
    checksums._compared.cache_clear()  # as in a new process
    decay(copy_below(cache_folder))
    assert objects.read_bytes(uri) == DATA
    assert server.requests["/x.tar"] == 2


def test_a_copy_without_a_note_is_used_if_its_size_is_right(server, cache_folder):
    uri = f"{server.url}/x.tar"
    cache.fetch(uri).close()
    note_of(copy_below(cache_folder)).unlink()
    assert objects.read_bytes(uri) == DATA
    assert server.requests["/x.tar"] == 1
    assert note_of(copy_below(cache_folder)).exists()
    note_of(copy_below(cache_folder)).unlink()
    truncate(copy_below(cache_folder))
    assert objects.read_bytes(uri) == DATA
    assert server.requests["/x.tar"] == 2


@pytest.mark.parametrize("text", ["", "100000", "100000 5", "a b c", "1 2 3 4", "\0\0\0", "\x80"])
def test_a_damaged_note_is_no_note(text, server, cache_folder):
    uri = f"{server.url}/x.tar"
    cache.fetch(uri).close()
    note_of(copy_below(cache_folder)).write_text(text)
    assert objects.read_bytes(uri) == DATA
    assert note_of(copy_below(cache_folder)).read_text().startswith(f"{len(DATA)} ")


def test_an_open_copy_that_is_found_damaged_stays_readable_for_its_reader(server, cache_folder):
    uri = f"{server.url}/x.tar"
    with cache.fetch(uri) as first:
        flip(copy_below(cache_folder))
        with cache.fetch(uri) as second:
            assert second.read() == DATA
        assert len(first.read()) == len(DATA)


def test_notes_leave_with_their_copies(server, cache_folder, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "150000")
    cache.fetch(f"{server.url}/x.tar").close()
    stray = copy_below(cache_folder).with_name("0" * 32 + "-" + "0" * 16 + ".tar.sum")
    stray.write_text("1 2 3")
    cache.fetch(f"{server.url}/x.tar?other").close()
    assert [path.name for path in cache_folder.rglob("*.sum")] == [
        note_of(copy_below(cache_folder)).name
    ]


@pytest.mark.parametrize("text", ["", "[3", "7", "null", "[1, 2, 3, 4]", "\0\0\0\0"])
def test_a_damaged_note_of_a_version_is_not_used(text, server, cache_folder):
    uri = f"{server.url}/x.tar"
    found = cache.current_version(uri)
    (noted,) = cache_folder.rglob("*.version")
    noted.write_text(text)
    assert cache.current_version(uri) == found
    assert json.loads(noted.read_text())[0] == len(DATA)


def test_notes_dated_in_the_future_are_not_believed(server, cache_folder):
    uri = f"{server.url}/x.tar"
    cache.current_version(uri)
    (server.folder / "x.tar").write_bytes(b"new")
    (noted,) = cache_folder.rglob("*.version")
    tomorrow = time.time() + 86_400
    os.utime(noted, (tomorrow, tomorrow))
    assert cache.current_version(uri).size == 3
    with pytest.raises(FileNotFoundError):
        objects.read_bytes(f"{server.url}/none")
    (failed,) = cache_folder.rglob("*.failed")
    os.utime(failed, (tomorrow, tomorrow))
    (server.folder / "none").write_bytes(b"there now")
    assert objects.read_bytes(f"{server.url}/none") == b"there now"


@pytest.mark.parametrize("text", ["\0\0\0", "many", "-5", "1e9", "9" * 30])
def test_a_damaged_count_of_the_bytes_in_use_is_counted_again(text, server, cache_folder):
    cache.fetch(f"{server.url}/x.tar").close()
    (cache_folder / "uio1/lock").write_text(text)
    cache.fetch(f"{server.url}/x.tar?other").close()
    assert (cache_folder / "uio1/lock").read_text() == str(2 * len(DATA))


def test_batches_do_not_change_when_copies_are_damaged_between_two_runs(
    tmp_path, store, local, cache_folder
):
    with serving(store) as remote:
        data_list = indexed_list(tmp_path, remote, cache_folder)
        expected = batches_of(data_list)
        objects.shared_paths.cache_clear()
        for number, copy in enumerate(sorted(cache_folder.rglob("*.tar"))):
            data = bytearray(copy.read_bytes())
            data[len(data) // 3 : len(data) // 3 + 5000] = bytes(5000)
            copy.write_bytes(data[: -512 * number] if number else data)
        assert_same_batches(batches_of(data_list, workers=1), expected)
    assert_same_batches(expected, batches_of_local(local))


def damaged_copy(folder):
    """A copy whose note states another checksum."""
    path = folder / "x.tar"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        checksums.note(file, path, checksums.checksum_of(file))
    path.write_bytes(DATA[:500] + bytes([DATA[500] ^ 1]) + DATA[501:])
    return path


def test_a_damaged_copy_that_another_process_removes_is_no_copy_without_a_note(
    tmp_path, monkeypatch
):
    """Both have opened it; the other one removes it and its note before this one reads the note."""
    path, read = damaged_copy(tmp_path), checksums._read

    def late(note):
        path.unlink(missing_ok=True)
        note.unlink(missing_ok=True)
        return read(note)

    monkeypatch.setattr(checksums, "_read", late)
    assert open_copy(path, "x", len(DATA), whole=True) is None
    assert not note_of(path).exists()


def test_a_damaged_copy_is_removed_before_its_note(tmp_path, monkeypatch):
    path, order = damaged_copy(tmp_path), []
    unlink = Path.unlink

    def noted(self, missing_ok=False):
        order.append(self.name)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    assert open_copy(path, "x", len(DATA), whole=True) is None
    assert order == ["x.tar", "x.tar.sum"]
