import shutil
from pathlib import Path

from tests.support.data.checking import check
from tests.support.data.packing import pack
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.prepare.diagnose.check_shards import changed_shards
from wenet_uio.prepare.sharding import ShardOptions


def packed(lines, folder, name, per_shard=2):
    pack(lines, folder / "s", str(folder / name), ShardOptions(per_shard=per_shard), overwrite=True)
    return str(folder / name)


def found_in(data_list):
    """(kind, name of the shard) of each finding of a shard, and the number of utterances."""
    report = check(data_list, "shard")
    kinds = ("changed_shard", "broken_shard")
    return [
        (each.kind, Path(each.key).stem[-1]) for each in report.findings if each.kind in kinds
    ], report.utterances


def test_a_list_whose_shards_were_packed_over_is_told_which_of_them_changed(
    make_utterances, tmp_path
):
    lines = make_utterances(12)
    train = packed(lines[:6], tmp_path, "train.list")
    assert changed_shards(train, DEFAULT_LAYOUT) == []
    packed([*lines[:2], *lines[8:]], tmp_path, "dev.list")
    (tmp_path / "mix.yaml").write_text(f"- {{type: shard, data_list: {train}}}\n")
    shutil.copy(f"{train}.idx", tmp_path / "kept")
    assert found_in(train) == ([("changed_shard", "1"), ("changed_shard", "2")], 6)
    shutil.copy(tmp_path / "kept", f"{train}.idx")
    assert found_in(tmp_path / "mix.yaml") == ([("changed_shard", "1"), ("changed_shard", "2")], 6)


def test_shards_that_a_smaller_run_removed_and_replaced_are_told(make_utterances, tmp_path):
    lines = make_utterances(8)
    train = packed(lines[:6], tmp_path, "train.list")
    packed(lines[6:], tmp_path, "dev.list")
    found, utterances = found_in(train)
    assert sorted(found) == [("broken_shard", "1"), ("broken_shard", "2"), ("changed_shard", "0")]
    assert utterances == 2


def test_a_list_that_was_made_again_has_no_changed_shards(make_utterances, tmp_path):
    lines = make_utterances(6)
    train = packed(lines, tmp_path, "train.list")
    Path(train).write_text("".join(Path(train).read_text().splitlines(keepends=True)[1:]))
    assert found_in(train) == ([], 4)
