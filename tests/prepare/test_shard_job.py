import errno
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.audio.crashing import crash_at_marked, mark
from tests.support.data.packing import pack
from wenet_uio.audio.read import read_audio
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.shard_job import ShardJob, Storing, encode_sample, pack_shard
from wenet_uio.prepare.sharding import ShardOptions


def test_resampled_shards_hold_wav_of_that_rate(make_utterances, tmp_path):
    options = ShardOptions(storing=Storing(resample_rate=16000))
    pack(make_utterances(2, rate=8000), tmp_path / "s", str(tmp_path / "list"), options)
    assert open_list(str(tmp_path / "list"), "shard").rows(0).sample_rate.tolist() == [16000, 16000]


def test_an_encoding_that_shards_do_not_store_is_refused_before_packing():
    with pytest.raises(ValueError, match="audio_format: expected keep, wav, flac, opus, found 'mp"):
        Storing("mp3")  # pyright: ignore[reportArgumentType] - the mistake


def test_a_rate_that_opus_does_not_store_is_refused_before_packing():
    with pytest.raises(ValueError, match="resampled to 44100 Hz cannot be stored"):
        Storing("opus", 44100)


def test_flac_shards_decode_to_the_same_samples_with_all_channels(make_utterances, tmp_path):
    lines = make_utterances(2, channels=2)
    lines.append(RawLine("cut", lines[0].wav, "a", 0.1, 0.2))
    pack(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(storing=Storing("flac")))
    corpus = open_list(str(tmp_path / "list"), "shard")
    for row, line in enumerate(lines):
        stored = corpus.read(SampleRef(0, row)).audio
        for channel in (0, 1):
            expected, _ = read_audio(line.wav, line.start, line.end, channel)
            np.testing.assert_array_equal(read_audio(stored, channel=channel)[0], expected)


def test_an_uppercase_suffix_is_audio_like_any_other(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    samples, rate = soundfile.read(line.wav)
    loud = tmp_path / "LOUD.WAV"
    soundfile.write(loud, samples, rate)
    assert pack([RawLine("loud", str(loud), "a")], tmp_path / "s", str(tmp_path / "list")) == []
    assert open_list(str(tmp_path / "list"), "shard").key(SampleRef(0, 0)) == "loud"


def test_a_rerun_makes_only_what_is_missing_or_changed(make_utterances, tmp_path, capsys):
    lines = make_utterances(10)
    folder = tmp_path / "s"

    def made():
        before = {path: path.stat().st_ino for path in folder.glob("*.tar")}
        pack(lines, folder, str(tmp_path / "list"), ShardOptions(per_shard=2))
        return [
            int(path.stem[-9:])
            for path in sorted(folder.glob("*.tar"))
            if before.get(path) != path.stat().st_ino
        ]

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


def test_a_file_with_a_temporary_error_is_tried_again_in_the_next_run(
    make_utterances, tmp_path, monkeypatch
):
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


def test_the_reason_of_bad_audio_begins_with_its_path(make_utterances, tmp_path):
    whole, cut, missing = make_utterances(3)
    Path(cut.wav).write_bytes(Path(cut.wav).read_bytes()[:1000])
    Path(missing.wav).unlink()
    receipt, _ = pack_shard(ShardJob(str(tmp_path), "x", (whole, cut, missing), Storing()))
    reasons = dict(receipt.bad)
    assert reasons[cut.key].startswith(f"{cut.wav}: cut short: the header claims")
    assert reasons[missing.key] == f"{missing.wav}: No such file or directory"


@pytest.mark.parametrize(
    "kind", ["flac", pytest.param("flac, bounded in bytes", marks=pytest.mark.all)]
)
def test_audio_that_crashes_the_decoder_is_named_and_the_rest_is_packed(
    make_utterances, tmp_path, monkeypatch, kind
):
    lines = make_utterances(7)
    for number in (1, 3, 4):
        mark(lines[number].wav)
    crash_at_marked(monkeypatch)
    options = ShardOptions(
        per_shard=3, max_bytes=10**5 if "bounded" in kind else None, storing=Storing("flac")
    )
    bad = make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), options, Executor(2))
    assert [key for key, _ in bad] == [lines[number].key for number in (1, 3, 4)]
    assert all("the decoder crashed its process (SIGSEGV)" in reason for _, reason in bad)
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 4
    assert (
        make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), options, Executor(2)) == bad
    )


def test_running_out_of_memory_is_not_counted_as_bad_audio(make_utterances, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("wenet_uio.prepare.shard_job.audio_info", fail)
    with pytest.raises(OSError, match="Cannot allocate"):
        pack_shard(ShardJob(str(tmp_path), "one", make_utterances(2), Storing()))


def test_an_error_while_writing_is_not_counted_as_bad_audio(make_utterances, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("wenet_uio.prepare.shard_writer.TarWriter.append", full)
    with pytest.raises(OSError, match="No space left"):
        pack_shard(ShardJob(str(tmp_path), "one", make_utterances(2), Storing()))
    assert not [
        path for path in tmp_path.rglob("*") if path.suffix in (".tar", ".idx", ".tmp", ".json")
    ]


def test_audio_larger_than_expected_goes_into_a_further_shard(make_utterances, tmp_path):
    lines = make_utterances(4)
    receipt, _ = pack_shard(ShardJob(str(tmp_path), "one", lines, Storing(), max_bytes=80_000))
    assert [shard["path"] for shard in receipt.shards] == ["one.tar", "one_1.tar"]
    assert sum(shard["utterances"] for shard in receipt.shards) == 4


@pytest.mark.parametrize("audio_format", ["keep", "wav", "flac", "opus"])
def test_a_file_of_the_format_is_copied_unless_it_is_cut_or_resampled(
    make_utterances, tmp_path, audio_format
):
    (line,) = make_utterances(1)
    stored = encode_sample(line, Storing(audio_format))
    path = tmp_path / f"stored.{stored.suffix}"
    path.write_bytes(stored.audio)
    line = replace(line, wav=str(path))
    assert encode_sample(line, Storing(audio_format)).audio == stored.audio
    cut = encode_sample(replace(line, end=0.2), Storing(audio_format))
    assert cut.suffix == ("wav" if audio_format == "keep" else audio_format)
    assert cut.num_samples == 3200
    assert encode_sample(line, Storing(audio_format, 8000)).sample_rate == 8000
