"""The index of a remote tar is made once, and again when another tar is there."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.audio.every_format import samples_of_every_format
from tests.support.data.hostile_tars import END, TARS, member, pax, sample
from tests.support.data.tars import wav, write_tar
from tests.support.storage.servers import FaultyServer, serving, serving_s3
from wenet_uio.audio.partial_file import PartialFile
from wenet_uio.audio.read import audio_info
from wenet_uio.base.crashes import careful
from wenet_uio.base.messages import said_once
from wenet_uio.dataset.corpus import remote_index
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.corpus.remote_index import scan_by_range, update_kept_index
from wenet_uio.dataset.corpus.shard_index import same_rows, scan_shard
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.storage import objects, ranged_object
from wenet_uio.dataset.storage.transfer import version_of
from wenet_uio.dataset.storage.versions import ChangedError, NoRangesError, StorageError


def test_a_remote_tar_is_read_for_its_index_once_and_again_when_it_has_changed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    store, kept = tmp_path / "store", tmp_path / "kept"
    store.mkdir()

    def write(*keys):
        samples = [[(f"{key}.wav", wav(0.1)), (f"{key}.txt", "a")] for key in keys]
        write_tar(store / "x.tar", [member for sample in samples for member in sample])

    def keys():
        rows, bad = update_kept_index(files, DEFAULT_LAYOUT, kept)
        assert bad == []
        return [rows.key(number) for number in range(len(rows))]

    with serving(store) as server:
        files = ShardFiles(f"{server.url}/x.tar")
        write("one", "two")
        assert keys() == ["one", "two"]
        requests = server.requests.copy()
        assert keys() == ["one", "two"]
        assert server.requests == requests

        write("one", "three", "four")
        assert keys() == ["one", "three", "four"]


LONG = 400_000
"""Bytes of an audio member that is not read through."""


@pytest.fixture(autouse=True)
def storage(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "60")
    monkeypatch.setattr(ranged_object, "_without_ranges", set())
    said_once.clear()


@pytest.fixture
def small_ranges(monkeypatch):
    """Tars of tests are small: read them by many small ranges all the same."""
    monkeypatch.setattr(ranged_object, "NEAR", 700)
    monkeypatch.setattr(ranged_object, "LEAST_AHEAD", 600)
    monkeypatch.setattr(remote_index, "NEAR", 0)
    monkeypatch.setattr(remote_index, "FIRST_SAMPLES", 2)
    monkeypatch.setattr(remote_index, "SAMPLES_OF_WALKER", 3)


def assert_same_index(folder: Path, url: str, name: str, walkers: int = 4) -> None:
    path = str(folder / name)
    rows, bad = scan_shard(ShardFiles(path), DEFAULT_LAYOUT, path)
    remote = f"{url}/{name}"
    indexed = scan_by_range(ShardFiles(remote), DEFAULT_LAYOUT, version_of(remote), walkers)
    assert indexed is not None
    assert same_rows(indexed[0], rows), name
    assert [(key.replace(url, str(folder)), why) for key, why in indexed[1]] == bad, name


@pytest.mark.usefixtures("small_ranges")
def test_every_hostile_tar_has_the_same_index(tmp_path):
    names = []
    for name, hostile in TARS.items():
        if content := hostile.content():
            names.append(f"{name}.tar")
            (tmp_path / names[-1]).write_bytes(content)

    with serving(tmp_path) as server:
        for name in names:
            assert_same_index(tmp_path, server.url, name)
    assert len(names) >= 50


@pytest.mark.usefixtures("small_ranges")
def test_a_tar_that_is_cut_anywhere_has_the_same_index(tmp_path):
    whole = b"".join(sample(f"s{number}") for number in range(6)) + END
    cuts = range(300, len(whole), 777)
    for cut in cuts:
        (tmp_path / f"{cut}.tar").write_bytes(whole[:cut])

    with serving(tmp_path) as server:
        for cut in cuts:
            assert_same_index(tmp_path, server.url, f"{cut}.tar")


FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
USUAL = (("gnu", True), ("pax", False))
"""Kinds of tars, and whether the text comes first, that are read in every change."""


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize(
    ("kind", "text_first"),
    [
        pytest.param(kind, text_first, marks=() if (kind, text_first) in USUAL else pytest.mark.all)
        for kind, text_first in product(FORMATS, [True, False])
    ],
)
def test_every_audio_in_every_kind_of_tar_has_the_same_index(tmp_path, kind, text_first):
    audio = samples_of_every_format()
    folder = "a folder of a long name/" * (1 if kind == "ustar" else 9)
    with tarfile.open(tmp_path / "x.tar", "w", format=FORMATS[kind]) as tar:
        for name, data in audio.items():
            text = f"{name.rpartition('.')[0]}.txt"
            members = {text: b"some text", name: data}
            for member_name in sorted(members, key=lambda each: (each != text) == text_first):
                info = tarfile.TarInfo(folder + member_name)
                info.size, info.mtime = len(members[member_name]), 1.5 if kind == "pax" else 1
                tar.addfile(info, io.BytesIO(members[member_name]))

    with serving(tmp_path) as server:
        assert_same_index(tmp_path, server.url, "x.tar")


def test_audio_in_a_store_has_the_length_that_it_has_in_memory():
    for name, data in samples_of_every_format().items():
        outcomes = []
        for source in (data, PartialFile(len(data), lambda a, b, data=data: data[a:b])):
            try:
                outcomes.append(audio_info(source))
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], name


@pytest.mark.usefixtures("small_ranges")
def test_texts_in_json_links_and_other_fields_have_the_same_index(tmp_path):
    parts = []
    for number in range(9):
        parts.append(member(f"j{number}.json", f'{{"text": "t{number}", "speaker": {number}}}'))
        parts.append(member(f"j{number}.wav", wav(0.2 + number / 10)))
        parts.append(member(f"j{number}.bin", bytes(range(256))))
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        for name, data in (("a.wav", wav(0.3)), ("a.txt", b"a"), ("b.txt", b"b")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("b.wav")
        link.type, link.linkname = tarfile.SYMTYPE, "a.wav"
        tar.addfile(link)

    (tmp_path / "json.tar").write_bytes(b"".join(parts) + END)
    (tmp_path / "global.tar").write_bytes(
        member("pax", b"16 comment=abcd\n", b"g") + pax(b"14 path=aa.wav\n") + sample("b") + END
    )
    with serving(tmp_path) as server:
        for name in ("json.tar", "links.tar", "global.tar"):
            assert_same_index(tmp_path, server.url, name)


def write_long(path: Path, samples: int, audio_bytes: int = LONG) -> None:
    """Write a tar of recordings that are longer than what is read through."""
    audio = wav((audio_bytes - 44) / 2 / 8000)
    write_tar(
        path,
        [
            each
            for number in range(samples)
            for each in ((f"k{number:04d}.txt", f"text {number}"), (f"k{number:04d}.wav", audio))
        ],
    )


@contextmanager
def counting(folder: Path, latency: float) -> Iterator[tuple[FaultyServer, list[int]]]:
    """A server, and how many requests it was answering when each request came."""
    lock, now, counts = threading.Lock(), [0], []

    def count(path: str, number: int) -> None:
        with lock:
            now[0] += 1
            counts.append(now[0])
        time.sleep(latency)
        with lock:
            now[0] -= 1

    with serving(folder, fault=count) as server:
        yield server, counts


def test_a_tar_of_long_recordings_costs_a_small_part_of_its_bytes(tmp_path, monkeypatch):
    write_long(tmp_path / "x.tar", 100)
    read: list[int] = []
    read_range = objects.read_range

    def counted(uri, start, end, version, *, one_of_many=False):
        read.append(end - start)
        return read_range(uri, start, end, version, one_of_many=one_of_many)

    monkeypatch.setattr(objects, "read_range", counted)
    size = (tmp_path / "x.tar").stat().st_size
    with serving(tmp_path) as server:
        assert_same_index(tmp_path, server.url, "x.tar", walkers=1)
        assert sum(read) < size / 25
        assert len(read) < 1.1 * 100
        read.clear()
        assert_same_index(tmp_path, server.url, "x.tar", walkers=4)
        assert sum(read) < size / 5


def test_one_large_tar_is_read_by_many_requests_at_a_time(tmp_path):
    write_long(tmp_path / "x.tar", 300, 200_000)
    with counting(tmp_path, latency=0.05) as (server, counts):
        (tmp_path / "x.list").write_text(f"{server.url}/x.tar\n")
        build_index(str(tmp_path / "x.list"), "shard")
    assert max(counts) > 1
    assert open_list(str(tmp_path / "x.list"), "shard").samples.tolist() == [300]
    assert not list((tmp_path / "cache").rglob("*.tar"))


def test_a_tar_of_short_utterances_is_fetched_as_a_whole_and_stays_in_the_cache(tmp_path):
    write_long(tmp_path / "x.tar", 100, 20_000)
    with serving(tmp_path) as server:
        (tmp_path / "x.list").write_text(f"{server.url}/x.tar\n")
        build_index(str(tmp_path / "x.list"), "shard")
        assert server.requests["/x.tar"] <= 8
    assert list((tmp_path / "cache").rglob("*.tar"))


def test_a_small_tar_costs_one_request_and_stays_in_the_cache(tmp_path):
    write_long(tmp_path / "x.tar", 2)
    with serving(tmp_path) as server:
        (tmp_path / "x.list").write_text(f"{server.url}/x.tar\n")
        build_index(str(tmp_path / "x.list"), "shard")
        assert server.requests["/x.tar"] == 1
        build_index(str(tmp_path / "x.list"), "shard")
        assert server.requests["/x.tar"] == 1
    assert list((tmp_path / "cache").rglob("*.tar"))


def test_a_copy_in_the_cache_is_scanned_in_place_of_the_store(tmp_path):
    write_long(tmp_path / "x.tar", 5)
    with serving(tmp_path) as server:
        url = f"{server.url}/x.tar"
        objects.open_whole(url).close()
        server.requests.clear()
        (tmp_path / "x.list").write_text(f"{url}\n")
        build_index(str(tmp_path / "x.list"), "shard")
        assert not server.requests["/x.tar"]


def test_a_server_without_ranges_is_named_once_and_its_tars_are_fetched(tmp_path, caplog):
    for number in range(3):
        write_long(tmp_path / f"x{number}.tar", 5)
    with serving(tmp_path) as server:
        server.ranges_are = "ignored"
        (tmp_path / "x.list").write_text(f"{server.url}/x{{0..2}}.tar\n")
        build_index(str(tmp_path / "x.list"), "shard")
        messages = [record.getMessage() for record in caplog.records]
        assert [message for message in messages if message.startswith(server.url)] == [
            f"{server.url} sends no byte ranges; its objects are fetched whole to be indexed"
        ]
        with pytest.raises(NoRangesError):
            url = f"{server.url}/x0.tar"
            scan_by_range(ShardFiles(url), DEFAULT_LAYOUT, version_of(url), 1)
    corpus = open_list(str(tmp_path / "x.list"), "shard")
    assert corpus.samples.tolist() == [5, 5, 5]
    assert corpus.bad == []


def test_temporary_faults_change_nothing(tmp_path):
    write_long(tmp_path / "x.tar", 20)
    faults = ("reset", 503, "short", "long", "cut", 500)
    with serving(
        tmp_path, fault=lambda _, number: faults[number // 2 % 6] if number % 2 else None
    ) as server:
        assert_same_index(tmp_path, server.url, "x.tar", walkers=2)


@pytest.mark.parametrize("good", [0, 3, 8])
def test_a_store_that_fails_for_good_ends_indexing_and_makes_no_sample_bad(
    tmp_path, monkeypatch, good
):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "3")
    random = np.random.default_rng(0)
    members = []
    for number in range(8):
        buffer = io.BytesIO()
        soundfile.write(buffer, random.normal(0, 0.1, 200_000), 16_000, "PCM_24", format="WAV")
        members += [(f"k{number}.txt", "text"), (f"k{number}.wav", buffer.getvalue())]
    write_tar(tmp_path / "x.tar", members)

    with serving(tmp_path, fault=lambda _, number: 500 if number >= good else None) as server:
        (tmp_path / "x.list").write_text(f"{server.url}/x.tar\n")
        with pytest.raises(StorageError, match="x.tar"):
            build_index(str(tmp_path / "x.list"), "shard")
    assert not (tmp_path / "x.list.idx").exists()


def test_a_tar_that_is_replaced_while_it_is_scanned_is_an_error(tmp_path):
    write_long(tmp_path / "x.tar", 20)
    other = tmp_path / "other.tar"
    write_long(other, 20, LONG + 1024)

    def replace(_: str, number: int) -> None:
        if number == 5:
            other.rename(tmp_path / "x.tar")

    with serving(tmp_path, fault=replace) as server:
        url = f"{server.url}/x.tar"
        with pytest.raises(ChangedError):
            scan_by_range(ShardFiles(url), DEFAULT_LAYOUT, version_of(url), 1)


def test_a_tar_in_s3_has_the_same_index_and_a_replaced_one_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "bucket"
    folder.mkdir()
    write_long(folder / "x.tar", 20)
    with serving_s3(folder, monkeypatch) as url:
        assert_same_index(folder, url, "x.tar", walkers=3)
        version = version_of(f"{url}/x.tar")
        import boto3

        write_long(folder / "x.tar", 20, LONG + 1024)
        boto3.client("s3").upload_file(str(folder / "x.tar"), "corpus", "x.tar")
        with pytest.raises(ChangedError):
            scan_by_range(ShardFiles(f"{url}/x.tar"), DEFAULT_LAYOUT, version, 1)


def test_a_careful_process_reads_whole_tars(tmp_path):
    write_long(tmp_path / "x.tar", 5)
    with serving(tmp_path) as server, careful():
        (tmp_path / "x.list").write_text(f"{server.url}/x.tar\n")
        build_index(str(tmp_path / "x.list"), "shard")
        assert list((tmp_path / "cache").rglob("*.tar"))
