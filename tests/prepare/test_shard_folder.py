import shutil

import pytest

from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import DurationGroup, ShardOptions


def contents(folder):
    """Bytes of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_shorter_run_removes_the_shards_of_a_longer_one(make_utterances, tmp_path):
    lines = make_utterances(10)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=2))
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=5))
    shards = [f"shards_{number:09d}" for number in (0, 1)]
    receipts = [f".packed/{shard}.json" for shard in shards]
    tars = [f"{shard}.tar{suffix}" for shard in shards for suffix in ("", ".idx")]
    assert list(contents(tmp_path / "s")) == [".packed/lock", *receipts, *tars]


OTHER_RUNS = [
    ShardOptions(per_shard=5),
    ShardOptions(per_shard=7, storing=Storing("flac")),
    ShardOptions(per_shard=7, groups=[DurationGroup(0, 0.6), DurationGroup(0.6, 5)]),
    ShardOptions(per_shard=None, max_bytes=100_000, seed=1),
    ShardOptions(per_shard=None, max_bytes=50_000, storing=Storing("opus", 8000)),
]


@pytest.mark.parametrize("last", OTHER_RUNS)
def test_a_rerun_with_other_options_leaves_nothing_of_the_first(make_utterances, tmp_path, last):
    lines = make_utterances(20)
    grouped = ShardOptions(per_shard=3, groups=[DurationGroup(0, 0.5), DurationGroup(0.5, 0.9)])
    for options in (grouped, ShardOptions(per_shard=3), last):
        make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), options)
    found = contents(tmp_path / "s")
    shutil.rmtree(tmp_path / "s")
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), last)
    assert found == contents(tmp_path / "s")


def test_shards_of_another_prefix_and_of_folders_below_are_left_alone(make_utterances, tmp_path):
    lines = make_utterances(4)
    make_shard_list(lines, tmp_path / "s" / "below", str(tmp_path / "below"), ShardOptions(per_shard=1))
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "other"), ShardOptions("shards_b", per_shard=1))
    before = contents(tmp_path / "s")
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=4))
    assert before.items() <= contents(tmp_path / "s").items()


def test_temporary_files_of_a_killed_run_are_removed_and_other_files_are_left_alone(make_utterances, tmp_path):
    folder = tmp_path / "s"
    (folder / ".packed").mkdir(parents=True)
    left = [".shards_000000007.tar.abc.tmp", ".packed/.shards_000000007.json.abc.tmp"]
    other = [".other_000000007.tar.abc.tmp", ".shards.tmp", "notes.txt"]
    for name in (*left, *other):
        (folder / name).touch()
    make_shard_list(make_utterances(2), folder, str(tmp_path / "list"))
    assert not any((folder / name).exists() for name in left)
    assert all((folder / name).exists() for name in other)
