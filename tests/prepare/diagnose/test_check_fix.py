"""Lists without the losses that a check found."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.support.data.checking import check
from tests.support.data.hostile_lists import RAW, SHARD, as_bytes
from tests.support.data.packing import pack
from tests.support.data.tars import write_tar
from wenet_uio.dataset.formats.data_list import parse_raw_line
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_fix import write_clean_list
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.diagnose.findings import LOSSES, SUSPECTS
from wenet_uio.prepare.sharding import ShardOptions


def fix(data_list, data_type, out):
    """Check and write a clean list; returns the number of utterances that are left."""
    with opened_for_check(str(data_list), data_type) as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading())
        return write_clean_list(corpus, report, str(out), str(data_list)).kept


def test_every_hostile_line_of_a_raw_list_is_found_and_left_out(make_utterances, tmp_path):
    good = [
        json.dumps({"key": line.key, "wav": line.wav, "txt": line.text}).encode()
        for line in make_utterances(2)
    ]
    (tmp_path / "a.wav").write_bytes(Path(tmp_path / "wav" / "utt0000.wav").read_bytes())
    hostile = [as_bytes(text) for text, _ in RAW.values()]
    (tmp_path / "raw.list").write_bytes(
        b"\xef\xbb\xbf" + b"\n".join([good[0], *hostile, good[1]]) + b"\n"
    )
    report = check(tmp_path / "raw.list", "raw")
    assert (report.utterances, report.counts[NOT_INDEXED]) == (2, len(RAW))
    assert fix(tmp_path / "raw.list", "raw", tmp_path / "clean.list") == 2
    assert check(tmp_path / "clean.list", "raw").losses == 0
    assert (tmp_path / "clean.list.left_out.jsonl").read_text().count("\n") == len(RAW)


@pytest.mark.parametrize("lost", [False, True])
def test_every_hostile_line_of_a_shard_list_is_found_and_left_out(make_utterances, tmp_path, lost):
    pack(make_utterances(4), tmp_path / "s", str(tmp_path / "good"), ShardOptions(per_shard=2))
    shards = (tmp_path / "good").read_bytes().splitlines()
    if lost:
        Path(shards[1].decode()).unlink()
    hostile = [text for text, _ in SHARD.values()]
    (tmp_path / "list").write_bytes(b"\n".join([*hostile, *shards]) + b"\n")
    named = {finding.key for finding in check(tmp_path / "list", "shard").findings}
    assert named >= {f"{tmp_path}/list:{number}" for number in range(1, len(SHARD) + 1)}
    assert fix(tmp_path / "list", "shard", tmp_path / "clean") == (2 if lost else 4)
    assert check(tmp_path / "clean", "shard").losses == 0


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_fixed_lists_lose_nothing_and_the_ledger_names_the_losses(
    kind, faulty_raw_list, faulty_shard_list, tmp_path
):
    data_list, expected = faulty_raw_list if kind == "raw" else faulty_shard_list
    out = tmp_path / "clean.list"
    left = fix(data_list, kind, out)
    ledger = [json.loads(line) for line in open(f"{out}.left_out.jsonl")]
    lost = {kind: keys for kind, keys in expected.items() if kind in LOSSES}
    assert sorted((line["kind"], line["key"]) for line in ledger) == sorted(
        (k, key) for k in lost for key in lost[k]
    )
    report = check(out, kind)
    assert report.losses == 0
    others = 2 * (kind == "shard")  # cut0; and two utterances are in the shard with the stale index
    assert report.utterances == left == 40 + len(set(expected) & SUSPECTS.keys()) + others


def test_a_fixed_raw_list_keeps_its_lines_unchanged(faulty_raw_list, tmp_path):
    raw, _ = faulty_raw_list
    fix(raw, "raw", tmp_path / "clean.list")
    clean = (tmp_path / "clean.list").read_text().splitlines()
    assert set(clean) < set(raw.read_text().splitlines())
    assert len({parse_raw_line(line).key for line in clean}) == len(clean)


def test_sound_shards_are_kept_and_samples_of_other_shards_are_copied_with_all_members(
    make_utterances, tmp_path
):
    lines = make_utterances(6)
    pack(lines, tmp_path / "shards", str(tmp_path / "list"), ShardOptions(per_shard=3))
    (tmp_path / "list.idx").unlink()
    first, second = (tmp_path / "list").read_text().splitlines()
    members = {
        "x.txt": b"a",
        "x.wav": Path(lines[0].wav).read_bytes(),
        "x.json": b"{}",
        "y.txt": b"b",
    }
    with tarfile.open(second, "a") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert fix(tmp_path / "list", "shard", tmp_path / "clean") == 7
    kept, copied = (tmp_path / "clean").read_text().splitlines()
    assert (kept, copied) == (first, f"{tmp_path}/clean.shards/000000001_{Path(second).name}")
    with tarfile.open(copied) as tar, tarfile.open(second) as source:
        names = [name for name in source.getnames() if name != "y.txt"]
        assert tar.getnames() == names
        assert all(
            tar.extractfile(name).read() == source.extractfile(name).read() for name in names
        )


@pytest.mark.parametrize(
    ("out", "message"),
    [("raw.list", "is the list itself"), ("other/out", "put the new list into the folder of")],
)
def test_a_fix_of_the_list_itself_or_into_another_folder_is_refused(
    out, message, make_lists, tmp_path
):
    raw = Path(make_lists(3)["raw"])
    before = raw.read_bytes()
    with pytest.raises(ListError, match=message):
        fix(raw, "raw", tmp_path / out)
    assert raw.read_bytes() == before
    assert not (tmp_path / "other").exists()


def test_samples_whose_names_have_blanks_are_copied_one_by_one(tmp_path, make_utterances):
    audio = Path(make_utterances(1)[0].wav).read_bytes()
    members = [
        (f"my {n}.x.{kind}", b"a" if kind == "txt" else audio)
        for n in ("a", "b")
        for kind in ("txt", "wav")
    ]
    members += [("my a.x.txt", b"a"), ("my a.x.wav", audio)]  # the key a second time
    (tmp_path / "list").write_text(write_tar(tmp_path / "a.tar", members) + "\n")
    assert fix(tmp_path / "list", "shard", tmp_path / "clean") == 2
    (copied,) = (tmp_path / "clean").read_text().split()
    with tarfile.open(copied) as tar:
        assert tar.getnames() == [name for name, _ in members[:4]]
