import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.support.data.packing import pack
from tests.support.data.tars import write_tar
from wenet_uio.bin import extract_shard
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.extraction import Sample, extract, read_samples


@pytest.fixture
def shard(make_utterances, tmp_path):
    """A shard of six utterances, and their lines."""
    lines = make_utterances(6)
    pack(lines, tmp_path / "s", str(tmp_path / "list"))
    return str(tmp_path / "s" / "shards_000000000.tar"), lines


def test_samples_come_with_all_their_members(shard):
    path, lines = shard
    found = list(read_samples(path))
    assert [sample.key for sample in found] == [line.key for line in lines]
    for sample, line in zip(found, lines, strict=True):
        assert sample.members == {"txt": line.text.encode(), "wav": Path(line.wav).read_bytes()}


def test_keys_are_chosen_by_globs(shard):
    path, _ = shard
    assert [sample.key for sample in read_samples(path, ["*0001", "utt000[45]"])] == [
        "utt0001",
        "utt0004",
        "utt0005",
    ]


def test_rows_and_json_describe_the_members(shard):
    path, _ = shard
    (sample,) = read_samples(path, ["utt0001"])
    info = sample.audio()["wav"]
    assert sample.as_row() == f"utt0001\t{info.num_samples / 16000:.3f}\t16000\ttxt,wav\tab"
    values = json.loads(sample.as_json())
    assert (values["txt"], values["wav"]["sample_rate"]) == ("ab", 16000)
    assert values["wav"]["bytes"] == len(sample.members["wav"])
    assert json.loads(Sample("k", {"wav": b"none", "npy": b"\xff\x00"}).as_json())["npy"] == {
        "bytes": 2
    }
    assert Sample("k", {"wav": b"none", "txt": b"a"}).as_row().startswith("k\t-\t")


def test_extracted_files_have_the_bytes_that_were_packed(shard, tmp_path):
    path, lines = shard
    for sample in read_samples(path):
        extract(sample, tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 12
    for line in lines:
        assert (tmp_path / "out" / f"{line.key}.wav").read_bytes() == Path(line.wav).read_bytes()


@pytest.mark.parametrize("key", ["../up", "/tmp/absolute"])
def test_nothing_is_written_outside_the_folder(tmp_path, key):
    with pytest.raises(ListError, match="leads out of"):
        extract(Sample(key, {"txt": b"a"}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def all_samples(path):
    """Keys of the samples that are given, and the error at the end ("" if there is none)."""
    keys = []
    try:
        for sample in read_samples(str(path)):
            keys.append(sample.key)
    except ListError as error:
        return keys, str(error)
    return keys, ""


def test_all_samples_that_damage_spares_are_given_before_the_error(shard, tmp_path):
    path, _ = shard
    whole = Path(path).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    keys, error = all_samples(tmp_path / "cut.tar")
    assert keys[0] == "utt0000"
    assert error.startswith(f"{tmp_path}/cut.tar: utt000")
    assert "cut short" in error
    at = whole.index(b"utt0002.txt")
    (tmp_path / "hole.tar").write_bytes(whole[:at] + b"\x07" * 512 + whole[at + 512 :])
    keys, error = all_samples(tmp_path / "hole.tar")
    assert keys == [f"utt000{number}" for number in range(6)]
    assert (
        f"hole.tar: damaged at byte {at} (no header of a member); the next member that can be read "
        "is" in error
    )
    for tail in (bytes(50_000), b"\0" * 1024 + b"garbage", b"garbage" * 100):
        (tmp_path / "tail.tar").write_bytes(whole + tail)
        keys, error = all_samples(tmp_path / "tail.tar")
        assert len(keys) == 6
        assert error


def test_a_member_that_occurs_twice_is_reported(tmp_path):
    write_tar(tmp_path / "x.tar", [("a.txt", "one"), ("a.txt", "two"), ("b.txt", "three")])
    assert all_samples(tmp_path / "x.tar") == (
        ["a", "b"],
        f"{tmp_path}/x.tar: a.txt: occurs more than once; the last is given",
    )


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_a_compressed_tar_that_is_cut_short_gives_its_samples_and_an_error(mode, shard, tmp_path):
    path, _ = shard
    with tarfile.open(path) as tar, tarfile.open(tmp_path / "whole", f"w:{mode}") as packed:
        for member in tar:
            packed.addfile(member, tar.extractfile(member))
    assert all_samples(tmp_path / "whole") == ([f"utt000{number}" for number in range(6)], "")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    keys, error = all_samples(tmp_path / "cut")
    assert len(keys) < 6
    assert error.startswith(f"{tmp_path}/cut: cut short or damaged (")


def test_the_command_names_every_damaged_shard_and_fails(shard, tmp_path, capsys):
    path, _ = shard
    for name in ("first.tar", "second.tar"):
        (tmp_path / name).write_bytes(Path(path).read_bytes() + b"garbage")
    assert extract_shard.main([str(tmp_path / f"{name}.tar") for name in ("first", "second")]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 12
    assert [line.split(": ")[1].rpartition("/")[2] for line in printed.err.splitlines()] == [
        "first.tar",
        "second.tar",
    ]


def test_a_list_of_tars_is_not_taken_for_a_tar(tmp_path):
    (tmp_path / "data.list").write_text("shards/shards_000000000.tar\n")
    with pytest.raises(ListError, match="data.list: .*; expected a tar, not a list of tars"):
        list(read_samples(str(tmp_path / "data.list")))


def test_compressed_tars_and_members_without_a_suffix_are_read(tmp_path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for name, data in (("dir/a.b.txt", b"one"), ("dir/a.b.wav", b"two"), ("README", b"three")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    found = list(read_samples(str(tmp_path / "x.tar.gz")))
    assert found == [
        Sample("dir/a.b", {"txt": b"one", "wav": b"two"}),
        Sample("README", {"": b"three"}),
    ]
