"""Files of a cache are compared with their digests once, and again when they have changed."""

import hashlib
import os
import shutil

import pytest

from tests.support.hub.server import git_digest
from wenet_uio.addons.publish import pull
from wenet_uio.addons.publish.pull import check_digests

CONTENTS = {"avg.pt": bytes(range(256)) * 64, "train.yaml": b"encoder: conformer\n"}


@pytest.fixture
def snapshot(tmp_path):
    """The files of a model in the layout of the cache."""
    model = tmp_path / "hub/models--org--name"
    (model / "blobs").mkdir(parents=True)
    folder = model / "snapshots" / ("c" * 40)
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        sha256 = hashlib.sha256(content).hexdigest()
        digest = sha256 if name == "avg.pt" else git_digest(content)
        (model / "blobs" / digest).write_bytes(content)
        (folder / name).symlink_to(f"../../blobs/{digest}")
    return folder


@pytest.fixture
def check(snapshot, tmp_path, monkeypatch):
    """A function that checks the snapshot and returns the names of the files that it compares."""
    compared = []

    def compare(path, blob):
        compared.append(path.name)
        original(path, blob)

    original = pull._compare_digest
    monkeypatch.setattr(pull, "_compare_digest", compare)

    def run(compare_all=False):
        compared.clear()
        check_digests(sorted(snapshot.iterdir()), tmp_path / "n/c.json", compare_all=compare_all)
        return list(compared)

    return run


def damage(blob, size=None):
    """Change a byte, and keep size and time of change as a copying program can."""
    times = blob.stat()
    content = bytearray(blob.read_bytes())
    content[7] ^= 1
    blob.write_bytes(content[:size])
    os.utime(blob, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_is_compared_once_unless_all_are_to_be_compared(check):
    assert check() == ["avg.pt", "train.yaml"]
    assert check() == []
    assert check(compare_all=True) == ["avg.pt", "train.yaml"]
    assert check() == []


@pytest.mark.parametrize("size", [None, 100], ids=["a byte", "cut"])
@pytest.mark.parametrize("name", CONTENTS)
def test_damage_after_the_first_check_is_named_and_the_file_is_deleted(check, snapshot, name, size):
    check()
    damage((snapshot / name).resolve(), size)
    with pytest.raises(ValueError, match=f"^{name}: wrong digest; the file is deleted"):
        check()
    assert not (snapshot / name).is_symlink()
    assert len(list(snapshot.parents[1].joinpath("blobs").iterdir())) == 1


def test_a_copy_of_the_cache_is_compared_again(check, snapshot):
    check()
    blob = (snapshot / "avg.pt").resolve()
    shutil.copy2(blob, blob.with_name("copy"))
    blob.with_name("copy").replace(blob)
    assert check() == ["avg.pt"]


def test_files_that_models_share_are_compared_with_the_digest_of_the_model(check, snapshot):
    """The store of shared files names them by another digest."""
    blob = (snapshot / "avg.pt").resolve()
    shared = snapshot.parents[3] / "blobs/ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    blob.replace(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    assert check() == ["avg.pt", "train.yaml"]
    damage(shared)
    with pytest.raises(ValueError, match=r"^avg\.pt: wrong digest"):
        check()
    assert not shared.exists()
    assert not blob.is_symlink()


def test_a_damaged_note_or_none_costs_a_comparison(check, tmp_path, caplog):
    check()
    for content in (b"{", b"\xff", b"[]", b'{"x": 1}', b""):
        (tmp_path / "n/c.json").write_bytes(content)
        assert check() == ["avg.pt", "train.yaml"]
    assert "all digests are compared" in caplog.text
    (tmp_path / "n/c.json").unlink()
    (tmp_path / "n/c.json").mkdir()
    assert check() == check() == ["avg.pt", "train.yaml"]
    assert "the digests are compared again at the next start" in caplog.text


def test_what_was_right_is_noted_though_another_file_is_wrong(check, snapshot):
    damage((snapshot / "train.yaml").resolve())
    with pytest.raises(ValueError, match="train.yaml"):
        check()
    assert check() == []


def test_a_file_without_a_digest_is_an_error(check, snapshot):
    (snapshot / "avg.pt").unlink()
    (snapshot / "avg.pt").write_bytes(b"x")
    with pytest.raises(ValueError, match="the hub gave no digest of this file"):
        check()
