import os

import pytest
import soundfile

from wenet_uio.dataset.corpus import open_list
from wenet_uio.dataset.data_list import ListError, RawLine
from wenet_uio.dataset.kaldi_dir import read_utterances
from wenet_uio.dataset.packing import make_raw_list, make_shard_list
from wenet_uio.dataset.types import SampleRef


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
        make_shard_list(lines, folder, str(tmp_path / "list"), per_shard=10, processes=processes)
        packed.append([(name, (folder / name).read_bytes()) for name in sorted(os.listdir(folder))])
    assert packed[0] == packed[1]
    assert [name for name, _ in packed[0] if name.endswith(".tar")] == [f"shards_{i:09d}.tar" for i in range(3)]


def test_failed_utterances_are_named_and_the_others_packed(make_utterances, tmp_path):
    lines = make_utterances(10)
    os.remove(lines[2].wav)
    open(lines[7].wav, "wb").close()
    failures = make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=4, processes=2)
    assert [key for key, _ in failures] == ["utt0002", "utt0007"]
    assert open_list(str(tmp_path / "list"), "shard").num_samples == 8
    assert [key for key, _ in make_raw_list(lines, str(tmp_path / "raw"), 4)] == ["utt0002", "utt0007"]


def test_a_shorter_run_removes_the_shards_of_a_longer_one(make_utterances, tmp_path):
    lines = make_utterances(10)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=2)
    make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), per_shard=5)
    assert sorted(os.listdir(tmp_path / "s")) == [
        f"shards_{number:09d}.tar{suffix}" for number in (0, 1) for suffix in ("", ".idx")
    ]


def test_segments_are_cut_alike_in_raw_and_shard_lists(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    cuts = [RawLine("one", line.wav, "a", 0.05, 0.15), RawLine("two", line.wav, "b", 0.1, 0.3)]
    make_raw_list(cuts, str(tmp_path / "raw"))
    make_shard_list(cuts, tmp_path / "s", str(tmp_path / "shard"))
    raw, shard = open_list(str(tmp_path / "raw"), "raw"), open_list(str(tmp_path / "shard"), "shard")
    assert raw.digest == shard.digest
    assert raw.rows(0).num_samples.tolist() == [1600, 3200]


def test_resampled_shards_hold_wav_of_that_rate(make_utterances, tmp_path):
    make_shard_list(make_utterances(2, rate=8000), tmp_path / "s", str(tmp_path / "list"), resample_rate=16000)
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
