import errno
import fcntl
import hashlib
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.support.data.read_only import lock_folder, shared_folder, unprivileged
from wenet_uio.base.files import (
    MARK,
    MARK_TEXT,
    Lock,
    append_line,
    digest_of,
    folder_written_aside,
    lock,
    locked,
    read_lines,
    require_writable,
    written_aside,
)


def test_a_file_appears_when_its_block_ends_and_its_folder_is_created(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with written_aside(path, "w") as file:
        file.write("é")
        assert not path.exists()
    assert path.read_bytes() == "é".encode()
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_block_that_raises_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), written_aside(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.fixture
def little_room() -> Iterator[None]:
    """Files of this process may have 100 kB; as on a full disk, a write then ends early and the
    next one fails.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("kind", ["text", "checkpoint", "line"])
def test_a_full_disk_is_an_error_with_the_path_and_leaves_the_old_file(tmp_path, little_room, kind):
    path = tmp_path / "a"
    if kind != "line":
        path.write_text("old")
    with pytest.raises(OSError, match="File too large") as caught:
        if kind == "line":
            append_line(path, {"key": "x" * 200_000})
        elif kind == "text":
            with written_aside(path, "w") as file:
                file.write("x" * 200_000)
        else:
            with written_aside(path) as file:
                torch.save({"weight": torch.zeros(50_000)}, file)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert os.listdir(tmp_path) == ["a"]
    assert kind == "line" or path.read_text() == "old"


def test_a_file_that_cannot_be_made_is_an_error_with_the_path(tmp_path):
    path = tmp_path / ("x" * 250)  # the name of the temporary file is too long
    with pytest.raises(OSError, match="name too long") as raised, written_aside(path):
        pass
    assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("folder", "Is a directory"),
        ("file/a", "Not a directory"),
        ("locked/a", "Permission denied"),
        ("locked/new/a", "Permission denied"),
    ],
)
def test_a_place_that_cannot_be_written_is_known_before_the_work(place, message):
    with shared_folder() as parent:
        (parent / "folder").mkdir()
        (parent / "file").touch()
        (parent / "locked").mkdir()
        lock_folder(parent)
        with unprivileged(), pytest.raises(OSError, match=message) as raised:
            require_writable(parent / place)
    assert raised.value.filename == str(parent / place)


def test_a_place_that_can_be_written_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_text("old")
    for place in (tmp_path / "new" / "folder" / "a", tmp_path / "a", "a", tmp_path / "old", "old"):
        require_writable(place)
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_an_error_of_the_block_is_not_taken_for_an_error_of_the_disk(tmp_path):
    with pytest.raises(RuntimeError, match="this is why"), written_aside(tmp_path / "a"):
        raise RuntimeError("this is why")
    with pytest.raises(FileNotFoundError) as caught, written_aside(tmp_path / "a"):
        (tmp_path / "absent").read_text()
    assert caught.value.filename == str(tmp_path / "absent")


def write_new(path):
    with folder_written_aside(path, is_ours=lambda file: file.suffix == ".onnx") as folder:
        for name in ("a.onnx", "b.onnx"):
            (folder / name).write_text("new")


def former_folder(path):
    path.mkdir()
    for name in ("a.onnx", "b.onnx", "c.onnx", "notes.txt"):
        (path / name).write_text("former")
    (path / "sub").mkdir()


def test_a_folder_is_replaced_as_a_whole_and_keeps_what_is_not_ours(tmp_path):
    former_folder(tmp_path / "x")
    write_new(tmp_path / "x")
    found = {file.name: file.is_dir() or file.read_text() for file in (tmp_path / "x").iterdir()}
    assert found == {"a.onnx": "new", "b.onnx": "new", "notes.txt": "former", "sub": True}
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_is_made_with_its_parents(tmp_path):
    write_new(tmp_path / "new" / "x")
    assert sorted(os.listdir(tmp_path / "new" / "x")) == ["a.onnx", "b.onnx"]


def test_a_block_that_raises_leaves_the_former_folder(tmp_path):
    former_folder(tmp_path / "x")
    with (
        pytest.raises(KeyboardInterrupt),
        folder_written_aside(tmp_path / "x", is_ours=lambda file: True) as folder,
    ):
        (folder / "a.onnx").write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x" / "a.onnx").read_text() == "former"


@pytest.mark.third
@pytest.mark.parametrize("call", range(1, 40))
def test_a_kill_never_leaves_a_folder_of_two_exports(tmp_path, call):
    """The process ends before its n-th call of the system that opens, renames or removes."""
    former_folder(tmp_path / "x")
    child = os.fork()
    if not child:
        count = 0

        def end(event, arguments):
            nonlocal count
            count += event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
            if count == call:
                os._exit(9)

        sys.addaudithook(end)
        write_new(tmp_path / "x")
        os._exit(0)

    os.waitpid(child, 0)
    folder = tmp_path / "x"
    if folder.is_dir():
        models = {file.read_text() for file in folder.glob("*.onnx")}
        assert models in ({"former"}, {"new"})
        assert len(list(folder.glob("*.onnx"))) == (3 if models == {"former"} else 2)

    # The next export goes through, whatever the kill has left, and removes it.
    write_new(folder)
    assert {file.read_text() for file in folder.glob("*.onnx")} == {"new"}
    assert (folder / "notes.txt").read_text() == "former"
    assert (folder / "sub").is_dir()
    assert not [*tmp_path.glob(".*.former")]
    assert not (folder / MARK).exists()
    for unfinished in tmp_path.glob(".*.tmp"):  # killed before it was marked: nothing is in it
        assert {file.name: file.stat().st_size for file in unfinished.iterdir()} in ({}, {MARK: 0})


def test_unfinished_folders_of_killed_processes_are_removed_and_named(tmp_path, caplog):
    child = os.fork()
    if not child:
        with folder_written_aside(tmp_path / "x", is_ours=lambda file: True) as folder:
            (folder / "a.onnx").write_text("half")
            os._exit(9)

    os.waitpid(child, 0)
    (unfinished,) = tmp_path.iterdir()
    assert sorted(file.name for file in unfinished.iterdir()) == [MARK, "a.onnx"]
    write_new(tmp_path / "y")
    assert unfinished.is_dir()  # of another place
    write_new(tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
    assert f"{unfinished}: an unfinished folder of a killed process, removed" in caplog.text


def test_a_folder_that_another_process_is_writing_stays(tmp_path):
    with folder_written_aside(tmp_path / "x", is_ours=lambda file: True) as folder:
        (folder / "a.onnx").write_text("slower")
        write_new(tmp_path / "x")
        assert folder.is_dir()
    assert (tmp_path / "x" / "a.onnx").read_text() == "slower"
    assert os.listdir(tmp_path) == ["x"]


def test_hidden_folders_of_the_user_stay(tmp_path):
    mine = {
        ".x.0123456789ab.tmp": "other.onnx",  # the name of ours without the mark
        ".x.123456789abc.tmp": MARK,  # a file of the name of the mark
        ".x.backup.tmp": "a.onnx",
        ".x.mine.former": "notes.txt",
        ".y.0123456789ab.former": "notes.txt",
        ".x.y.0123456789ab.former": "notes.txt",  # of a folder x.y
    }
    for folder, file in mine.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / MARK).write_bytes(MARK_TEXT)
    (tmp_path / ".x.23456789abcd.tmp").symlink_to(elsewhere)

    write_new(tmp_path / "x")
    for folder, file in mine.items():
        assert (tmp_path / folder / file).read_text() == "mine"
    assert (tmp_path / ".x.23456789abcd.tmp" / MARK).is_file()


def test_files_get_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with written_aside(tmp_path / "a"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_appended_records_are_read_and_a_line_cut_short_is_ignored(tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    assert read_lines(path) == []
    append_line(path, {"a": 1})
    append_line(path, {"b": "é"})
    with open(path, "a") as file:
        file.write('{"c": ')
    assert read_lines(path) == [{"a": 1}, {"b": "é"}]


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_line_that_a_full_disk_cut_anywhere_costs_itself_only(tmp_path, cut, caplog):
    path = tmp_path / "a.jsonl"
    append_line(path, {"key": "前一行"})
    append_line(path, {"key": "说话人甲"})
    path.write_bytes(path.read_bytes()[:-cut])
    append_line(path, {"key": "之后"})
    records = read_lines(path, ["key"])
    assert records[0] == {"key": "前一行"}
    assert records[-1] == {"key": "之后"}
    if len(records) == 2:
        assert "a.jsonl: 1 damaged lines are ignored; the first is line 2" in caplog.text
    else:  # only the end of the line was missing
        assert cut == 1
        assert not caplog.text


@pytest.mark.parametrize("line", ["null", "[1]", "3", '{"other": 1}', '"text"', "\xff", "{"])
def test_a_line_that_is_no_record_is_ignored_and_counted(tmp_path, line, caplog):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"key": 1}\n' + line.encode("latin-1") + b'\n\n{"key": 2}\n')
    assert [record["key"] for record in read_lines(path, ["key"])] == [1, 2]
    assert "1 damaged lines are ignored; the first is line 2" in caplog.text


def test_an_exclusive_lock_excludes_and_shared_locks_do_not(tmp_path):
    path = tmp_path / "a"
    path.touch()
    with open(path, "rb") as first, open(path, "rb") as second:
        assert lock(first, shared=True) is Lock.OURS
        assert lock(second, shared=True, wait=False) is Lock.OURS
        assert lock(second, wait=False) is Lock.OTHERS
        first.close()
        assert lock(second, wait=False) is Lock.OURS


@pytest.mark.parametrize("removed", [False, True])
def test_a_lock_file_is_created_keeps_its_content_and_goes_only_if_told_to(tmp_path, removed):
    (tmp_path / "b").write_bytes(b"kept")
    for name in "ab":
        with locked(tmp_path / name, removed=removed) as held:
            assert held is Lock.OURS
            with open(tmp_path / name, "rb") as other:
                assert lock(other, wait=False) is Lock.OTHERS
                assert other.read() == {"a": b"", "b": b"kept"}[name]

    assert sorted(path.name for path in tmp_path.iterdir()) == ([] if removed else ["a", "b"])


def test_of_many_who_wait_for_a_lock_file_that_each_removes_one_at_a_time_holds_it(tmp_path):
    most, holders = 0, 0
    counting = threading.Lock()

    def hold(_: int) -> None:
        nonlocal most, holders
        with locked(tmp_path / "lock", removed=True):
            with counting:
                holders += 1
                most = max(most, holders)
            os.sched_yield()
            with counting:
                holders -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, range(400)))
    assert most == 1
    assert not list(tmp_path.iterdir())


def test_a_lock_ends_with_its_block_although_a_forked_process_has_the_file_open(tmp_path):
    with locked(tmp_path / "lock"):
        child = os.fork()
        if not child:
            signal.pause()

    try:
        with open(tmp_path / "lock", "rb") as other:
            assert lock(other, wait=False) is Lock.OURS
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_that_the_system_refuses_is_an_error_with_the_path(tmp_path, monkeypatch):
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/lock'"),
        locked(tmp_path / "lock"),
    ):
        pass


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_digests_are_those_of_hashlib(algorithm, tmp_path):
    data = os.urandom((1 << 20) + 1)
    (tmp_path / "a").write_bytes(data)
    assert digest_of(tmp_path / "a", algorithm) == hashlib.new(algorithm, data).hexdigest()
