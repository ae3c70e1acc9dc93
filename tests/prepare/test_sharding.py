import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.tar_members import END_BYTES
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import (
    DurationGroup,
    ShardNaming,
    ShardOptions,
    _cut_into_shards,
    check_groups,
    parse_group,
    parse_size,
    plan_shards,
)


@given(
    st.lists(st.integers(1, 5000), max_size=60),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1024, 20_000),
)
def test_runs_hold_every_utterance_once_in_order_and_within_both_bounds(
    sizes, per_shard, max_bytes
):
    lines = [RawLine(str(number), "", "") for number in range(len(sizes))]
    options = ShardOptions(per_shard=per_shard, max_bytes=max_bytes)
    shards = _cut_into_shards(lines, {"": range(len(sizes))}, sizes, options)
    runs = [[int(line.key) for line in shard] for _, shard in shards]
    assert [number for run in runs for number in run] == list(range(len(sizes)))
    for run in runs:
        assert run
        assert per_shard is None or len(run) <= per_shard
        assert (
            max_bytes is None
            or len(run) == 1
            or END_BYTES + sum(sizes[number] for number in run) <= max_bytes
        )
    for run, following in itertools.pairwise(runs):  # no shard ends before it has to
        more = END_BYTES + sum(sizes[number] for number in [*run, following[0]])
        assert len(run) == per_shard or (max_bytes is not None and more > max_bytes)


@pytest.mark.parametrize("seed", [None, 3])
def test_every_utterance_is_planned_bad_or_outside(make_utterances, seed):
    lines = make_utterances(40)
    open(lines[11].wav, "wb").close()
    groups = [DurationGroup(0.5, 0.7), DurationGroup(0.7, 1.0)]
    options = ShardOptions(
        per_shard=4, max_bytes=100_000, groups=groups, seed=seed, storing=Storing("flac")
    )
    plan = plan_shards(lines, options, Executor())
    planned = [line.key for _, lines in plan.shards for line in lines]
    outside = [key for key, _ in plan.outside]
    assert sorted([*planned, *outside, "utt0011"]) == [line.key for line in lines]
    assert [key for key, _ in plan.bad] == ["utt0011"]
    assert outside
    assert {name.split("/")[0] for name, _ in plan.shards} == {"0.5_0.7", "0.7_1"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("500MB", 500_000_000),
        ("1.5 gb", 1_500_000_000),
        ("1GiB", 2**30),
        ("2K", 2000),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "GB", "1TB1", "1iB"])
def test_text_that_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="a size is a number of bytes"):
        parse_size(text)


def test_groups_are_half_open_ranges_that_do_not_overlap():
    assert parse_group("0.1:5") == DurationGroup(0.1, 5.0)
    check_groups([DurationGroup(5, 20), DurationGroup(0.1, 5)])
    for text in ("5:1", "5", "a:b", "1:2:3", "-1:2"):
        with pytest.raises(ValueError, match="group"):
            parse_group(text)


def test_no_header_is_read_without_groups_and_without_a_bound_in_bytes():
    lines = [RawLine(f"k{number}", "/nowhere.wav", "a") for number in range(5)]
    plan = plan_shards(lines, ShardOptions(ShardNaming.of_prefix("p"), per_shard=2), Executor())
    assert plan.shards == [
        ("p_000000000", lines[:2]),
        ("p_000000001", lines[2:4]),
        ("p_000000002", lines[4:]),
    ]
    assert (plan.bad, plan.outside) == ([], [])
