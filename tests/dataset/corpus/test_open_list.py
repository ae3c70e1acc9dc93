import json
import os
import pickle
import tarfile
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.data.tars import everything
from wenet_uio.dataset.corpus import shard_corpus
from wenet_uio.dataset.corpus.open_list import build_index, ensure_index, index_of, open_list
from wenet_uio.dataset.corpus.shard_corpus import Recent
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.list_file import read_shards
from wenet_uio.dataset.types import SampleRef


def content(utterance):
    audio = (
        open(utterance.audio, "rb").read()
        if isinstance(utterance.audio, str)
        else bytes(utterance.audio)
    )
    return utterance.key, utterance.text, audio


def test_raw_and_shard_hold_the_same_samples(make_lists):
    lists = make_lists(25)
    raw, shard = (open_list(lists[kind], kind) for kind in ("raw", "shard"))
    assert raw.samples.tolist() == shard.samples.tolist() == [10, 10, 5]
    assert raw.digest == shard.digest
    assert [content(u) for u in everything(raw)] == [content(u) for u in everything(shard)]
    assert raw.key(SampleRef(2, 4)) == shard.key(SampleRef(2, 4)) == "utt0024"


def test_a_shard_of_another_tool_is_indexed_when_opened(make_lists):
    shard_list = make_lists(12)["shard"]
    expected = open_list(shard_list, "shard").digest
    for path in open(shard_list).read().split():
        sidecar_of(path).unlink()
    index_of(shard_list).unlink()
    assert open_list(shard_list, "shard").digest == expected


def test_indexes_of_another_version_are_made_again(make_lists):
    shard_list = make_lists(12)["shard"]
    expected = open_list(shard_list, "shard").digest
    for path in (index_of(shard_list), *map(sidecar_of, open(shard_list).read().split())):
        path.write_bytes(b"UIOIDX00" + path.read_bytes()[8:])
    assert open_list(shard_list, "shard").digest == expected


def test_a_corpus_can_be_pickled(make_lists):
    for kind, data_list in make_lists(12).items():
        corpus = pickle.loads(pickle.dumps(open_list(data_list, kind)))
        assert len(everything(corpus)) == 12


def test_a_changed_list_is_indexed_again(make_lists):
    raw = make_lists(12)["raw"]
    lines = open(raw).readlines()
    with open(raw, "w") as file:
        file.writelines(lines[:7])
    assert open_list(raw, "raw").num_samples == 7


def test_bad_lines_are_listed_and_the_others_read(make_lists, tmp_path):
    raw = make_lists(4)["raw"]
    lines = open(raw).readlines()
    (tmp_path / "noise.wav").write_bytes(b"not audio")
    lines[1:1] = ["{broken\n", f'{{"key": "gone", "wav": "{tmp_path}/gone.wav", "txt": "a"}}\n']
    lines.append(f'{{"key": "noise", "wav": "{tmp_path}/noise.wav", "txt": "a"}}\n')
    with open(raw, "w") as file:
        file.writelines(lines)
    corpus = open_list(raw, "raw")
    assert corpus.num_samples == 4
    assert [key for key, _ in corpus.bad] == [f"{raw}:2", "gone", "noise"]


def test_members_without_text_or_audio_are_listed(make_lists, tmp_path):
    shard_list = make_lists(5)["shard"]
    path = open(shard_list).read().strip()
    with tarfile.open(path) as tar, tarfile.open(tmp_path / "lame.tar", "w") as lame:
        for member in tar:
            if member.name not in ("utt0001.txt", "utt0003.wav"):
                lame.addfile(member, tar.extractfile(member))
    (tmp_path / "lame.list").write_text(f"{tmp_path}/lame.tar\n")
    corpus = open_list(str(tmp_path / "lame.list"), "shard")
    assert [u.key for u in everything(corpus)] == ["utt0000", "utt0002", "utt0004"]
    assert [key for key, _ in corpus.bad] == ["utt0001", "utt0003"]


def test_a_shard_that_changed_after_it_was_indexed_is_refused(make_lists):
    shard_list = make_lists(20)["shard"]
    first, second = open(shard_list).read().split()
    corpus = open_list(shard_list, "shard")
    with open(first, "wb") as file:
        file.write(open(second, "rb").read() + bytes(512))
    with pytest.raises(ListError, match="not the shard that was indexed"):
        corpus.rows(0)


def test_a_changed_shard_of_the_same_size_is_refused_if_it_is_newer_than_its_index(make_lists):
    shard_list = make_lists(20)["shard"]
    first, _ = open(shard_list).read().split()
    content = bytearray(Path(first).read_bytes())
    content[: len(b"utt0000")] = (
        b"utt9000"  # the first key; the checksum of a header is the sum of its bytes
    )
    content[148:156] = b"%06o\0 " % (int(content[148:154], 8) + ord("9") - ord("0"))
    Path(first).write_bytes(content)
    # As old as its index: not scanned again
    assert len(open_list(shard_list, "shard").rows(0)) == 10
    os.utime(first, (time.time() + 3600,) * 2)
    with pytest.raises(ListError, match="not the shard that was indexed"):
        open_list(shard_list, "shard").rows(0)
    assert open_list(shard_list, "shard").rows(1).key(0) == "utt0010"


@pytest.mark.parametrize(("kind", "other"), [("raw", "shard"), ("shard", "raw")])
def test_a_list_of_the_other_type_is_refused(make_lists, kind, other):
    with pytest.raises(ListError, match=f"data_type {kind}, not {other}"):
        open_list(make_lists(3)[kind], other)


def test_missing_and_empty_lists_are_refused(tmp_path):
    with pytest.raises(ListError, match="no such data list; make_raw_list"):
        open_list(str(tmp_path / "none.list"), "raw")
    with pytest.raises(ListError, match="no such data list"):
        open_list("x" * 300, "raw")  # longer than a file name may be
    (tmp_path / "empty.list").touch()
    with pytest.raises(ListError, match="empty data list"):
        open_list(str(tmp_path / "empty.list"), "raw")


def test_a_shard_without_a_usable_sample_is_left_out_and_the_others_read(make_lists, tmp_path):
    shard_list = make_lists(20)["shard"]
    (tmp_path / "empty.tar").touch()
    with tarfile.open(tmp_path / "bare.tar", "w"):
        pass
    first, second = open(shard_list).read().split()
    (tmp_path / "more.list").write_text(
        "\n".join([str(tmp_path / "empty.tar"), first, f"{tmp_path}/bare.tar", second])
    )
    corpus = open_list(str(tmp_path / "more.list"), "shard")
    assert corpus.digest == open_list(shard_list, "shard").digest
    assert corpus.bad == [(f"{tmp_path}/empty.tar", "an empty file")]
    assert len(everything(corpus)) == 20


def test_a_stated_duration_is_counted_at_the_stated_sampling_rate(make_lists, tmp_path):
    raw = make_lists(3)["raw"]
    expected = open_list(raw, "raw")
    lines = [json.loads(line) for line in open(raw)]
    counts = expected.rows(0).num_samples.tolist()
    for line, count in zip(lines, counts, strict=True):
        line |= {"duration": count / 16000, "sampling_rate": 16000}
    (tmp_path / "stated.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert open_list(str(tmp_path / "stated.list"), "raw").digest == expected.digest


def test_open_tars_are_bounded_over_all_corpora_of_a_process_and_closed_with_their_corpus(
    make_lists, monkeypatch
):
    def open_files():
        return sum(file.path.endswith(".tar") for file in psutil.Process().open_files())

    data_list = make_lists(20, per_shard=5)["shard"]
    monkeypatch.setattr(shard_corpus, "_open_tars", Recent(6))
    before = open_files()
    corpora = [open_list(data_list, "shard") for _ in range(3)]
    for corpus in corpora:
        assert len(everything(corpus)) == 20
    assert open_files() - before == 6
    del corpora, corpus
    assert open_files() == before


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_tar_in_place_of_a_list_is_named_also_with_its_index_beside_it(make_lists, data_type):
    (tar,) = Path(make_lists(4)["shard"]).read_text().split()
    assert Path(f"{tar}.idx").is_file()
    before = Path(f"{tar}.idx").read_bytes()
    with pytest.raises(ListError, match="a tar, not a data list; write its path as a line"):
        open_list(tar, data_type)
    assert Path(f"{tar}.idx").read_bytes() == before


def test_an_unknown_type_of_list_is_named(make_lists):
    with pytest.raises(ListError, match="data_type 'tar': expected raw or shard"):
        open_list(make_lists(4)["shard"], "tar")


@pytest.mark.parametrize(
    "read",
    [
        read_shards,
        *(
            partial(open_, data_type=kind)
            for open_ in (build_index, ensure_index, open_list)
            for kind in ("raw", "shard")
        ),
    ],
)
def test_a_pipe_is_refused_without_waiting_for_a_writer_and_a_folder_is_no_list(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ListError, match=r"pipe: a pipe or a device, .*; write the list to a file"):
        read(str(tmp_path / "pipe"))
    for path in (tmp_path, tmp_path / "none", "http://localhost:1/data.list"):
        with pytest.raises(ListError, match="no such data list; make_raw_list.py"):
            read(str(path))
