"""Files that several processes share: one writes, the others wait, and readers protect them from
eviction.
"""

import gzip
import os
import threading
from pathlib import Path

import pytest

from wenet_uio.base.files import Lock, lock
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.copies import PartFiles, make_copy, open_copy
from wenet_uio.dataset.storage.versions import StorageError


def test_one_partial_file_has_one_writer(tmp_path):
    first, second, part = PartFiles(), PartFiles(), tmp_path / "aa" / "x.part"
    with first.begin(part) as file:
        file.write(b"half")
        assert first.begin(part) is None
        assert second.begin(part) is None
    with second.begin(part) as file:
        assert file.read() == b"half"
    second.end(part)
    assert not part.exists()


def test_abandon_removes_only_files_of_its_owner_and_ends_new_ones(tmp_path):
    ours, theirs = PartFiles(), PartFiles()
    with ours.begin(tmp_path / "ours"), theirs.begin(tmp_path / "theirs"):
        ours.abandon()
    assert os.listdir(tmp_path) == ["theirs"]
    later = threading.Thread(target=ours.begin, args=(tmp_path / "later",), daemon=True)
    later.start()
    later.join(0.2)
    assert later.is_alive()
    assert os.listdir(tmp_path) == ["theirs"]


def test_a_copy_is_made_once_and_a_failed_one_leaves_nothing(tmp_path):
    path, made = tmp_path / "aa" / "x", []

    def fail(file):
        file.write(b"half")
        raise StorageError("broken")

    def make(file):
        made.append(1)
        file.write(b"whole")

    with pytest.raises(StorageError, match="broken"):
        make_copy(path, 5, fail, "s3://b/x")
    assert os.listdir(path.parent) == []
    for _ in range(2):
        with make_copy(path, 5, make, "s3://b/x") as file:
            assert file.read() == b"whole"
    assert made == [1]
    assert sorted(os.listdir(path.parent)) == ["x", "x.sum"]


def test_another_process_that_makes_no_progress_is_not_waited_for_without_end(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "0.1")
    with (
        PartFiles().begin(tmp_path / "x.5.part"),
        pytest.raises(
            StorageError, match=r"s3://b/x: another process holds .*x.5.part and makes no progress"
        ),
    ):
        make_copy(tmp_path / "x", 5, lambda file: None, "s3://b/x")


def test_a_copy_is_locked_while_it_is_open(tmp_path):
    path = tmp_path / "x"
    assert open_copy(path, "s3://b/x", 0) is None
    path.touch()
    with open(path, "rb") as other:
        with open_copy(path, "s3://b/x", 0):
            assert lock(other, wait=False) is Lock.OTHERS
        assert lock(other, wait=False) is Lock.OURS


@pytest.fixture
def packed(make_lists):
    """Three gzipped tars; each gets a copy in the cache when it is read."""
    tars = [Path(line) for line in Path(make_lists(6, per_shard=2)["shard"]).read_text().split()]
    for tar in tars:
        tar.with_name(f"{tar.name}.gz").write_bytes(gzip.compress(tar.read_bytes()))
    return [f"{tar}.gz" for tar in tars]


def is_locked(path):
    with open(path, "rb") as file:
        return lock(file, wait=False) is Lock.OTHERS


def test_held_paths_protect_the_last_copies_and_let_the_others_go(packed, monkeypatch):
    monkeypatch.setattr(objects, "HELD_PATHS", 2)
    held = objects.HeldPaths()
    paths = [held.path_of(uri) for uri in packed]
    assert [is_locked(path) for path in paths] == [False, True, True]
    assert held.path_of(packed[1]) == paths[1]
    held.path_of(packed[0])
    assert [is_locked(path) for path in paths] == [True, True, False]
    del held
    assert [is_locked(path) for path in paths] == [False, False, False]


def test_all_corpora_of_a_process_share_their_held_paths():
    assert objects.shared_paths() is objects.shared_paths()


def test_a_forked_child_holds_its_own_copies_only(packed):
    held = objects.HeldPaths()
    first = held.path_of(packed[0])
    to_parent, to_child = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        held.path_of(packed[1])
        os.write(to_parent[1], b"1")
        os.read(to_child[0], 1)
        os._exit(0)
    os.read(to_parent[0], 1)
    try:
        second = objects.HeldPaths().path_of(packed[1])
        assert is_locked(first)
        assert is_locked(second)
        del held
        assert not is_locked(first)
    finally:
        os.write(to_child[1], b"1")
        os.waitpid(child, 0)
    assert not is_locked(second)
