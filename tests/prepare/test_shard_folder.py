import shutil

import pytest

from tests.support.data.packing import pack
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import DurationGroup, ShardNaming, ShardOptions


def contents(folder):
    """Bytes of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_shorter_run_removes_the_shards_of_a_longer_one(make_utterances, tmp_path):
    lines = make_utterances(10)
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=2))
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=5))
    shards = [f"shards_{number:09d}" for number in (0, 1)]
    receipts = [f".packed/{shard}.json" for shard in shards]
    tars = [f"{shard}.tar{suffix}" for shard in shards for suffix in ("", ".idx")]
    assert list(contents(tmp_path / "s")) == [
        ".packed/lock",
        ".packed/shards.list",
        *receipts,
        *tars,
    ]


RUNS = [
    ShardOptions(per_shard=3, groups=[DurationGroup(0, 0.5), DurationGroup(0.5, 0.9)]),
    ShardOptions(per_shard=3),
    ShardOptions(per_shard=5),
    ShardOptions(per_shard=7, storing=Storing("flac")),
    ShardOptions(per_shard=7, groups=[DurationGroup(0, 0.6), DurationGroup(0.6, 5)]),
    ShardOptions(per_shard=None, max_bytes=100_000, seed=1),
    ShardOptions(per_shard=None, max_bytes=20_000, storing=Storing("opus", 8000)),
    ShardOptions(per_shard=3),
]


def test_a_rerun_with_other_options_leaves_nothing_of_the_runs_before(make_utterances, tmp_path):
    lines = make_utterances(12)
    for options in RUNS:
        pack(lines, tmp_path / "s", str(tmp_path / "list"), options)
        found = contents(tmp_path / "s")
        (tmp_path / "s").rename(tmp_path / "aside")
        pack(lines, tmp_path / "s", str(tmp_path / "list"), options)
        assert found == contents(tmp_path / "s"), options
        shutil.rmtree(tmp_path / "s")
        (tmp_path / "aside").rename(tmp_path / "s")


def test_shards_of_another_prefix_and_of_folders_below_are_left_alone(make_utterances, tmp_path):
    lines = make_utterances(4)
    pack(lines, tmp_path / "s" / "below", str(tmp_path / "below"), ShardOptions(per_shard=1))
    pack(
        lines,
        tmp_path / "s",
        str(tmp_path / "other"),
        ShardOptions(ShardNaming.of_prefix("shards_b"), per_shard=1),
    )
    before = contents(tmp_path / "s")
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=4))
    assert before.items() <= contents(tmp_path / "s").items()


def test_temporary_files_of_a_killed_run_are_removed_and_other_files_are_left_alone(
    make_utterances, tmp_path
):
    folder = tmp_path / "s"
    (folder / ".packed").mkdir(parents=True)
    left = [".shards_000000007.tar.abc.tmp", ".packed/.shards_000000007.json.abc.tmp"]
    other = [".other_000000007.tar.abc.tmp", ".shards.tmp", "notes.txt"]
    for name in (*left, *other):
        (folder / name).touch()
    pack(make_utterances(2), folder, str(tmp_path / "list"))
    assert not any((folder / name).exists() for name in left)
    assert all((folder / name).exists() for name in other)


def test_shards_of_another_list_are_not_replaced_and_the_list_is_named(make_utterances, tmp_path):
    lines = make_utterances(12)
    pack(lines[:8], tmp_path / "s", str(tmp_path / "train.list"), ShardOptions(per_shard=2))
    before = contents(tmp_path)
    for other in (lines[8:], lines[:4]):
        with pytest.raises(
            ValueError,
            match=r"4 shard\(s\) that .*dev.list would .* belong to the list .*/train.list;",
        ):
            pack(other, tmp_path / "s", str(tmp_path / "dev.list"), ShardOptions(per_shard=5))
    assert contents(tmp_path) == before
    assert open_list(str(tmp_path / "train.list"), "shard").num_samples == 8


def test_overwrite_replaces_the_shards_of_another_list_which_then_no_longer_owns_them(
    make_utterances, tmp_path
):
    lines = make_utterances(6)
    train, dev = str(tmp_path / "train.list"), str(tmp_path / "dev.list")
    pack(lines[:4], tmp_path / "s", train)
    pack(lines[4:], tmp_path / "s", dev, overwrite=True)
    pack(lines[4:], tmp_path / "s", dev, ShardOptions(per_shard=1))
    assert open_list(dev, "shard").num_samples == 2
    with pytest.raises(ValueError, match="belong to the list .*/dev.list;"):
        pack(lines[:4], tmp_path / "s", train)


def test_a_second_list_of_the_same_shards_needs_no_permission(make_utterances, tmp_path):
    lines = make_utterances(4)
    for name in ("one.list", "two.list"):
        pack(lines, tmp_path / "s", str(tmp_path / name), ShardOptions(per_shard=2))
        assert open_list(str(tmp_path / name), "shard").num_samples == 4


def test_a_folder_that_was_moved_with_its_list_still_belongs_to_it(make_utterances, tmp_path):
    lines = make_utterances(4)
    pack(lines, tmp_path / "old" / "s", str(tmp_path / "old" / "list"))
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    pack(lines[:2], tmp_path / "link" / "s", str(tmp_path / "new" / "list"))
    assert open_list(str(tmp_path / "new" / "list"), "shard").num_samples == 2


@pytest.mark.parametrize("place", [".", "0_5"])
def test_tars_of_another_tool_with_the_same_names_are_kept(make_utterances, tmp_path, place):
    tar = tmp_path / "s" / place / "shards_000000000.tar"
    tar.parent.mkdir(parents=True)
    tar.write_bytes(b"of another tool")
    groups = [DurationGroup(0, 5)] if place != "." else []
    with pytest.raises(
        ValueError, match="or were made by another tool; the first is shards_000000000.tar"
    ):
        pack(
            make_utterances(2), tmp_path / "s", str(tmp_path / "list"), ShardOptions(groups=groups)
        )
    assert tar.read_bytes() == b"of another tool"


def test_a_prefix_that_begins_another_prefix_does_not_own_its_shards(make_utterances, tmp_path):
    lines = make_utterances(2)
    pack(
        lines,
        tmp_path / "s",
        str(tmp_path / "a"),
        ShardOptions(ShardNaming.of_prefix("shards_20260101120000"), per_shard=1),
    )
    pack(lines, tmp_path / "s", str(tmp_path / "b"), ShardOptions(ShardNaming.of_prefix("shards")))
    assert open_list(str(tmp_path / "a"), "shard").num_samples == 2


@pytest.mark.parametrize(
    ("fmt", "names"),
    [
        ("data-%05d.tar", ["data-00000.tar", "data-00001.tar"]),
        ("%02d.tar", ["00.tar", "01.tar"]),
        ("shards_%d.tar", ["shards_0.tar", "shards_1.tar"]),
    ],
)
def test_shards_have_the_names_of_a_format_and_leave_those_of_others_alone(
    make_utterances, tmp_path, fmt, names
):
    lines, folder = make_utterances(4), tmp_path / "s"
    pack(lines, folder, str(tmp_path / "other"), ShardOptions(per_shard=1))
    before = contents(folder)
    for per_shard in (1, 2):
        options = ShardOptions(ShardNaming.of_format(fmt), per_shard=per_shard)
        pack(lines, folder, str(tmp_path / "list"), options)
    assert before.items() <= contents(folder).items()
    assert sorted({path.name for path in folder.glob("*.tar")} - before.keys()) == names
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 4


@pytest.mark.parametrize("fmt", ["data.tar", "data-%05d", "d/%05d.tar", "%05d-%05d.tar", "%5d.tar"])
def test_a_format_without_one_number_is_refused(fmt):
    with pytest.raises(ValueError, match="a name with one number, such as data-%05d.tar, not"):
        ShardNaming.of_format(fmt)


def test_numbers_with_more_digits_than_the_format_are_those_of_the_list():
    naming = ShardNaming.of_format("data-%02d.tar")
    assert naming.whole(f"{naming.name_of(123)}.tar") == "data-123.tar"
    assert naming.whole("data-007.tar") is None
    assert naming.whole("data-07_1.tar.idx") == "data-07_1.tar"
