"""Lists with one hostile line: the line is named with its reason, and all other lines are
indexed.
"""

import json
import re
import sys

import pytest

from tests.support.data.hostile_lists import RAW, SHARD, as_bytes, line, stated
from tests.support.data.hostile_tars import PACKED
from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav())
    return tmp_path


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("case", RAW)
def test_a_bad_line_of_a_raw_list_is_named_and_the_others_are_indexed(folder, case, place):
    text, reason = RAW[case]
    lines = [line(key="one").encode(), line(key="two").encode()]
    lines.insert(place, as_bytes(text))
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
    entries[2] = as_bytes(text)
    (tmp_path / "m.json").write_bytes(b"\n".join(entries) + b"\n")
    (tmp_path / "nemo.list").write_text(f"{tar}\t{tmp_path}/m.json\n")
    corpus = open_list(str(tmp_path / "nemo.list"), "shard")
    keys = [each.key for each in everything(corpus)]
    # The tar says the sample rate, and the length of a whole member
    if keys != [
        "one",
        "two",
        "bad",
    ]:
        assert keys == ["one", "two"]
        assert {key for key, _ in corpus.bad} & {"bad", f"{tmp_path}/m.json:3"}
    json.dumps(corpus.bad, ensure_ascii=False).encode()


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
def test_a_byte_order_mark_and_blank_lines_before_the_first_line_are_taken(
    folder, data_type, start
):
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
    with pytest.raises(
        ListError, match=r"no usable utterance \(.*raw.list:1: .*must be seconds.*none.wav"
    ):
        open_list(str(folder / "raw.list"), "raw")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_list_without_a_line_is_refused(tmp_path, content, data_type):
    (tmp_path / "a.list").write_bytes(content)
    with pytest.raises(ListError, match=r"a.list: empty data list"):
        open_list(str(tmp_path / "a.list"), data_type)


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_list_in_utf_16_is_refused_with_the_way_to_convert_it(folder, code, data_type):
    (folder / "a.list").write_bytes(("\ufeff" * (code == "utf-16-be") + f"{line()}\n").encode(code))
    with pytest.raises(ListError, match=r"a.list: UTF-16; convert the list to UTF-8 with iconv"):
        open_list(str(folder / "a.list"), data_type)


@pytest.mark.parametrize(("content", "kind"), [(b"PAR1 \n x", "a parquet file"), (None, "a tar")])
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_shard_in_place_of_a_list_is_refused_with_what_to_write(folder, content, kind, data_type):
    if content:
        (folder / "x").write_bytes(content)
    else:
        write_tar(folder / "x", [("a.wav", wav()), ("a.txt", b"one")])
    with pytest.raises(
        ListError, match=f"x: {kind}, not a data list; write its path as a line .* data_type shard"
    ):
        open_list(str(folder / "x"), data_type)


@pytest.mark.parametrize("name", sorted({*PACKED} - {"parquet"}))
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_packed_file_in_place_of_a_list_is_refused_with_what_it_is(folder, name, data_type):
    content, says = PACKED[name]
    (folder / "x").write_bytes(content)
    with pytest.raises(ListError, match=f"x: not a data list, but .*{re.escape(says)}"):
        open_list(str(folder / "x"), data_type)


@pytest.mark.parametrize("lines", [1, 9])
def test_bad_first_lines_do_not_hide_the_type_of_a_list(folder, lines):
    (folder / "raw.list").write_text("{broken\n" * lines + f"{line(key='one')}\n")
    corpus = open_list(str(folder / "raw.list"), "raw")
    assert (corpus.num_samples, len(corpus.bad)) == (1, lines)
    with pytest.raises(ListError, match="not found, the first is {broken"):
        open_list(str(folder / "raw.list"), "shard")


def test_deep_values_that_were_indexed_are_read_in_a_deep_call(folder):
    deep = "[" * 500 + "]" * 500
    (folder / "raw.list").write_text(line(x="VALUE").replace('"VALUE"', deep) + "\n")
    corpus = open_list(str(folder / "raw.list"), "raw")

    def down(levels):
        return down(levels - 1) if levels else corpus.read(SampleRef(0, 0))

    with pytest.raises(ListError, match="nested too deeply"):
        down(sys.getrecursionlimit() - 300)
