"""transcribe.py on audio, from the command line."""

import importlib
import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.bin import conftest
from wenet_uio.addons.listen import transcribe, transcription
from wenet_uio.addons.listen.results import NO_SPEECH
from wenet_uio.addons.listen.speech import MARGIN
from wenet_uio.audio.read import AudioReader
from wenet_uio.search import MODES

ROOT = Path(__file__).parents[3]
RATE = 16000
ENERGY = ("--detector", "energy", "--window", "10")
"""For recordings of 12 s in which bursts of noise stand for speech."""

folder = conftest.folder


@pytest.fixture
def audio(folder, monkeypatch):
    """A recording of five bursts of noise in 12 s, from a folder other than that of the model."""
    noise = np.random.default_rng(1)
    samples = noise.normal(0, 0.0003, 12 * RATE)
    for start in (1, 3, 5, 7, 9):
        samples[start * RATE : (start + 1) * RATE] += noise.normal(0, 0.1, RATE)
    (folder / "exp").mkdir()
    for name, place in (("train.yaml", "exp/train.yaml"), ("model.pt", "exp/avg.pt")):
        os.rename(name, place)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for suffix in ("wav", "flac", "mp3"):
        soundfile.write(f"five.{suffix}", samples, RATE)
    return elsewhere


def transcribed(*options):
    return transcribe.main(["--model", "../exp", "--device", "cpu", *ENERGY, *map(str, options)])


def call(capsys, *options):
    status = transcribed(*options)
    captured = capsys.readouterr()
    assert status == ("error: " in captured.err)
    return captured


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if mode != "attention"]
)  # untrained, it ends at once
def test_a_passage_is_printed_for_each_burst_in_every_mode(audio, capsys, mode):
    lines = call(capsys, "five.wav", "--mode", mode).out.splitlines()
    assert len(lines) == 5
    assert all(lines)


def test_formats_agree_and_batches_of_any_size_give_the_same(audio, capsys):
    text = call(capsys, "five.wav").out
    assert call(capsys, "five.flac", "--batch_size", 1).out == text
    found = json.loads(call(capsys, "five.wav", "--format", "json").out)
    assert found["audio"] == "five.wav"
    assert [passage["text"] for passage in found["passages"]] == text.splitlines()
    for start, passage in zip((1, 3, 5, 7, 9), found["passages"], strict=True):
        assert (passage["start"], passage["end"]) == pytest.approx(
            (start - MARGIN, start + 1 + MARGIN), abs=0.02
        )
        for word in passage["words"]:
            assert passage["start"] <= word["start"] < word["end"] <= passage["end"]
            assert 0 < word["confidence"] <= 1
    srt = call(capsys, "five.wav", "--format", "srt").out
    assert re.findall(r"^\d\d:\d\d:(\d\d),\d{3} --> ", srt, re.MULTILINE) == [
        "00",
        "02",
        "04",
        "06",
        "08",
    ]


def test_without_pauses_windows_are_joined_and_only_the_windows_are_read(
    audio, monkeypatch, capsys
):
    asked, read = [], AudioReader.read

    def counted(reader, start, end, channel):
        asked.append((round(start, 2), round(end, 2)))
        return read(reader, start, end, channel)

    monkeypatch.setattr(AudioReader, "read", counted)
    (text,) = call(capsys, "five.wav", "--pause", 0, "--window", 5, "--overlap", 2).out.splitlines()
    assert asked == [(0.0, 4.5), (2.5, 7.0), (5.0, 9.5), (7.5, 12.0)]
    (whole,) = call(capsys, "five.wav", "--pause", 0, "--window", 30).out.splitlines()
    assert abs(len(text) - len(whole)) <= len(whole) // 2


def test_batches_have_few_different_lengths_and_the_texts_of_exact_ones(audio, monkeypatch, capsys):
    lengths = []

    def counted(model, feats, *others):
        lengths.append(feats.size(1))
        return encode(model, feats, *others)

    module = sys.modules["wenet_uio.search.decode"]
    encode = module.encode_in_chunks
    monkeypatch.setattr(module, "encode_in_chunks", counted)
    options = ("five.wav", "--pause", 0, "--window", 2.3, "--batch_size", 1, "--format", "json")
    found = call(capsys, *options).out
    assert {length % transcription.ROUNDED for length in lengths} == {0}
    monkeypatch.setattr(transcription, "ROUNDED", 1)
    assert call(capsys, *options).out == found
    assert lengths[-1] % 64


def test_lines_of_several_files_have_names_and_a_bad_file_does_not_stop_the_others(audio, capsys):
    Path("bad.wav").write_bytes(b"RIFF")
    captured = call(capsys, "five.wav", "bad.wav", "none.wav", "five.mp3")
    names = [line.split("\t")[0] for line in captured.out.splitlines()]
    assert names == ["five.wav"] * 5 + ["five.mp3"] * 5
    errors = captured.err.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith("error: bad.wav: ")
    assert errors[1].startswith("error: none.wav: ")


def test_standard_input_a_channel_and_vtt(audio, monkeypatch, capsys, caplog):
    text = call(capsys, "five.wav").out
    with open("five.wav", "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        assert call(capsys, "-").out == text
    samples, rate = soundfile.read("five.wav")
    soundfile.write("stereo.wav", np.stack((np.zeros_like(samples), samples), axis=1), rate)
    for chosen in ([], ["--channel", 1]):
        assert call(capsys, "stereo.wav", *chosen).out == text
    assert "silent" not in caplog.text
    found = call(capsys, "stereo.wav", "five.wav", "--channel", 0).out
    assert found == "".join(f"five.wav\t{line}\n" for line in text.splitlines())
    assert (
        "warning: stereo.wav: channel 0 is silent (below -60 dBFS); channels with sound: 1"
        in caplog.text
    )
    vtt = call(capsys, "five.wav", "--format", "vtt").out
    assert vtt.startswith("WEBVTT\n\n00:00:00.")
    assert vtt.count(" --> ") == 5
    silent = ("stereo.wav", "--channel", 0)
    call(capsys, *silent, "--format", "vtt", "--output_dir", "out")
    assert Path("out/stereo.vtt").read_text() == "WEBVTT\n\n"


def test_a_wav_that_is_cut_short_is_transcribed_up_to_its_end_with_a_warning(audio, capsys, caplog):
    content = Path("five.wav").read_bytes()
    Path("cut.wav").write_bytes(content[: len(content) // 2])
    captured = call(capsys, "cut.wav", "five.wav")
    assert {line.split("\t")[0] for line in captured.out.splitlines()} == {"cut.wav", "five.wav"}
    (warning,) = (message for message in caplog.messages if "cut short" in message)
    assert warning.startswith("warning: cut.wav: cut short: the file has ")


@pytest.mark.third
@pytest.mark.parametrize("to_files", [False, True])
@pytest.mark.parametrize("style", transcribe.SUFFIXES)
def test_a_recording_without_a_word_is_named_in_every_format_and_its_output_is_well_formed(
    audio, capsys, style, to_files
):
    for name, seconds in (("silence", 1), ("empty", 0)):
        soundfile.write(f"{name}.wav", np.zeros(seconds * RATE), RATE)
    Path("bad.wav").write_bytes(b"RIFF")
    files = ["silence.wav", "five.wav", "bad.wav", "empty.wav", "five.flac"]
    if to_files:
        files = files[:-1]
    options = ["--format", style, *(["--output_dir", "out"] if to_files else [])]
    options += ["--mode", "attention"]  # untrained, it ends at once
    captured = call(capsys, *files, *options)
    said = [line for line in captured.err.splitlines() if not line.startswith("wrote ")]
    assert [line.split(": ")[:2] for line in said] == [
        ["error" if name in ("bad.wav", "empty.wav") else "warning", name] for name in files
    ]
    words_lack = [line for line in said if line.startswith("warning: ")]
    assert all(": no word was found" in line for line in words_lack)
    assert words_lack[0] == f"warning: silence.wav: no word was found: {NO_SPEECH}"

    without = {"audio": "silence.wav", "passages": [], "reason": NO_SPEECH}
    empty = {"text": "", "json": f"{json.dumps(without)}\n", "srt": ""}
    alone = call(capsys, "silence.wav", *options)
    path = Path("out", f"silence.{transcribe.SUFFIXES[style]}")
    assert (path.read_text() if to_files else alone.out) == empty.get(style, "WEBVTT\n\n")
    assert "no word" not in call(capsys, "five.wav", "--format", style).err


def test_lines_passages_and_subtitles_of_a_call_name_the_channel(audio, capsys):
    samples, rate = soundfile.read("five.wav")
    left, right = samples.copy(), samples.copy()
    left[4 * rate :] = right[: 4 * rate] = 0
    soundfile.write("call.wav", np.stack((left, right), axis=1), rate)
    names = ["left"] * 2 + ["right"] * 3

    lines = call(capsys, "call.wav").out.splitlines()
    assert [line.split()[0] for line in lines] == [f"[{name}]" for name in names]
    found = json.loads(call(capsys, "call.wav", "--format", "json").out)
    assert [passage["channel_name"] for passage in found["passages"]] == names
    subtitles = call(capsys, "call.wav", "--format", "srt").out
    assert re.findall(r"^\[(\w+)\]", subtitles, re.MULTILINE) == names
    for channel, count in ((0, 2), (1, 3), ("mix", 5), ("each", 5)):
        found = call(capsys, "call.wav", "--channel", channel).out.splitlines()
        assert len(found) == count
    with pytest.raises(SystemExit, match="2"):
        call(capsys, "call.wav", "--channel", "left")
    assert (
        "--channel: expected a number from 0, mix or each, found 'left'" in capsys.readouterr().err
    )


def test_each_audio_file_has_its_output_file(audio, capsys):
    text = call(capsys, "five.wav").out
    captured = call(capsys, "five.wav", "--output_dir", "out")
    assert (captured.out, captured.err) == ("", "wrote out/five.txt\n")
    assert Path("out/five.txt").read_text() == text
    with pytest.raises(
        ValueError, match=r"two of the audio files would be written to out/five\.txt"
    ):
        call(capsys, "five.wav", "five.mp3", "--output_dir", "out")


def test_a_terminal_shows_the_seconds_that_are_transcribed_and_the_texts_above_them(
    audio, monkeypatch, capsys
):
    texts = call(capsys, "five.wav", "five.mp3").out
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    transcribed("five.wav", "five.mp3")
    screen = terminal.getvalue()
    frames = re.split(r"[\r\n]+", screen.strip())
    assert frames[0].startswith("five.wav: finding speech: ")
    assert [line for line in frames if line.startswith("five.") and "\t" in line] == (
        texts.splitlines()
    )
    for name in ("five.wav", "five.mp3"):
        bars = [line for line in frames if re.match(rf"{name}: +\d", line)]
        shown = [re.search(r" (\d+)%.* (\d+)/12 ", bar) for bar in bars]
        assert [bar and bar.groups() for bar in shown][-1] == ("83", "10")


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "greedy"], "unknown decode mode greedy; known: "),
        (["--window", 3, "--overlap", 2], "overlap: expected above 0 and at most half the window"),
        (["--batch_size", 0], "--batch_size"),
        (["--model", "."], r"expected a folder with train\.yaml and avg\.pt or final\.pt"),
    ],
)
def test_wrong_options_are_named(audio, capsys, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        call(capsys, "five.wav", *options)


@pytest.mark.all
def test_the_benchmark_compares_a_long_recording_with_its_utterances(folder, monkeypatch, capsys):
    Path("avg.pt").symlink_to("model.pt")
    monkeypatch.syspath_prepend(str(ROOT / "lab/benchmark"))
    tool = importlib.import_module("transcribe")
    joined = ["--data_list", "raw.list", "--minutes", "0.2", "--pauses", "0.5", "1"]
    options = ["--pause", "0.3", *ENERGY]
    monkeypatch.setattr(
        sys, "argv", ["", "--model", str(folder), *joined, "--json", "--transcribe", *options]
    )
    held = np.ones(1 << 27)  # 1 GiB of this process
    tool.main()
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 100 < report["memory_mb"] < held.nbytes >> 20
    assert report["seconds"] >= 12
    assert report["passages"] == report["utterances"] > 5
    assert min(report[name] for name in ("wer_joined", "wer_cut", "real_time_factor")) > 0
    assert report["transcribe"] == options
