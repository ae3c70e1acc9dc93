import json
import os
from contextlib import closing

import pytest

from tests.support.data.tars import everything
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry
from wenet_uio.dataset.corpus.open_list import (
    ensure_index,
    index_of_file,
    open_list,
    open_list_file,
)
from wenet_uio.dataset.corpus.raw_corpus import indexed_lines
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.kinds import text
from wenet_uio.dataset.kinds.text import TextCorpus
from wenet_uio.dataset.types import SampleRef

LAST = SampleRef(0, 11)


@pytest.fixture
def raw(make_lists):
    return make_lists(12, per_shard=100)["raw"]


def rewrite(path, data):
    """Write other contents into the same file."""
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data)


def contents(path):
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("kept", [0, 1, 100, 1000])
def test_a_list_cut_in_place_is_an_error_and_kills_no_process(raw, kept):
    corpus = open_list(raw, "raw")
    corpus.read(LAST)
    rewrite(raw, contents(raw)[:kept])
    for row in (0, 11):
        with pytest.raises(ListError, match=r"raw.list: changed since it was indexed; start again"):
            corpus.read(SampleRef(0, row))
    with pytest.raises(ListError, match="changed since it was indexed"):
        corpus.texts(LAST)


def test_a_list_with_other_lines_of_the_same_size_is_an_error(raw):
    corpus = open_list(raw, "raw")
    rewrite(raw, contents(raw).replace(b'"key": "utt00', b'"key": "utt99'))
    with pytest.raises(ListError, match="changed since it was indexed"):
        corpus.read(LAST)
    assert open_list(raw, "raw").read(LAST).key == "utt9911"


def test_a_list_that_is_touched_or_written_back_is_read_on(raw):
    corpus, data = open_list(raw, "raw"), contents(raw)
    os.utime(raw, (0, 0))
    assert len(everything(corpus)) == 12
    rewrite(raw, data[:500])
    with pytest.raises(ListError, match="changed since"):
        corpus.read(LAST)
    rewrite(raw, data)
    os.utime(raw, (1, 1))
    assert len(everything(corpus)) == 12


def test_a_list_that_is_replaced_is_read_on_as_it_was_opened(raw, tmp_path):
    corpus = open_list(raw, "raw")
    expected = corpus.read(LAST).text
    (tmp_path / "other").write_bytes(contents(raw)[:300])
    os.replace(tmp_path / "other", raw)
    assert corpus.read(LAST).text == expected


def test_an_index_of_a_list_that_replaced_an_open_one_is_not_taken_for_it(raw, tmp_path):
    """Both lists have the same size, and the other order."""
    lines = contents(raw).splitlines(keepends=True)
    with closing(open_list_file(raw, "raw")) as file:
        (tmp_path / "other").write_bytes(b"".join(reversed(lines)))
        os.utime(tmp_path / "other", (1, 1))
        os.replace(tmp_path / "other", raw)
        of_other = ensure_index(raw, "raw")
        index = index_of_file(file, "raw", DEFAULT_LAYOUT)

        for row, offset in enumerate(index.columns["audio_offset"].tolist()):
            assert json.loads(file.read(offset, len(lines[row])))["key"] == f"utt{row:04d}"
        assert index.columns["key_hash"].tolist() == of_other.columns["key_hash"].tolist()[::-1]

    assert ensure_index(raw, "raw").columns["key_hash"].tolist() == (
        of_other.columns["key_hash"].tolist()
    )


def test_a_list_that_is_touched_and_removed_is_read_on(raw):
    corpus = open_list(raw, "raw")
    expected = corpus.read(LAST).text
    os.utime(raw, (0, 0))
    os.remove(raw)
    assert corpus.read(LAST).text == expected


def test_a_text_file_and_a_pair_cut_in_place_are_errors(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("".join(f"text {number}\n" for number in range(2000)))
    alone, pair = (
        TextCorpus(f"{tmp_path}/a.txt"),
        TextCorpus(f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"),
    )
    assert pair.read(SampleRef(1, 999)).source == "text 1999"
    rewrite(tmp_path / "b.txt", b"text 0\n")
    assert alone.read(SampleRef(1, 999)).text == "text 1999"
    with pytest.raises(ListError, match=r"b.txt: changed since it was indexed"):
        pair.read(SampleRef(1, 999))
    rewrite(tmp_path / "a.txt", b"")
    with pytest.raises(ListError, match=r"a.txt: changed since it was indexed"):
        alone.read(SampleRef(1, 999))


@pytest.mark.parametrize("has_pair", [False, True])
def test_a_text_file_that_is_replaced_after_its_lines_were_indexed_is_an_error(
    tmp_path, monkeypatch, has_pair
):
    """The other file has as many bytes, and other lines."""
    path, source = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("one\nthree\n")
    source.write_text("x\ny\n")
    entries = text._entries

    def replaced_after(*arguments):
        yield from entries(*arguments)
        (tmp_path / "other").write_text("three\none\n")
        os.replace(tmp_path / "other", path)

    monkeypatch.setattr(text, "_entries", replaced_after)
    texts = TextCorpus(str(path), str(source) if has_pair else None)
    with pytest.raises(ListError, match=r"a.txt: changed since it was indexed"):
        texts.read(SampleRef(0, 0))

    monkeypatch.undo()
    again = TextCorpus(str(path), str(source) if has_pair else None)
    assert [again.read(SampleRef(0, row)).text for row in (0, 1)] == ["three", "one"]


def test_a_file_of_lines_that_is_replaced_after_its_entries_were_read_is_an_error(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("one\nthree\n")

    def entries(_bad, _unread):
        yield Entry("a", 0, TEXT_ONLY, 3, 0, 0, 0, 3)
        (tmp_path / "other").write_text("three\none\n")
        os.replace(tmp_path / "other", path)

    (file,), _ = indexed_lines([str(path)], f"{path}.idx", entries)
    with pytest.raises(ListError, match="changed since it was indexed"):
        file.read(0, 3)
