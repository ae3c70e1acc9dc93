import json
import os
import pickle
import subprocess

import pytest

from tests.support import preloaded
from tests.support.data.tars import wav, write_tar
from wenet_uio.base.files import digest_of
from wenet_uio.dataset.corpus.columns import read_columns
from wenet_uio.dataset.corpus.open_list import index_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.list_file import TYPE_LINES, DataList, FileState, LineFile
from wenet_uio.dataset.open import open_corpus

COUNT_READS = """
import os, sys, threading
from wenet_uio.dataset.corpus.open_list import open_list

path, data_type = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: event == "open" and args[0] == path and opened.append(1))
open_list(path, data_type)  # with its imports
os.remove(path + ".idx")
opened.clear()

def bytes_read():
    return int(open("/proc/self/io").readline().split()[1])

before = bytes_read()
open_list(path, data_type)
print(len(opened), (bytes_read() - before) / os.path.getsize(path))
"""
"""A process that prints how often indexing opens a list, and the bytes it reads in sizes of the
list."""


def raw_list(folder, lines=20_000):
    path = folder / "raw.list"
    values = [
        {
            "key": str(number),
            "wav": "a.wav",
            "txt": "a" * 100,
            "duration": 1.0,
            "sampling_rate": 16000,
        }
        for number in range(lines)
    ]
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_the_type_digest_and_lines_of_a_list_come_from_one_reading(tmp_path):
    path = raw_list(tmp_path, 3 * TYPE_LINES)
    data_list = DataList(LineFile(str(path)), "raw")
    assert len(data_list.head) == TYPE_LINES
    content = b"".join(line for _, line in data_list.lines())
    assert (content, data_list.state().digest) == (path.read_bytes(), digest_of(path))


def test_the_digest_is_of_the_lines_that_were_read_if_the_list_is_replaced_meanwhile(tmp_path):
    path = raw_list(tmp_path, 3 * TYPE_LINES)
    digest = digest_of(path)
    data_list = DataList(LineFile(str(path)), "raw")
    (tmp_path / "new").write_text("{}\n")
    (tmp_path / "new").replace(path)
    lines = list(data_list.lines())
    assert (len(lines), data_list.state().digest) == (3 * TYPE_LINES, digest)


def test_a_digest_before_the_last_line_is_refused(tmp_path):
    data_list = DataList(LineFile(str(raw_list(tmp_path))), "raw")
    next(data_list.lines())
    with pytest.raises(RuntimeError, match="after the last line"):
        data_list.state()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\n"])
def test_a_list_without_content_is_refused(tmp_path, content):
    (tmp_path / "x.list").write_bytes(content)
    with pytest.raises(ListError, match="empty data list"):
        DataList(LineFile(str(tmp_path / "x.list")), "raw")


@pytest.mark.parametrize(("data_type", "other"), [("raw", "shard"), ("shard", "raw")])
def test_the_error_of_a_list_of_the_other_type_has_the_yaml_that_reads_it(
    make_lists, tmp_path, data_type, other
):
    """A training set of shards can have a validation set of Kaldi's features, as CAT's have."""
    path = make_lists(3)[other]
    with pytest.raises(ListError, match=f"which is data_type {other}, not {data_type}") as raised:
        open_corpus(path, data_type)

    (tmp_path / "named.yaml").write_text(str(raised.value).partition("in a yaml: ")[2])
    assert open_corpus(str(tmp_path / "named.yaml"), data_type).num_samples == 3


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_list_is_read_once_when_it_is_indexed(tmp_path, data_type):
    if data_type == "raw":
        path = raw_list(tmp_path)
    else:
        write_tar(tmp_path / "0.tar", [("a.txt", "ab"), ("a.wav", wav(0.3))])
        path = tmp_path / "shard.list"
        path.write_text(f"{tmp_path}/0.tar\n" + "\n" * 500_000)

    command = [preloaded.python(), "-c", COUNT_READS, str(path), data_type]
    opened, sizes = subprocess.check_output(command, text=True).split()

    # The lock, the lines, and the samples of a raw list are those of one open file.
    assert int(opened) == 1
    assert 1 <= float(sizes) < 1.5
    _, meta = read_columns(index_of(path))
    assert meta["digest"] == digest_of(path)


def test_a_file_is_read_by_offset_and_refused_once_it_has_other_content(tmp_path):
    path = tmp_path / "x.list"
    path.write_bytes(b"one\ntwo\n")
    indexed = FileState(8, path.stat().st_mtime_ns, digest_of(path))
    lines = [LineFile(str(path)), LineFile(str(path), indexed)]
    assert lines[0].is_unchanged(indexed)
    lines[0].digest = indexed.digest
    lines += [pickle.loads(pickle.dumps(each)) for each in lines]
    assert {each.read(4, 3) for each in lines} == {b"two"}

    os.utime(path, (0, 0))  # touched, with the same content
    assert {each.read(0, 3) for each in lines} == {b"one"}
    assert LineFile(str(path)).is_unchanged(indexed)

    path.write_bytes(b"one\ntw0\n")
    for each in lines:
        with pytest.raises(ListError, match=r"x\.list: changed since it was indexed; start again"):
            each.read(4, 3)
    assert not LineFile(str(path)).is_unchanged(indexed)


def test_a_list_whose_name_another_file_takes_is_read_on_from_the_former_file(tmp_path):
    path = raw_list(tmp_path, 3 * TYPE_LINES)
    content = path.read_bytes()
    opened = LineFile(str(path))
    (tmp_path / "new").write_text("{}\n")
    (tmp_path / "new").replace(path)
    data_list = DataList(opened, "raw")
    assert b"".join(line for _, line in data_list.lines()) == content
    assert opened.read(0, len(content)) == content


def test_a_list_that_grows_while_its_lock_is_awaited_is_indexed_whole(tmp_path):
    path = raw_list(tmp_path, 3 * TYPE_LINES)
    opened = LineFile(str(path))
    with path.open("a") as file:
        file.write("{}\n")
    opened.refresh()
    data_list = DataList(opened, "raw")
    assert len(list(data_list.lines())) == 3 * TYPE_LINES + 1
    assert data_list.state() == (path.stat().st_size, path.stat().st_mtime_ns, digest_of(path))
