import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile

from tests.support.data.packing import pack
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine, read_shard_list
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.kaldi_tables import read_audio_lines
from wenet_uio.prepare.list_making import (
    make_raw_list,
    make_shard_list,
    manifest_path,
    tell_outcome,
)
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import DurationGroup, ShardOptions


def contents(folder):
    """Bytes of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_shards_keep_the_encoded_bytes(make_utterances, tmp_path):
    lines = make_utterances(3, rate=8000)
    pack(lines, tmp_path / "s", str(tmp_path / "list"))
    corpus = open_list(str(tmp_path / "list"), "shard")
    for row, line in enumerate(lines):
        assert bytes(corpus.read(SampleRef(0, row)).audio) == open(line.wav, "rb").read()


def test_packing_is_the_same_with_any_number_of_processes(make_utterances, tmp_path):
    lines = make_utterances(25)
    packed = []
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        make_shard_list(
            lines, folder, str(tmp_path / "list"), ShardOptions(per_shard=10), Executor(processes)
        )
        packed.append(contents(folder))
    assert packed[0] == packed[1]
    assert [name for name in packed[0] if name.endswith(".tar")] == [
        f"shards_{i:09d}.tar" for i in range(3)
    ]


def test_threads_and_processes_make_the_same_index_of_a_raw_list(make_utterances, tmp_path):
    lines = make_utterances(30)
    open(lines[14].wav, "wb").close()
    made = []
    for executor in (Executor(4, "threads"), Executor(2)):
        bad = make_raw_list(lines, str(tmp_path / "list"), 8, executor)
        assert [key for key, _ in bad] == ["utt0014"]
        corpus = open_list(str(tmp_path / "list"), "raw")
        made.append((corpus.digest, corpus.samples.tolist()))
    assert made[0] == made[1]
    assert made[0][1] == [8, 7, 8, 6]


def test_segments_are_the_same_in_raw_and_shard_lists(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    cuts = [RawLine("one", line.wav, "a", 0.05, 0.15), RawLine("two", line.wav, "b", 0.1, 0.3)]
    make_raw_list(cuts, str(tmp_path / "raw"))
    pack(cuts, tmp_path / "s", str(tmp_path / "shard"))
    raw, shard = (
        open_list(str(tmp_path / "raw"), "raw"),
        open_list(str(tmp_path / "shard"), "shard"),
    )
    assert raw.digest == shard.digest
    assert raw.rows(0).num_samples.tolist() == [1600, 3200]


def test_failed_utterances_are_named_and_the_others_packed(make_utterances, tmp_path):
    lines = make_utterances(10)
    os.remove(lines[2].wav)
    open(lines[7].wav, "wb").close()
    failures = make_shard_list(
        lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=4), Executor(2)
    )
    assert [key for key, _ in failures] == ["utt0002", "utt0007"]
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 8
    assert [key for key, _ in make_raw_list(lines, str(tmp_path / "raw"), 4)] == [
        "utt0002",
        "utt0007",
    ]


def broken(path, how):
    data = path.read_bytes()
    if how == "cut flac":
        samples, rate = soundfile.read(path, dtype="int16")
        soundfile.write(path.with_suffix(".flac"), samples, rate)
        data = path.with_suffix(".flac").read_bytes()
    whole = {"empty": b"", "text": b"no audio at all\n" * 99, "header alone": data[:44]}
    path.write_bytes(whole.get(how, data[: len(data) // 2]))


@pytest.mark.parametrize("how", ["empty", "text", "header alone", "cut wav", "cut flac"])
@pytest.mark.parametrize("options", [{}, {"max_bytes": 10**6}, {"storing": Storing("flac")}])
def test_a_broken_file_of_any_kind_is_named(make_utterances, tmp_path, how, options):
    lines = make_utterances(3)
    broken(Path(lines[1].wav), how)
    ((key, reason),) = pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(**options))
    assert (key, bool(reason)) == ("utt0001", True)
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 2


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_a_wav_that_is_shorter_than_its_header_is_bad_in_raw_lists_and_in_shards(
    make_utterances, tmp_path, subtype
):
    lines = make_utterances(3)
    cut = Path(lines[1].wav)
    samples, rate = soundfile.read(cut)
    soundfile.write(cut, samples, rate, subtype=subtype)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    lines.append(RawLine("part", str(cut), "a", 0.05, 0.1))  # a part that the file has
    for bad in (
        make_raw_list(lines, str(tmp_path / "raw")),
        pack(lines, tmp_path / "s", str(tmp_path / "list")),
        pack(lines, tmp_path / "t", str(tmp_path / "other"), ShardOptions(max_bytes=10**6)),
    ):
        ((key, reason),) = bad
        assert (key, "cut short" in reason) == ("utt0001", True)


def test_a_shard_without_a_packed_utterance_is_not_listed(make_utterances, tmp_path):
    lines = make_utterances(3)
    os.remove(lines[1].wav)
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=1))
    assert (tmp_path / "list").read_text().count("\n") == 2
    with pytest.raises(ValueError, match="not one utterance could be packed; utt0001: "):
        pack(lines[1:2], tmp_path / "s", str(tmp_path / "list"))


def test_the_manifest_accounts_for_every_utterance(make_utterances, tmp_path):
    lines = make_utterances(12)
    open(lines[5].wav, "wb").close()
    groups = [DurationGroup(0.3, 0.6), DurationGroup(0.6, 1.0)]
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=3, groups=groups))
    manifest = json.loads(manifest_path(str(tmp_path / "list")).read_text())
    totals = manifest["totals"]
    assert totals["utterances"] + totals["bad"] + totals["outside"] == 12
    assert [key for key, _ in manifest["bad"]] == ["utt0005"]
    assert manifest["outside"]
    assert all(seconds >= 1.0 for _, seconds in manifest["outside"])
    corpus = open_list(str(tmp_path / "list"), "shard")
    assert (totals["utterances"], totals["shards"]) == (corpus.num_samples, corpus.num_shards)
    assert totals["seconds"] == pytest.approx(corpus.total_seconds, abs=0.01)
    for number, shard in enumerate(manifest["shards"]):
        data = Path(shard["path"]).read_bytes()
        assert (shard["bytes"], shard["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        low, high = map(float, Path(shard["path"]).parent.name.split("_"))
        assert low <= corpus.rows(number).seconds.min() <= corpus.rows(number).seconds.max() < high


@pytest.mark.parametrize("audio_format", ["keep", "wav", "flac", "opus"])
def test_no_shard_is_larger_than_its_bound_nor_much_smaller(
    make_utterances, tmp_path, audio_format
):
    lines = make_utterances(10 if audio_format == "opus" else 20)  # opus is slow
    storing, bound = Storing(audio_format), 20_000 if audio_format == "opus" else 100_000
    options = {"per_shard": None, "max_bytes": bound, "storing": storing}
    assert pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(**options)) == []
    sizes = [os.path.getsize(path) for path in read_shard_list(tmp_path / "list")]
    assert max(sizes) <= bound
    assert sum(sizes) / len(sizes) > 0.6 * bound
    assert open_list(str(tmp_path / "list"), "shard").num_samples == len(lines)


def test_an_utterance_larger_than_the_bound_has_a_shard_of_its_own(make_utterances, tmp_path):
    options = {"per_shard": None, "max_bytes": 1000}
    assert (
        pack(make_utterances(3), tmp_path / "s", str(tmp_path / "list"), ShardOptions(**options))
        == []
    )
    assert open_list(str(tmp_path / "list"), "shard").samples.tolist() == [1, 1, 1]


def test_a_shuffle_is_a_function_of_the_seed_and_the_keys(make_utterances, tmp_path):
    lines = make_utterances(20)

    def keys(lines, seed):
        pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(seed=seed))
        corpus = open_list(str(tmp_path / "list"), "shard")
        return [corpus.key(SampleRef(0, row)) for row in range(20)]

    assert keys(lines, 3) == keys(lines[::-1], 3)
    assert keys(lines, 3) != keys(lines, 4)
    assert sorted(keys(lines, 3)) == [line.key for line in lines] == keys(lines, None)


@pytest.mark.parametrize(("allow_bad", "status"), [(False, 1), (True, 0)])
def test_ten_bad_utterances_are_named_and_the_others_counted(
    make_utterances, tmp_path, capsys, allow_bad, status
):
    lines = make_utterances(13)
    for line in lines[:12]:
        Path(line.wav).write_bytes(b"")
    data_list = str(tmp_path / "list")
    assert tell_outcome(data_list, make_raw_list(lines, data_list), allow_bad) == status
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors[:10]] == [
        f"utt{number:04d}" for number in range(10)
    ]
    assert errors[10] == f"error: and 2 more, all of them in {data_list}.json"
    assert len(errors) == 11 + status


def test_a_segment_past_the_end_is_bad_in_raw_and_in_shard_lists_by_the_same_words(
    make_utterances, tmp_path
):
    (line,) = make_utterances(1)
    segments = {"far": (0.1, 60.0), "near": (0.1, 0.35), "after": (7.0, 8.0)}
    lines = [replace(line, key=key, start=start, end=end) for key, (start, end) in segments.items()]
    raw = make_raw_list(lines, str(tmp_path / "raw.list"), 10)
    packed = pack(
        lines, tmp_path / "shards", str(tmp_path / "shard.list"), ShardOptions(per_shard=10)
    )
    for bad in (raw, packed):
        reasons = dict(bad)
        assert set(reasons) == {"far", "after"}
        assert "the segment ends at 60.00 s, the audio at " in reasons["far"]
        assert "no audio between 7.0 s and 8.0 s" in reasons["after"]


def test_segments_beside_a_table_that_are_not_used_are_said(make_utterances, tmp_path, capsys):
    (line,) = make_utterances(1)
    (tmp_path / "wav.scp").write_text(f"a {line.wav}\n")
    (tmp_path / "segments").write_text("x a 0.0 0.1\n")
    assert [found.key for found in read_audio_lines(str(tmp_path / "wav.scp"))] == ["a"]
    assert "segments lies beside" in capsys.readouterr().err
