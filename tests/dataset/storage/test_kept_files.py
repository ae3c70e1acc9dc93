"""Files made from data: their lock, and the places where they may be."""

import os
import signal
from contextlib import suppress

import pytest

from tests.support.data.read_only import lock_folder, shared_folder, unprivileged
from wenet_uio.dataset.storage.kept_files import making, places_of, write_kept


def test_a_killed_process_leaves_no_lock_and_its_file_goes_with_the_next_one(tmp_path):
    path = tmp_path / "x.idx"
    reading, writing = os.pipe()
    maker = os.fork()
    if not maker:
        with making([path]):
            os.write(writing, b"1")
            signal.pause()

    os.read(reading, 1)
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["x.idx.lock"]
    with making([path]):
        write_kept([path], lambda file: file.write(b"index"))
    assert [file.name for file in tmp_path.iterdir()] == ["x.idx"]


def test_an_error_while_a_file_is_made_removes_its_lock(tmp_path):
    with suppress(ZeroDivisionError), making([tmp_path / "x.idx"]):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_where_no_place_can_be_written_the_work_does_not_begin(monkeypatch):
    with shared_folder() as folder:
        (folder / "data").mkdir()
        (folder / "cache").mkdir()
        monkeypatch.setenv("WENET_UIO_CACHE", str(folder / "cache"))
        lock_folder(folder)
        with (
            unprivileged(),
            pytest.raises(
                PermissionError, match=r"cannot write /.*x\.idx .*nor /.*set WENET_UIO_CACHE"
            ),
            making(places_of(folder / "data" / "x.idx")),
        ):
            pytest.fail("the work began")


def test_the_lock_of_another_user_does_not_stop_who_cannot_write_it(tmp_path, monkeypatch):
    with shared_folder() as folder:
        monkeypatch.setenv("WENET_UIO_CACHE", str(folder / "cache"))
        folder.chmod(0o777)
        (folder / "x.idx.lock").touch(0o644)
        with unprivileged(), making(places_of(folder / "x.idx")):
            write_kept(places_of(folder / "x.idx"), lambda file: file.write(b"index"))
        assert (folder / "x.idx").read_bytes() == b"index"
        assert not list((folder / "cache").rglob("*.lock"))
