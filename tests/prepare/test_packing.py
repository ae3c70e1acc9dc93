import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import ListError, RawLine, read_shard_list
from wenet_uio.dataset.types import SampleRef
from wenet_uio.executor import Executor
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.packing import make_raw_list, make_shard_list, manifest_of
from wenet_uio.prepare.shard_job import ShardJob, Storing, pack_shard
from wenet_uio.prepare.sharding import Group


def contents(folder):
    """Bytes of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_shards_keep_the_encoded_bytes(make_utterances, tmp_path):
    lines = make_utterances(3, rate=8000)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"))
    corpus = open_list(str(tmp_path / "list"), "shard")
    for row, line in enumerate(lines):
        assert bytes(corpus.read(SampleRef(0, row)).audio) == open(line.wav, "rb").read()


def test_packing_is_the_same_with_any_number_of_processes(make_utterances, tmp_path):
    lines = make_utterances(25)
    packed = []
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        make_shard_list(lines, folder, str(tmp_path / "list"), per_shard=10, executor=Executor(processes))
        packed.append(contents(folder))
    assert packed[0] == packed[1]
    assert [name for name in packed[0] if name.endswith(".tar")] == [f"shards_{i:09d}.tar" for i in range(3)]


def test_raw_lists_are_indexed_alike_by_threads_and_processes(make_utterances, tmp_path):
    lines = make_utterances(150)
    open(lines[70].wav, "wb").close()
    made = []
    for executor in (Executor(4, "threads"), Executor(2)):
        bad = make_raw_list(lines, str(tmp_path / "list"), 40, executor)
        assert [key for key, _ in bad] == ["utt0070"]
        corpus = open_list(str(tmp_path / "list"), "raw")
        made.append((corpus.digest, corpus.samples.tolist()))
    assert made[0] == made[1]
    assert made[0][1] == [40, 39, 40, 30]


def test_failed_utterances_are_named_and_the_others_packed(make_utterances, tmp_path):
    lines = make_utterances(10)
    os.remove(lines[2].wav)
    open(lines[7].wav, "wb").close()
    failures = make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=4, executor=Executor(2))
    assert [key for key, _ in failures] == ["utt0002", "utt0007"]
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 8
    assert [key for key, _ in make_raw_list(lines, str(tmp_path / "raw"), 4)] == ["utt0002", "utt0007"]


def test_a_shorter_run_removes_the_shards_of_a_longer_one(make_utterances, tmp_path):
    lines = make_utterances(10)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=2)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=5)
    shards = [f"shards_{number:09d}" for number in (0, 1)]
    receipts = [f".packed/{shard}.json" for shard in shards]
    tars = [f"{shard}.tar{suffix}" for shard in shards for suffix in ("", ".idx")]
    assert list(contents(tmp_path / "s")) == [".packed/lock", *receipts, *tars]


def test_segments_are_cut_alike_in_raw_and_shard_lists(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    cuts = [RawLine("one", line.wav, "a", 0.05, 0.15), RawLine("two", line.wav, "b", 0.1, 0.3)]
    make_raw_list(cuts, str(tmp_path / "raw"))
    make_shard_list(cuts, tmp_path / "s", str(tmp_path / "shard"))
    raw, shard = open_list(str(tmp_path / "raw"), "raw"), open_list(str(tmp_path / "shard"), "shard")
    assert raw.digest == shard.digest
    assert raw.rows(0).num_samples.tolist() == [1600, 3200]


def test_resampled_shards_hold_wav_of_that_rate(make_utterances, tmp_path):
    make_shard_list(
        make_utterances(2, rate=8000), tmp_path / "s", str(tmp_path / "list"), storing=Storing(resample_rate=16000)
    )
    assert open_list(str(tmp_path / "list"), "shard").rows(0).sample_rate.tolist() == [16000, 16000]


@pytest.fixture
def tables(tmp_path):
    def write(**contents):
        for name, text in contents.items():
            (tmp_path / name).write_text(text)
        return [str(tmp_path / name) for name in ("wav_scp", "text")]

    return write


def test_utterances_come_in_the_order_of_the_text(tables, capsys):
    lines = read_utterances(*tables(wav_scp="a /a.wav\nb /b.wav\nc /c.wav\n", text="b  two words\na one\n"))
    assert lines == [RawLine("b", "/b.wav", "two words"), RawLine("a", "/a.wav", "one")]
    assert "1 utterance(s) without text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"wav_scp": "a /a.wav\n", "text": "a x\nb y\n"}, "text: b without audio in .*wav_scp"),
        ({"wav_scp": "a /a.wav\na /b.wav\n", "text": "a x\n"}, "wav_scp:2: utterance 'a' is there twice"),
        ({"wav_scp": "a sox a.sph - |\n", "text": "a x\n"}, "commands are not run"),
        ({"wav_scp": "", "text": "a x\n"}, "wav_scp: empty"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tables, contents, message):
    with pytest.raises(ValueError, match=message):
        read_utterances(*tables(**contents))


@pytest.mark.parametrize(
    ("segments", "message"),
    [("s r 0.5\n", "expected `recording start end`"), ("s r 2 1\n", "starts at"), ("s q 0 1\n", "without a recording")],
)
def test_segments_that_do_not_fit_are_refused(tables, tmp_path, segments, message):
    (tmp_path / "segments").write_text(segments)
    with pytest.raises(ListError, match=message):
        read_utterances(*tables(wav_scp="r /r.wav\n", text="s x\n"), str(tmp_path / "segments"))


def test_an_uppercase_suffix_is_audio_like_any_other(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    samples, rate = soundfile.read(line.wav)
    loud = tmp_path / "LOUD.WAV"
    soundfile.write(loud, samples, rate)
    assert make_shard_list([RawLine("loud", str(loud), "a")], tmp_path / "s", str(tmp_path / "list")) == []
    assert open_list(str(tmp_path / "list"), "shard").key(SampleRef(0, 0)) == "loud"


OTHER_RUNS = [
    {"per_shard": 5},
    {"per_shard": 7, "storing": Storing("flac")},
    {"per_shard": 7, "groups": [Group(0, 0.6), Group(0.6, 5)]},
    {"per_shard": None, "max_bytes": 100_000, "seed": 1},
    {"per_shard": None, "max_bytes": 50_000, "storing": Storing("opus", 8000)},
]


@pytest.mark.parametrize("last", OTHER_RUNS)
def test_a_rerun_with_other_options_leaves_nothing_of_the_first(make_utterances, tmp_path, last):
    lines = make_utterances(20)
    for options in ({"per_shard": 3, "groups": [Group(0, 0.5), Group(0.5, 0.9)]}, {"per_shard": 3}, last):
        make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), **options)
    found = contents(tmp_path / "s")
    shutil.rmtree(tmp_path / "s")
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), **last)
    assert found == contents(tmp_path / "s")


def test_shards_of_another_prefix_and_of_folders_below_are_left_alone(make_utterances, tmp_path):
    lines = make_utterances(4)
    make_shard_list(lines, tmp_path / "s" / "below", str(tmp_path / "below"), per_shard=1)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "other"), per_shard=1, prefix="shards_b")
    before = contents(tmp_path / "s")
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=4)
    assert before.items() <= contents(tmp_path / "s").items()


def test_a_rerun_makes_only_what_is_missing_or_changed(make_utterances, tmp_path, capsys):
    lines = make_utterances(10)
    folder = tmp_path / "s"

    def made():
        before = {path: path.stat().st_ino for path in folder.glob("*.tar")}
        make_shard_list(lines, folder, str(tmp_path / "list"), per_shard=2)
        return [int(path.stem[-9:]) for path in sorted(folder.glob("*.tar")) if before.get(path) != path.stat().st_ino]

    assert made() == [0, 1, 2, 3, 4]
    assert made() == []
    assert "5 of 5 shards were there already" in capsys.readouterr().err
    (folder / "shards_000000003.tar").unlink()
    assert made() == [3]
    shutil.copyfile(lines[0].wav, lines[3].wav)
    assert made() == [1]
    lines[9] = replace(lines[9], text="changed")
    assert made() == [4]
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 10


def test_what_could_not_be_opened_for_now_is_tried_again(make_utterances, tmp_path, monkeypatch):
    lines = make_utterances(3)
    read_bytes = Path.read_bytes

    def stale(path):
        if path.name == "utt0001.wav":
            raise OSError(errno.ESTALE, "Stale file handle")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", stale)
    jobs = [ShardJob(str(tmp_path), "one", lines, Storing())]
    receipt, made = pack_shard(jobs[0])
    assert ([key for key, _ in receipt.bad], made) == (["utt0001"], True)
    monkeypatch.undo()
    receipt, made = pack_shard(jobs[0])
    assert (receipt.bad, made) == ([], True)
    assert pack_shard(jobs[0]) == (receipt, False)


def test_an_error_while_writing_is_no_fault_of_the_audio(make_utterances, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("wenet_uio.prepare.shard_writer._TarWriter.append", full)
    with pytest.raises(OSError, match="No space left"):
        pack_shard(ShardJob(str(tmp_path), "one", make_utterances(2), Storing()))
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".tar", ".idx", ".tmp", ".json")]


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
def test_a_broken_file_is_named_whatever_is_wrong_with_it(make_utterances, tmp_path, how, options):
    lines = make_utterances(3)
    broken(Path(lines[1].wav), how)
    ((key, reason),) = make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), **options)
    assert (key, bool(reason)) == ("utt0001", True)
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 2


def test_a_shard_none_of_whose_utterances_could_be_packed_is_not_listed(make_utterances, tmp_path):
    lines = make_utterances(3)
    os.remove(lines[1].wav)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=1)
    assert (tmp_path / "list").read_text().count("\n") == 2
    with pytest.raises(ValueError, match="not one utterance could be packed; utt0001: "):
        make_shard_list(lines[1:2], tmp_path / "s", str(tmp_path / "list"))


def test_the_manifest_accounts_for_every_utterance(make_utterances, tmp_path):
    lines = make_utterances(12)
    open(lines[5].wav, "wb").close()
    groups = [Group(0.3, 0.6), Group(0.6, 1.0)]
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=3, groups=groups)
    manifest = json.loads(manifest_of(str(tmp_path / "list")).read_text())
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
def test_no_shard_is_larger_than_its_bound_nor_much_smaller(make_utterances, tmp_path, audio_format):
    lines = make_utterances(40)
    storing, bound = Storing(audio_format), 20_000 if audio_format == "opus" else 150_000
    options = {"per_shard": None, "max_bytes": bound, "storing": storing}
    assert make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), **options) == []
    sizes = [os.path.getsize(path) for path in read_shard_list(tmp_path / "list")]
    assert max(sizes) <= bound
    assert sum(sizes) / len(sizes) > 0.6 * bound
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 40


def test_an_utterance_larger_than_the_bound_has_a_shard_of_its_own(make_utterances, tmp_path):
    options = {"per_shard": None, "max_bytes": 1000}
    assert make_shard_list(make_utterances(3), tmp_path / "s", str(tmp_path / "list"), **options) == []
    assert open_list(str(tmp_path / "list"), "shard").samples.tolist() == [1, 1, 1]


def test_what_a_codec_makes_larger_than_expected_goes_into_a_further_shard(make_utterances, tmp_path):
    lines = make_utterances(4)
    receipt, _ = pack_shard(ShardJob(str(tmp_path), "one", lines, Storing(), max_bytes=80_000))
    assert [shard["path"] for shard in receipt.shards] == ["one.tar", "one_1.tar"]
    assert sum(shard["utterances"] for shard in receipt.shards) == 4


def test_a_shuffle_is_a_function_of_the_seed_and_the_keys(make_utterances, tmp_path):
    lines = make_utterances(20)

    def keys(lines, seed):
        make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), seed=seed)
        corpus = open_list(str(tmp_path / "list"), "shard")
        return [corpus.key(SampleRef(0, row)) for row in range(20)]

    assert keys(lines, 3) == keys(lines[::-1], 3)
    assert keys(lines, 3) != keys(lines, 4)
    assert sorted(keys(lines, 3)) == [line.key for line in lines] == keys(lines, None)


def test_flac_shards_decode_to_the_same_samples_with_all_channels(make_utterances, tmp_path):
    lines = make_utterances(2, channels=2)
    lines.append(RawLine("cut", lines[0].wav, "a", 0.1, 0.2))
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), storing=Storing("flac"))
    corpus = open_list(str(tmp_path / "list"), "shard")
    for row, line in enumerate(lines):
        stored = corpus.read(SampleRef(0, row)).audio
        for channel in (0, 1):
            expected, _ = read_audio(line.wav, line.start, line.end, channel)
            np.testing.assert_array_equal(read_audio(stored, channel=channel)[0], expected)
