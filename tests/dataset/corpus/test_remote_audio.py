"""A remote raw list that is indexed by byte ranges has the index that whole files give."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.audio.every_format import DAMAGE, samples_of_every_format
from tests.support.data.tars import wav
from tests.support.storage.servers import serving, serving_ftp, serving_s3
from wenet_uio.audio.read import audio_info
from wenet_uio.base.crashes import careful
from wenet_uio.base.executor import Executor
from wenet_uio.base.messages import said_once
from wenet_uio.dataset.corpus import remote_audio
from wenet_uio.dataset.corpus.index import ListIndex
from wenet_uio.dataset.corpus.open_list import build_index
from wenet_uio.dataset.storage import objects, ranged_object

LONG = wav(20.0, rate=8000)
"""A recording of more than NEAR bytes."""


@pytest.fixture(autouse=True)
def storage(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "60")
    monkeypatch.setattr(ranged_object, "_without_ranges", set())
    remote_audio._info_of_version.cache_clear()
    said_once.clear()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def write_list(folder: Path, url: str, **segment: float) -> str:
    """A list of all files of a folder in a store; the keys are their names."""
    names = sorted(path.name for path in folder.iterdir())
    lines = [
        {"key": name, "wav": f"{url}/{quote(name)}", "txt": "a text", **segment} for name in names
    ]
    path = folder.parent / "raw.list"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def outcome(index: ListIndex) -> tuple:
    """Lengths, keys and problems of an index, without its time."""
    return {name: column.tolist() for name, column in index.columns.items()}, index.meta["bad"]


def by_whole_files(data_list: str, monkeypatch) -> tuple:
    """The index of a list whose files are all fetched whole, from a cache of its own."""
    with monkeypatch.context() as patch:
        patch.setenv("WENET_UIO_CACHE", f"{data_list}.whole")
        patch.setattr(remote_audio, "NEAR", 1 << 40)
        remote_audio._info_of_version.cache_clear()
        found = outcome(build_index(data_list, "raw"))
    remote_audio._info_of_version.cache_clear()
    return found


def headers_that_lie() -> dict[str, bytes]:
    """wav whose header states no length, a wrong one, or is longer than a first request."""
    plain = wav(3.0, rate=16000)
    head, samples = plain[:36], plain[44:]
    riff = b"RIFF\xff\xff\xff\xffWAVE"
    chunk = b"LIST" + struct.pack("<I", 50_000) + b"INFOISFT" + struct.pack("<I", 49_988)
    sizes = {
        "zero": 0,
        "pipe": 0xFFFFFFFF,
        "streamed": 0x7FFFFFFE,
        "more": 2 * len(samples),
        "less": len(samples) // 2,
        "odd": len(samples) - 1,
    }
    found = {
        f"{name}.wav": head + b"data" + struct.pack("<I", size) + samples
        for name, size in sizes.items()
    }
    listed = chunk + bytes(49_988)
    found["list.wav"] = riff + listed + plain[12:]
    found["listed.wav"] = plain + listed
    found["cut_list.wav"] = riff + listed[:40_000]
    found["text.wav"] = b"<html>not found</html>" * 3000
    return found


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.all)])
def test_every_format_with_every_damage_has_the_length_or_the_error_of_the_whole_file(
    step, folder, monkeypatch
):
    """With a step, each damage meets some of the formats."""
    monkeypatch.setattr(remote_audio, "READ_WHOLE", (".none",))
    monkeypatch.setattr(remote_audio, "NEAR", 0)
    monkeypatch.setattr(ranged_object, "NEAR", 700)
    monkeypatch.setattr(ranged_object, "LEAST_AHEAD", 600)
    cells = []
    for name, data in samples_of_every_format().items():
        if data and not name.startswith(("cut_", "stub_")):
            for title, damaged in DAMAGE.items():
                cells.append((f"{title}_{name}", damaged(data)))
    for name, data in (*cells[::step], *headers_that_lie().items()):
        (folder / name).write_bytes(data)

    with serving(folder) as server:
        data_list = write_list(folder, server.url)
        by_range = outcome(build_index(data_list, "raw"))
        parts = len({place for place in server.ranges if place[1] > 0})
        whole = by_whole_files(data_list, monkeypatch)
    assert by_range == whole
    refused, count = len(whole[1]), len(list(folder.iterdir()))
    assert 50 < step * refused < step * count - 100
    assert parts > 20 / step


def test_a_long_file_costs_a_few_kilobytes_and_is_not_in_the_cache(folder, tmp_path, monkeypatch):
    for number in range(20):
        (folder / f"{number}.wav").write_bytes(LONG)
    read: list[int] = []
    read_range = objects.read_range

    def counted(uri, start, end, version, *, one_of_many=False):
        read.append(end - start)
        return read_range(uri, start, end, version, one_of_many=one_of_many)

    monkeypatch.setattr(objects, "read_range", counted)
    with serving(folder) as server:
        data_list = write_list(folder, server.url)
        by_range = outcome(build_index(data_list, "raw"))
        assert max(server.requests.values()) == 1
    assert sum(read) <= 20 * (1 << 15)
    assert not list((tmp_path / "cache").rglob("*.wav"))
    with serving(folder, port=server.server_port):
        assert by_range == by_whole_files(data_list, monkeypatch)


def test_short_files_and_formats_that_are_counted_are_fetched_once_and_stay_in_the_cache(
    folder, tmp_path
):
    (folder / "short.wav").write_bytes(wav(1.0))
    (folder / "long.ogg").write_bytes(LONG)  # its content decides, its name what is fetched
    with serving(folder) as server:
        build_index(write_list(folder, server.url), "raw")
        assert set(server.requests.values()) == {1}
    copies = {path.suffix for path in (tmp_path / "cache").rglob("*.*g")}
    assert copies == {".ogg"}
    assert list((tmp_path / "cache").rglob("*.wav"))


def test_a_copy_in_the_cache_is_read_in_place_of_the_store(folder):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server:
        objects.read_bytes(f"{server.url}/a.wav")
        server.requests.clear()
        assert not build_index(write_list(folder, server.url), "raw").bad
        assert not server.requests["/a.wav"]


@pytest.mark.third
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_many_files_are_asked_for_at_a_time_by_threads(folder, kind):
    for number in range(100):
        (folder / f"{number}.wav").write_bytes(wav(0.1))
    lock, now, counts = threading.Lock(), [0], []
    many = threading.Event()

    def count(path: str, number: int) -> None:
        with lock:
            now[0] += 1
            counts.append(now[0])
            if now[0] > 16:
                many.set()
        many.wait(30 if kind == "threads" else 0.1)
        with lock:
            now[0] -= 1

    with serving(folder, fault=count) as server:
        data_list = write_list(folder, server.url)
        index = build_index(data_list, "raw", executor=Executor(2, kind))
    assert not index.bad
    assert max(counts) > 16 if kind == "threads" else max(counts) <= 2


def test_segments_of_one_recording_cost_one_request(folder):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server:
        line = {"wav": f"{server.url}/a.wav", "txt": "a"}
        lines = [
            {**line, "key": f"a{number}", "start": number / 10, "end": number / 10 + 1}
            for number in range(150)
        ]
        path = folder.parent / "raw.list"
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
        index = build_index(str(path), "raw", executor=Executor(1, "threads"))
        assert server.requests["/a.wav"] == 1
    assert index.columns["num_samples"].tolist() == [8000] * 150


def test_lines_that_state_a_duration_cost_no_request(folder):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server:
        data_list = write_list(folder, server.url, duration=1.5, sampling_rate=8000)
        build_index(data_list, "raw")
        assert not server.requests


@pytest.mark.parametrize("way", ["ignored", "refused", "other"])
def test_a_server_without_ranges_gives_the_same_index_and_is_named_once(
    folder, monkeypatch, caplog, way
):
    for number in range(3):
        (folder / f"{number}.wav").write_bytes(LONG)
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.wav").write_bytes(b"no audio" * 40_000)
    with serving(folder) as server:
        server.ranges_are = way
        data_list = write_list(folder, server.url)
        ours = outcome(build_index(data_list, "raw"))
        assert ours == by_whole_files(data_list, monkeypatch)
    assert len(ours[1]) == 2
    messages = {record.getMessage() for record in caplog.records}
    assert [server.url in message for message in messages] == [True]
    assert "its objects are fetched whole to be indexed" in messages.pop()


def test_a_server_without_head_gives_the_same_index(folder, monkeypatch):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server:
        server.with_head = False
        data_list = write_list(folder, server.url)
        ours = outcome(build_index(data_list, "raw"))
        assert ours == by_whole_files(data_list, monkeypatch)
    assert not ours[1]


@pytest.mark.parametrize("fault", ["reset", 503, "short", "cut"])
def test_a_fault_that_passes_changes_nothing(folder, fault):
    for number in range(5):
        (folder / f"{number}.wav").write_bytes(LONG)
    with serving(folder, fault=lambda _, number: None if number else fault) as server:
        assert not build_index(write_list(folder, server.url), "raw").bad


def test_a_file_that_is_gone_or_never_sent_is_named_as_by_whole_files(folder, monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    for number in range(3):
        (folder / f"{number}.wav").write_bytes(LONG)

    def fault(path: str, number: int) -> int | None:
        return 500 if path == "/1.wav" else None

    with serving(folder, fault=fault) as server:
        data_list = write_list(folder, server.url)
        (folder / "0.wav").unlink()
        ours = outcome(build_index(data_list, "raw"))
        assert ours == by_whole_files(data_list, monkeypatch)
    assert [key for key, _ in ours[1]] == ["0.wav", "1.wav"]
    assert "HTTP 404" in ours[1][0][1]
    assert "HTTP 500" in ours[1][1][1]


def test_a_file_that_is_replaced_has_the_length_of_the_new_one(folder):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server:
        data_list = write_list(folder, server.url)
        first = build_index(data_list, "raw")
        (folder / "a.wav").write_bytes(wav(30.0, rate=8000))
        remote_audio._info_of_version.cache_clear()
        second = build_index(data_list, "raw")  # asks for the version that was noted
    assert first.columns["num_samples"].tolist() == [160_000]
    assert second.columns["num_samples"].tolist() == [240_000]


def test_files_in_s3_and_ftp_have_the_same_index(folder, monkeypatch):
    for name, data in (("a.wav", LONG), ("b.wav", LONG[:-9]), ("c.wav", LONG[:200_000])):
        (folder / name).write_bytes(data)
    with serving_s3(folder, monkeypatch) as url:
        data_list = write_list(folder, url)
        ours = outcome(build_index(data_list, "raw"))
        assert ours == by_whole_files(data_list, monkeypatch)
    with serving_ftp(folder) as url:
        data_list = write_list(folder, url)
        assert outcome(build_index(data_list, "raw"))[1] == ours[1]
    assert [key for key, _ in ours[1]] == ["c.wav"]


def test_a_careful_process_reads_whole_files(folder, tmp_path):
    (folder / "a.wav").write_bytes(LONG)
    with serving(folder) as server, careful():
        assert remote_audio.stored_info(f"{server.url}/a.wav") == audio_info(LONG)
    assert list((tmp_path / "cache").rglob("*.wav"))
