import gzip
import json
import os
import sys
from dataclasses import replace

import lhotse
import pytest

from tests.support.data.tars import everything, wav
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.lhotse_cuts import list_of_cuts


@pytest.fixture
def recordings(tmp_path):
    """Two files: one channel of 1 s, two channels of 0.8 s."""
    for name, content in (("mono", wav(1.0, seed=1)), ("stereo", wav(0.8, channels=2, seed=2))):
        (tmp_path / f"{name}.wav").write_bytes(content)
    return {
        name: lhotse.Recording.from_file(tmp_path / f"{name}.wav") for name in ("mono", "stereo")
    }


def cut(recording, name, texts=("hello",), start=0.0, duration=None, channel=0):
    duration = duration or recording.duration - start
    each = duration / max(1, len(texts))
    supervisions = [
        lhotse.SupervisionSegment(
            f"{name}-{n}", recording.id, n * each, each, channel, text, "en", "spk", custom={"n": n}
        )
        for n, text in enumerate(texts)
    ]
    return lhotse.MonoCut(name, start, duration, channel, supervisions[::-1], recording=recording)


def open_cuts(tmp_path, cuts):
    path = str(tmp_path / "cuts.jsonl.gz")
    lhotse.CutSet.from_cuts(cuts).to_file(path)
    return open_list(list_of_cuts(path), "raw")


def decoded(utterance):
    channel = utterance.extra.get("channel", 0)
    return read_audio(utterance.audio, utterance.start, utterance.end, channel)[0].tolist()


def test_a_cut_becomes_an_utterance_with_its_segment_channel_and_texts(tmp_path, recordings):
    cuts = [
        cut(recordings["mono"], "whole"),
        cut(recordings["mono"], "part", ("two", "texts"), start=0.25, duration=0.5),
        cut(recordings["stereo"], "second", channel=1),
    ]
    corpus = open_cuts(tmp_path, cuts)
    found = everything(corpus)
    assert [(u.key, u.text, u.start, u.end) for u in found] == [
        ("whole", "hello", 0.0, None),
        ("part", "two texts", 0.25, 0.75),
        ("second", "hello", 0.0, None),
    ]
    assert [u.extra.get("channel") for u in found] == [None, None, 1]
    assert [u.extra.get("n") for u in found] == [0, None, 0]
    assert {u.extra["speaker"] for u in found} == {"spk"}
    assert corpus.rows(0).num_samples.tolist() == [8000, 4000, 6400]
    assert corpus.rows(0).sample_rate.tolist() == [8000] * 3
    for utterance, expected in zip(found, cuts, strict=True):
        theirs = (expected.load_audio()[0] * 32768).tolist()
        assert decoded(utterance) == pytest.approx(theirs, abs=1e-3)


def test_cuts_that_are_not_a_segment_of_one_recording_are_reported(tmp_path, recordings):
    mono = cut(recordings["mono"], "mono")
    cuts = [
        mono,
        mono.pad(2.0).with_id("padded"),
        mono.perturb_speed(1.1).with_id("faster"),
        cut(recordings["mono"], "silent", ()),
        lhotse.MultiCut("both", 0, 0.8, [0, 1], mono.supervisions, recording=recordings["stereo"]),
        mono.with_id("piped"),
    ]
    cuts[-1].recording = replace(
        mono.recording, sources=[lhotse.AudioSource("command", [0], "cat a.wav")]
    )
    corpus = open_cuts(tmp_path, cuts)
    assert [u.key for u in everything(corpus)] == ["mono"]
    reasons = dict(corpus.bad)
    assert list(reasons) == ["padded", "faster", "silent", "both", "piped"]
    assert [reason.split(":")[0] for reason in reasons.values()] == [
        "a MixedCut",
        "its recording has transforms",
        "no supervision with a text",
        "2 channels in one cut; make a cut for each channel",
        "a source of type command for channel 0 of recording mono; expected a file or a URL",
    ]


def test_paths_may_be_relative_to_the_manifest(tmp_path, recordings):
    path = tmp_path / "cuts.jsonl"
    lhotse.CutSet.from_cuts([cut(recordings["mono"], "a")]).to_file(str(path))
    path.write_text(path.read_text().replace(f"{tmp_path}/", ""))
    assert decoded(everything(open_list(list_of_cuts(str(path)), "raw"))[0])


def test_the_list_is_made_once_and_read_without_lhotse(tmp_path, recordings, monkeypatch):
    open_cuts(tmp_path, [cut(recordings["mono"], "a")])
    monkeypatch.setitem(sys.modules, "lhotse", None)
    path = str(tmp_path / "cuts.jsonl.gz")
    assert open_list(list_of_cuts(path), "raw").num_samples == 1
    os.utime(path, ns=(1, 1))
    with pytest.raises(ListError, match="pip install lhotse"):
        list_of_cuts(path)


def test_lines_that_are_not_cuts_are_reported(tmp_path, recordings):
    path = tmp_path / "cuts.jsonl"
    lhotse.CutSet.from_cuts([cut(recordings["mono"], "a")]).to_file(str(path))
    supervision = '{"id": "s", "recording_id": "r", "start": 0, "duration": 1}\n'
    path.write_text('{"audio_filepath": "a.wav"}\n{broken\n' + supervision + path.read_text())
    corpus = open_list(list_of_cuts(str(path)), "raw")
    assert [u.key for u in everything(corpus)] == ["a"]
    assert [key for key, _ in corpus.bad] == [f"{path}:{number}" for number in (1, 2, 3)]


def test_a_manifest_that_is_cut_short_gives_its_complete_cuts(tmp_path, recordings):
    open_cuts(tmp_path, [cut(recordings["mono"], f"{number}") for number in range(2000)])
    path = tmp_path / "cuts.jsonl.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    corpus = open_list(list_of_cuts(str(path)), "raw")
    assert 100 < corpus.num_samples < 1900
    assert "cut short or damaged" in corpus.bad[-1][1]


@pytest.fixture
def shar(tmp_path, recordings):
    cuts = [
        cut(recordings["mono"], "a.1", ("one",)),
        cut(recordings["mono"], "b", ("two", "three"), start=0.25, duration=0.5),
        cut(recordings["stereo"], "c", ("four",), channel=1),
    ]
    folder = tmp_path / "shar"
    folder.mkdir()
    lhotse.CutSet.from_cuts(cuts).to_shar(str(folder), {"recording": "flac"}, shard_size=2)
    return folder


def open_shar(folder):
    (folder.parent / "shar.list").write_text(
        f"{folder}/recording.*.tar\t{folder}/cuts.*.jsonl.gz\n"
    )
    return open_list(str(folder.parent / "shar.list"), "shard")


def test_a_shar_gives_the_same_audio_as_lhotse(shar):
    corpus = open_shar(shar)
    assert corpus.samples.tolist() == [2, 1]
    found = everything(corpus)
    assert [(u.key, u.text, u.end) for u in found] == [
        ("a.1", "one", None),
        ("b", "two three", None),
        ("c", "four", None),
    ]
    theirs = [
        (theirs.load_audio()[0] * 32768).tolist()
        for theirs in lhotse.CutSet.from_shar(in_dir=str(shar))
    ]
    for utterance, expected in zip(found, theirs, strict=True):
        assert decoded(utterance) == pytest.approx(expected, abs=1e-3)
    assert corpus.bad == []


def test_an_indexed_shar_is_read_without_lhotse(shar, monkeypatch):
    open_shar(shar)
    monkeypatch.setitem(sys.modules, "lhotse", None)
    assert len(everything(open_shar(shar))) == 3


def test_shar_cuts_without_audio_and_audio_without_a_cut_are_reported(shar):
    path = shar / "cuts.000000.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    lines[1]["id"] = "other"
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    corpus = open_shar(shar)
    assert [u.key for u in everything(corpus)] == ["a.1", "c"]
    assert corpus.bad == [
        ("other", "its audio is not in the tar of recordings"),
        ("b", f"no cut of {path} names it"),
    ]


@pytest.mark.parametrize(
    ("first", "last", "fits"),
    [
        (0.0, 0.5, True),
        (-0.05, 0.55, True),
        (-0.3, 0.4, False),
        (0.2, 0.9, False),
        (0.6, 0.9, False),
    ],
)
def test_a_supervision_that_reaches_outside_its_cut_is_named(
    tmp_path, recordings, first, last, fits
):
    whole = cut(recordings["mono"], "whole")
    part = cut(recordings["mono"], "part", start=0.25, duration=0.5)
    part.supervisions[0] = replace(part.supervisions[0], start=first, duration=last - first)
    corpus = open_cuts(tmp_path, [whole, part])
    assert [utterance.key for utterance in everything(corpus)] == ["whole", "part"][: 1 + fits]
    if not fits:
        ((key, reason),) = corpus.bad
        assert key == "part"
        assert "a part of the text is not in the audio" in reason
