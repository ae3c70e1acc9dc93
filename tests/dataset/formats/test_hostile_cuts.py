"""Manifests of Lhotse with one hostile cut: the cut is named with its reason, and all other cuts
are indexed.
"""

import copy
import json

import lhotse
import pytest

from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.lhotse_cuts import list_of_cuts

DEEP = "[" * 100_000 + "]" * 100_000
CHANGES = {
    "duration NaN": {"duration": float("nan")},
    "duration a list": {"duration": [1]},
    "duration a word": {"duration": "long"},
    "duration of 400 digits": {"duration": int("9" * 400)},
    "start Infinity": {"start": float("inf")},
    "start negative": {"start": -1.0},
    "id a list": {"id": [1]},
    "id null": {"id": None},
    "id empty": {"id": ""},
    "id with half a surrogate pair": {"id": "\ud800"},
    "text with half a surrogate pair": {"supervisions/0/text": "\ud800"},
    "text a number": {"supervisions/0/text": 5},
    "no supervisions": {"supervisions": None},
    "no recording": {"recording": None},
    "speaker a list": {"supervisions/0/speaker": ["a"]},
    "sampling rate a word": {"recording/sampling_rate": "x"},
    "custom a list": {"custom": [1]},
    "custom with half a surrogate pair": {"custom": {"x": "\udc00"}},
    "another type": {"type": "Gap"},
}


@pytest.fixture
def base(tmp_path):
    """A cut as a dictionary; its recording exists."""
    (tmp_path / "one.wav").write_bytes(wav(0.5))
    recording = lhotse.Recording.from_file(tmp_path / "one.wav")
    said = lhotse.SupervisionSegment("s", "one", 0, 0.5, text="hello")
    return lhotse.MonoCut("bad", 0, 0.5, 0, [said], recording=recording).to_dict()


def changed(base, changes):
    cut = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = cut
        for parent in parents:
            place = place[int(parent)] if parent.isdigit() else place[parent]
        place[last] = value
    return json.dumps(cut).encode()


def bad_of(folder, base, line, kind):
    """Write a manifest with `line` between two sound cuts and open it; returns what is bad except
    unused audio.
    """
    cuts = folder / "cuts.000.jsonl"
    cuts.write_bytes(
        b"\n".join([changed(base, {"id": "one"}), line, changed(base, {"id": "two"})]) + b"\n"
    )
    if kind == "shar":
        tar = write_tar(
            folder / "recording.000.tar",
            [(f"{name}.wav", wav(0.5)) for name in ("one", "two", "bad")],
        )
        (folder / "shar.list").write_text(f"{tar}\t{cuts}\n")
        corpus = open_list(str(folder / "shar.list"), "shard")
    else:
        corpus = open_list(list_of_cuts(str(cuts)), "raw")
    assert [each.key for each in everything(corpus)] == ["one", "two"]
    json.dumps(corpus.bad, ensure_ascii=False).encode()
    return [(key, reason) for key, reason in corpus.bad if not reason.startswith("no cut of")]


@pytest.mark.parametrize("kind", ["cuts", "shar"])
@pytest.mark.parametrize("case", CHANGES)
def test_a_bad_cut_is_named_and_the_others_are_indexed(base, tmp_path, kind, case):
    ((key, reason),) = bad_of(tmp_path, base, changed(base, CHANGES[case]), kind)
    assert key == "bad" or f"{tmp_path}/cuts.000.jsonl" in key
    assert reason


@pytest.mark.parametrize("kind", ["cuts", "shar"])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"hello"', b'"caf\xe9"', "not UTF-8"),
        (b'"hello"', DEEP.encode(), "nested too deeply"),
        (b"}", b"", "not JSON"),
    ],
)
def test_a_line_that_is_no_json_is_named_and_the_others_are_indexed(
    base, tmp_path, kind, old, new, reason
):
    ((key, found),) = bad_of(tmp_path, base, changed(base, {}).replace(old, new), kind)
    assert key == f"{tmp_path}/cuts.000.jsonl:2"
    assert reason in found


@pytest.mark.parametrize("kind", ["cuts", "shar"])
def test_blank_lines_between_cuts_are_skipped(base, tmp_path, kind):
    assert bad_of(tmp_path, base, b" ", kind) == []
