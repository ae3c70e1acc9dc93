import gzip
import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tests.support.data.nemo import tarred_source, write_tarred
from tests.support.data.read_only import lock_folder, open_folder, shared_folder, unprivileged
from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.base.files import append_line, read_lines
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus import open_list as list_opening
from wenet_uio.dataset.corpus import shard_index
from wenet_uio.dataset.corpus.open_list import index_of, open_list
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.kinds.text import TextCorpus
from wenet_uio.dataset.open import open_corpus
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer


@pytest.fixture
def shared(monkeypatch):
    """A folder `data` to be made read-only, beside a folder `lists` and a cache that every user may
    write.
    """
    with shared_folder() as folder:
        (folder / "data").mkdir()
        open_folder(folder / "lists")
        monkeypatch.setenv("WENET_UIO_CACHE", str(open_folder(folder / "cache")))
        yield folder


def write_data(folder, shards=3):
    """A shard list, a raw list and a text file, without indexes; returns the lists by type."""
    for number in range(shards):
        names = [f"utt{number}_{part}" for part in range(4)]
        pairs = [((f"{name}.txt", "ab"), (f"{name}.wav", wav(0.3, seed=number))) for name in names]
        write_tar(folder / f"set-{number}.tar", [member for pair in pairs for member in pair])
    (folder / "shard.list").write_text(
        "".join(f"{folder}/set-{number}.tar\n" for number in range(shards))
    )
    (folder / "a.wav").write_bytes(wav(0.5))
    (folder / "raw.list").write_text(
        json.dumps({"key": "a", "wav": f"{folder}/a.wav", "txt": "ab"}) + "\n"
    )
    (folder / "book.txt").write_text("one\ntwo\n")
    return {"shard": str(folder / "shard.list"), "raw": str(folder / "raw.list")}


def files_in(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_lists_in_a_read_only_folder_are_indexed_into_the_cache_once(shared, monkeypatch):
    lists = write_data(shared / "data")
    lock_folder(shared / "data")
    before = files_in(shared / "data")
    with unprivileged():
        found = {kind: everything(open_list(path, kind)) for kind, path in lists.items()}
        with monkeypatch.context() as patch:
            patch.setattr(list_opening, "index_lines_of", None)  # calling it again would fail
            patch.setattr(shard_index, "scan_shard", None)
            again = {kind: everything(open_list(path, kind)) for kind, path in lists.items()}
    assert {kind: [u.key for u in utterances] for kind, utterances in again.items()} == {
        kind: [u.key for u in utterances] for kind, utterances in found.items()
    }
    assert (len(found["shard"]), len(found["raw"])) == (12, 1)
    assert files_in(shared / "data") == before
    assert len(files_in(shared / "cache")) == 5  # two lists and three shards


def test_shards_in_a_read_only_folder_are_indexed_beside_a_list_that_can_be_written(shared):
    shards = write_data(shared / "data")["shard"]
    here = shared / "lists" / "mine.list"
    here.write_text(Path(shards).read_text())
    lock_folder(shared / "data")
    with unprivileged():
        assert len(everything(open_list(str(here), "shard"))) == 12
    assert index_of(here).is_file()
    assert len(files_in(shared / "lists" / "mine.list.idx.d")) == 3
    assert files_in(shared / "cache") == []


def test_a_touched_shard_that_was_indexed_before_is_indexed_again_in_a_read_only_folder(
    shared, monkeypatch
):
    shards = write_data(shared / "data")["shard"]
    expected = open_list(shards, "shard").digest
    tar = (shared / "data" / "set-1.tar").as_posix()
    os.utime(tar, (time.time() + 3600,) * 2)
    for name in (shared / "cache").rglob("*"):
        name.chmod(0o777)
    lock_folder(shared / "data")
    with unprivileged():
        corpus = open_list(shards, "shard")
        assert corpus.digest == expected
        assert len(everything(corpus)) == 12
        assert len(files_in(shared / "cache")) == 1
        kept = next(path for path in (shared / "cache").rglob("*.idx"))
        os.utime(kept, (time.time() + 3600,) * 2)  # as if the clock had passed the time of the tar
        monkeypatch.setattr(shard_index, "scan_shard", None)
        assert len(everything(open_list(shards, "shard"))) == 12


def test_a_list_that_changed_in_a_read_only_folder_is_indexed_again(shared):
    raw = write_data(shared / "data")["raw"]
    assert open_list(raw, "raw").num_samples == 1
    line = Path(raw).read_text()
    Path(raw).write_text(line + line.replace('"a"', '"b"'))
    stale = index_of(raw).read_bytes()
    lock_folder(shared / "data")
    with unprivileged():
        assert open_list(raw, "raw").num_samples == 2
        assert open_list(raw, "raw").num_samples == 2
    assert index_of(raw).read_bytes() == stale


def test_text_and_token_counts_of_a_read_only_folder_are_kept_in_the_cache(shared):
    raw = write_data(shared / "data")["raw"]
    tokenizer = Tokenizer(CharSplitter((), split_with_space=True), {"<blank>": 0, "<unk>": 1})
    lock_folder(shared / "data")
    with unprivileged():
        for _ in range(2):
            assert TextCorpus(f"{shared}/data/book.txt").num_samples == 2
            assert open_corpus(raw, "raw", tokenizer=tokenizer).rows(0).text_length.tolist() == [1]
    assert len(files_in(shared / "cache")) == 3


def test_a_tarred_set_of_nemo_in_a_read_only_folder_is_a_source(shared):
    write_tarred(shared / "data", "set")
    lock_folder(shared / "data")
    with unprivileged():
        for _ in range(2):
            (corpus,) = parse_source(dict(**tarred_source("set", f"{shared}/data"))).open()
            assert [u.text for u in everything(corpus)] == list("abcd")
    assert len(files_in(shared / "cache")) == 4  # the list, its index, two shards


def test_packed_shards_and_their_list_may_be_in_a_read_only_folder(shared):
    write_data(shared / "data")
    for tar in (shared / "data").glob("*.tar"):
        (shared / "data" / f"{tar.name}.gz").write_bytes(gzip.compress(tar.read_bytes()))
    packed = shared / "data" / "packed.list"
    packed.write_text(f"{shared}/data/set-*.tar.gz\n")
    lock_folder(shared / "data")
    with unprivileged():
        for _ in range(2):
            assert len(everything(open_list(str(packed), "shard"))) == 12
    assert len(files_in(shared / "cache" / "uio1" / "kept")) == 4


def test_an_outdated_index_of_another_user_in_a_shared_folder_is_left_alone(shared):
    raw = write_data(shared / "data")["raw"]
    open_list(raw, "raw")
    stale = index_of(raw).read_bytes()
    line = Path(raw).read_text()
    Path(raw).write_text(line + line.replace('"a"', '"b"'))
    (shared / "data").chmod(0o1777)  # as /tmp: everybody may add files, and remove only their own
    with unprivileged():
        if os.geteuid() != index_of(raw).stat().st_uid:
            assert open_list(raw, "raw").num_samples == 2
            assert index_of(raw).read_bytes() == stale


def test_without_any_folder_to_write_the_error_names_the_places(shared, monkeypatch):
    raw = write_data(shared / "data")["raw"]
    monkeypatch.setenv("WENET_UIO_CACHE", str(shared / "data" / "cache"))
    lock_folder(shared / "data")
    with (
        unprivileged(),
        pytest.raises(OSError, match=r"cannot write .*raw.list.idx .*, nor .*set WENET_UIO_CACHE"),
    ):
        open_list(raw, "raw")


def _rank(shards, log, barrier, results):
    build = list_opening.index_lines_of

    def counted(*args, **keywords):
        append_line(log, {"pid": os.getpid()})
        return build(*args, **keywords)

    list_opening.index_lines_of = counted
    with unprivileged():
        barrier.wait(60)
        corpus = open_list(shards, "shard")
        results.put((str(corpus._index.path), corpus.digest, len(everything(corpus))))


def test_ranks_that_start_at_the_same_time_agree_on_one_index_of_a_read_only_list(shared):
    shards = write_data(shared / "data", shards=40)["shard"]
    lock_folder(shared / "data")
    context, ranks = multiprocessing.get_context("fork"), 6
    barrier, results, log = context.Barrier(ranks), context.Queue(), shared / "lists" / "builds"
    processes = [
        context.Process(target=_rank, args=(shards, log, barrier, results)) for _ in range(ranks)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert len(set(found)) == 1
    assert found[0][2] == 160
    assert len(read_lines(log)) == 1


def test_a_damaged_index_is_made_again(make_lists):
    for kind, path in make_lists(12, per_shard=1000).items():
        expected = open_list(path, kind).digest
        damaged = [
            index_of(path),
            *(map(sidecar_of, Path(path).read_text().split()) if kind == "shard" else ()),
        ]
        for keep in (12, 40, -8):
            for index in damaged:
                index.write_bytes(index.read_bytes()[:keep])
            corpus = open_list(path, kind)
            assert (corpus.digest, len(everything(corpus))) == (expected, 12)


def test_a_list_that_changes_while_it_is_indexed_is_indexed_again(make_lists, monkeypatch):
    path = make_lists(12)["raw"]
    lines = Path(path).read_text().splitlines(keepends=True)
    Path(path).write_text("".join(lines[:5]))
    columns = list_opening.raw_index

    def slow(*args):
        found = columns(*args)
        Path(path).write_text("".join(lines))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(list_opening, "raw_index", slow)
        open_list(path, "raw")
    assert len(everything(open_list(path, "raw"))) == 12
