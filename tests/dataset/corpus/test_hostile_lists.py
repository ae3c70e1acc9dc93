"""Lists with one hostile line: the line is named with its reason, and all other lines are indexed."""

import json
import re
import sys

import pytest

from tests.dataset.support.tars import everything, wav, write_tar
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.types import SampleRef

DEEP = "[" * 100_000 + "]" * 100_000


def line(**fields):
    return json.dumps({"key": "bad", "wav": "a.wav", "txt": "x", **fields})


def stated(name, value):
    """A line in which a number is written as JSON does not write it."""
    return line(**{"duration": 0.5, name: "VALUE"}).replace('"VALUE"', value)


RAW = {
    "duration NaN": (stated("duration", "NaN"), "must be seconds"),
    "duration Infinity": (stated("duration", "Infinity"), "must be seconds"),
    "duration minus Infinity": (stated("duration", "-Infinity"), "must be seconds"),
    "duration 1e300": (stated("duration", "1e300"), "1e.300 s are more than 4294967295 samples"),
    "duration of 400 digits": (stated("duration", "9" * 400), "must be seconds"),
    "duration of 5000 digits": (stated("duration", "9" * 5000), "not JSON"),
    "duration negative": (stated("duration", "-3"), "no audio between"),
    "duration zero": (stated("duration", "0"), "no audio between"),
    "duration a list": (stated("duration", "[1]"), "must be seconds"),
    "duration an object": (stated("duration", "{}"), "must be seconds"),
    "duration a word": (stated("duration", '"long"'), "must be seconds"),
    "start NaN": (stated("start", "NaN"), "must be seconds"),
    "start negative": (stated("start", "-1"), "must be seconds"),
    "start 1e300": (line(start=1e300), "no audio between"),
    "end Infinity": (line(end=float("inf")), "must be seconds"),
    "end before start": (line(start=0.3, end=0.2), "no audio between"),
    "sampling_rate a word": (stated("sampling_rate", '"16k"'), "sampling_rate must be"),
    "sampling_rate a list": (stated("sampling_rate", "[16000]"), "sampling_rate must be"),
    "sampling_rate NaN": (stated("sampling_rate", "NaN"), "sampling_rate must be"),
    "sampling_rate Infinity": (stated("sampling_rate", "Infinity"), "sampling_rate must be"),
    "sampling_rate in kHz": (stated("sampling_rate", "16"), "sampling_rate must be"),
    "sampling_rate 1e18": (stated("sampling_rate", "1000000000000000000"), "sampling_rate must be"),
    "NUL in the path": (line(wav="a\0.wav"), r"wav holds a NUL character"),
    "NUL as a byte": (line().replace("a.wav", "a\0.wav"), "not JSON"),
    "half a surrogate pair in the path": (line(wav="\ud800.wav"), "half of a surrogate pair"),
    "half a surrogate pair in the text": (line(txt="\udfff"), "half of a surrogate pair"),
    "half a surrogate pair in the key": (line(key="\ud800"), "half of a surrogate pair"),
    "half a surrogate pair in another field": (line(speaker=["\udc80"]), "half of a surrogate pair"),
    "half a surrogate pair as bytes": (line(txt="VALUE").encode().replace(b"VALUE", b"\xed\xa0\x80"), "not UTF-8"),
    "deep nesting": (line(x="VALUE").replace('"VALUE"', DEEP), "nested too deeply"),
    "nothing but brackets": ("[" * 200_000, "nested too deeply|not JSON"),
    "Latin-1": (line(txt="VALUE").encode().replace(b"VALUE", b"caf\xe9"), "not UTF-8"),
    "half a line": (line()[:20], "not JSON"),
    "a number": ("7", "expected an object"),
    "no audio": ('{"key": "bad", "txt": "x"}', "lacks wav"),
    "text null": (line(txt=None), "lacks txt"),
    "key a list": (line(key=["a"]), "key must be a string, found list"),
    "key of blanks": (line(key=" \n"), "the key is empty"),
    "no name to make a key of": ('{"wav": "/", "txt": "x"}', "the key is empty"),
    "a path longer than any": (line(wav="a" * 100_000), "File name too long"),
    "an unknown transport": (line(wav="gopher://host/a.wav"), "gopher"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav())
    return tmp_path


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("case", RAW)
def test_a_bad_line_of_a_raw_list_is_named_and_the_others_are_indexed(folder, case, place):
    text, reason = RAW[case]
    lines = [line(key="one").encode(), line(key="two").encode()]
    lines.insert(place, text if isinstance(text, bytes) else text.encode())
    (folder / "raw.list").write_bytes(b"\n".join(lines) + b"\n")
    corpus = open_list(str(folder / "raw.list"), "raw")
    assert [each.key for each in everything(corpus)] == ["one", "two"]
    ((key, found),) = corpus.bad
    assert key in ("bad", f"{folder}/raw.list:{place + 1}")
    assert re.search(reason, found)
    json.dumps(corpus.bad, ensure_ascii=False).encode()


@pytest.mark.parametrize("case", RAW)
def test_a_bad_entry_of_a_manifest_of_nemo_is_named_and_the_others_are_indexed(tmp_path, case):
    text, _ = RAW[case]
    names = ("one.wav", "two.wav", "a.wav")
    tar = write_tar(tmp_path / "a.tar", [(name, wav()) for name in names])
    entries = [json.dumps({"audio_filepath": name, "text": "x"}).encode() for name in names]
    entries[2] = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "m.json").write_bytes(b"\n".join(entries) + b"\n")
    (tmp_path / "nemo.list").write_text(f"{tar}\t{tmp_path}/m.json\n")
    corpus = open_list(str(tmp_path / "nemo.list"), "shard")
    keys = [each.key for each in everything(corpus)]
    if keys != ["one", "two", "bad"]:  # the tar says the sample rate, and the length of a whole member
        assert keys == ["one", "two"]
        assert {key for key, _ in corpus.bad} & {"bad", f"{tmp_path}/m.json:3"}
    json.dumps(corpus.bad, ensure_ascii=False).encode()


MANY = "9" * 11
SHARD = {
    "four fields": (b"a.tar\tm.json\t7\t8", "expected a tar, a manifest and a shard_id"),
    "a shard_id that is no number": (b"a.tar\tm.json\tseven", "expected a tar, a manifest and a shard_id"),
    "a shard_id of 5000 digits": (b"a.tar\tm.json\t" + b"9" * 5000, "more than 18 digits"),
    "Latin-1": (b"caf\xe9.tar", "not UTF-8"),
    "NUL": (b"a\0.tar", "holds a NUL character"),
    "99 billion shards": (f"a_{{0..{MANY}}}.tar".encode(), "stand for 100000000000 paths"),
    "a product of ranges": (b"{0..9999}_{0..9999}.tar", "stand for 100000000 paths"),
    "a range of 5000 digits": (b"a_{0.." + b"9" * 5000 + b"}.tar", "more than 18 digits"),
    "a range that ends before it begins": (b"a_{5..3}.tar", "end before they begin"),
    "two tars for three manifests": (b"a_{0..1}.tar\tm_{0..2}.json", "2 tars and 3 manifests"),
}


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("case", SHARD)
def test_a_bad_line_of_a_shard_list_is_named_and_the_others_are_indexed(tmp_path, case, place):
    text, reason = SHARD[case]
    members = {name: [(f"{name}.txt", "x"), (f"{name}.wav", wav())] for name in ("one", "two")}
    lines = [write_tar(tmp_path / f"{name}.tar", each).encode() for name, each in members.items()]
    lines.insert(place, text)
    (tmp_path / "shard.list").write_bytes(b"\n".join(lines) + b"\n")
    corpus = open_list(str(tmp_path / "shard.list"), "shard")
    assert [each.key for each in everything(corpus)] == ["one", "two"]
    ((key, found),) = corpus.bad
    assert key == f"{tmp_path}/shard.list:{place + 1}"
    assert re.search(reason, found)


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n\n", b"  \r\n", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_byte_order_mark_and_blank_lines_before_the_first_line_are_taken(folder, data_type, start):
    tar = write_tar(folder / "a.tar", [("one.txt", "x"), ("one.wav", wav())])
    text = line(key="one") if data_type == "raw" else tar
    (folder / "a.list").write_bytes(start + f"{text}\r\n\r\n".encode())
    corpus = open_list(str(folder / "a.list"), data_type)
    assert [each.key for each in everything(corpus)] == ["one"]
    assert corpus.bad == []


def test_a_bad_line_has_the_number_that_an_editor_shows(folder):
    (folder / "raw.list").write_text(f"\n{line()}\n\n\n{{broken\n")
    assert open_list(str(folder / "raw.list"), "raw").bad[0][0] == f"{folder}/raw.list:5"


def test_a_list_of_bad_lines_alone_is_refused_with_the_first_of_them(folder):
    (folder / "raw.list").write_text(f"{stated('duration', 'NaN')}\n{line(wav='none.wav')}\n")
    with pytest.raises(ListError, match=r"no usable utterance \(.*raw.list:1: .*must be seconds.*none.wav"):
        open_list(str(folder / "raw.list"), "raw")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_list_without_a_line_is_refused(tmp_path, content, data_type):
    (tmp_path / "a.list").write_bytes(content)
    with pytest.raises(ListError, match=r"a.list: empty data list"):
        open_list(str(tmp_path / "a.list"), data_type)


def test_deep_values_that_were_indexed_are_read_in_a_deep_call(folder):
    deep = "[" * 500 + "]" * 500
    (folder / "raw.list").write_text(line(x="VALUE").replace('"VALUE"', deep) + "\n")
    corpus = open_list(str(folder / "raw.list"), "raw")

    def down(levels):
        return down(levels - 1) if levels else corpus.read(SampleRef(0, 0))

    with pytest.raises(ListError, match="nested too deeply"):
        down(sys.getrecursionlimit() - 300)
