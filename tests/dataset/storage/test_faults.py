"""Faults of servers, full disks and killed processes.

Every sample that can be read is read exactly once, and every other sample is in the ledger. Nothing
hangs, and no partial file or process is left behind.
"""

import os
import resource
import subprocess
import threading
import time
from itertools import cycle
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.data.loading import loader
from tests.support.storage.remote_corpus import (
    assert_nothing_is_left,
    assert_same_batches,
    batches_of,
    batches_of_local,
    environment,
    indexed_list,
    keys_read,
    ledger,
    shard_list,
    wait_until,
    write_list,
)
from tests.support.storage.servers import away, serving
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import cache


def raw_list(tmp_path, server, utterances):
    """A raw list with durations, so that audio is read in training only."""
    lines = []
    for line in utterances:
        seconds = (Path(line.wav).stat().st_size - 44) / 16000
        lines.append(
            RawLine(
                line.key,
                f"{server.url}/{Path(line.wav).name}",
                line.text,
                extra={"duration": seconds},
            )
        )
    return write_list(tmp_path / "raw.list", [line.to_json() for line in lines])


@pytest.mark.third
@pytest.mark.parametrize(
    ("data_type", "faults"),
    [
        ("shard", (500, "reset", "stall", "short")),
        ("shard", (503, "long")),
        ("raw", (500, 503, "reset", "stall", "short", "long")),
    ],
    ids=["shard", "more faults", "raw"],
)
def test_temporary_faults_lose_no_samples(
    data_type, faults, tmp_path, store, local, utterances, cache_folder, monkeypatch
):
    # A silent connection is closed after half a second
    monkeypatch.setenv("WENET_UIO_DEADLINE", "5")
    few = utterances if data_type == "shard" else utterances[::2]
    names = (
        [Path(line.wav).name for line in few]
        if data_type == "raw"
        else [path.name for path in store.glob("*.tar")]
    )
    fault_of = {f"/{name}": fault for name, fault in zip(names, cycle(faults), strict=False)}
    with serving(store) as server:
        data_list = (
            shard_list(tmp_path, server)
            if data_type == "shard"
            else raw_list(tmp_path, server, few)
        )
        open_list(data_list, data_type)
        server.requests.clear()
        server.fault = lambda path, number: fault_of[path] if number < 2 else None
        batches = batches_of(data_list, data_type, workers=1)
        assert {fault_of[path] for path in server.requests} == set(faults)
        assert min(server.requests.values()) > 2
    assert keys_read(batches) == sorted(line.key for line in few)
    assert ledger(batches) == {}
    assert_nothing_is_left(cache_folder)


def test_indexing_survives_temporary_faults(tmp_path, store, local, cache_folder):
    faults = [500, "reset", "short", "long"]
    with serving(
        store, fault=lambda path, number: faults[number] if number < len(faults) else None
    ) as server:
        server.with_head = False
        assert (
            open_list(shard_list(tmp_path, server), "shard").digest
            == open_list(local, "shard").digest
        )
    assert_nothing_is_left(cache_folder)


def test_a_server_without_byte_ranges_can_be_read(tmp_path, store, local):
    with serving(store, fault=lambda path, number: "short" if number == 1 else None) as server:
        server.ranges_are = "ignored"
        assert_same_batches(batches_of(shard_list(tmp_path, server)), batches_of_local(local))


def test_training_waits_for_a_server_that_is_down_for_a_while(
    tmp_path, store, local, cache_folder, monkeypatch
):
    seconds = float(os.environ.get("WENET_UIO_TEST_OUTAGE", "3"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", str(10 + 2 * seconds))
    with serving(store) as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        began = time.monotonic()
        with away(server, seconds, store):
            batches = batches_of(data_list)
            assert time.monotonic() - began > seconds
    assert keys_read(batches) == keys_read(batches_of_local(local))
    assert ledger(batches) == {}
    assert_nothing_is_left(cache_folder)


def test_samples_of_a_missing_shard_are_in_the_ledger(tmp_path, store, utterances, cache_folder):
    with serving(store) as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        server.fault = lambda path, number: 404 if "00002" in path else None
        batches = keep_going(data_list, "shard")
    lost = [line.key for line in utterances[24:36]]
    assert ledger(batches) == dict.fromkeys(lost, "unreadable")
    assert keys_read(batches) == sorted({line.key for line in utterances} - set(lost))
    assert_nothing_is_left(cache_folder)


def test_an_unreachable_shard_costs_one_deadline_and_not_one_per_sample(
    tmp_path, store, utterances, cache_folder, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "5")  # a busy machine answers within half a second
    with serving(store) as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        server.fault = lambda path, number: 500 if "00001" in path else None
        batches = keep_going(data_list, "shard")
        assert server.requests["/shards_000000001.tar"] < 50
    assert ledger(batches) == dict.fromkeys((line.key for line in utterances[12:24]), "unreadable")
    assert len(keys_read(batches)) == 36


def test_missing_raw_files_are_in_the_ledger_by_name(tmp_path, store, utterances, cache_folder):
    few = utterances[:20]
    gone = {few[3].key, few[17].key}
    with serving(
        store, fault=lambda path, number: 404 if Path(path).stem in gone else None
    ) as server:
        server.with_head = False
        batches = keep_going(raw_list(tmp_path, server, few), "raw")
    assert ledger(batches) == dict.fromkeys(gone, "unreadable")
    assert keys_read(batches) == sorted({line.key for line in few} - gone)


def test_too_many_unreachable_samples_stop_the_run(tmp_path, store):
    with serving(store) as server:
        data_list = shard_list(tmp_path, server)
        open_list(data_list, "shard")
        server.fault = lambda path, number: 404
        with pytest.raises(ListError, match="more than max_bad_ratio"):
            batches_of_cold(data_list)


def test_a_shard_that_changed_on_the_server_is_refused(tmp_path, store, utterances):
    folder = tmp_path / "changing"
    folder.mkdir()
    first, second = (store / f"shards_00000000{number}.tar" for number in (0, 1))
    (folder / "a.tar").write_bytes(first.read_bytes())
    with serving(folder) as server:
        data_list = write_list(tmp_path / "changing.list", [f"{server.url}/a.tar"])
        assert open_list(data_list, "shard").num_samples == 12
        (folder / "a.tar").write_bytes(second.read_bytes())
        with pytest.raises(ListError, match="changed since it was indexed"):
            batches_of_cold(data_list)


def batches_of_cold(data_list):
    for path in Path(os.environ["WENET_UIO_CACHE"]).rglob("*.tar"):
        path.unlink()
    return batches_of(data_list)


def keep_going(data_list, data_type):
    """All batches, without a limit for the share of bad samples."""
    one = loader(data_list, data_type, training=False, num_workers=1)
    batches = list(one)
    one.prefetch.close()
    return batches


@pytest.mark.third
@pytest.mark.parametrize("bound", ["100", "120K"])
def test_batches_do_not_change_with_a_cache_too_small_for_the_corpus(
    bound, tmp_path, store, local, cache_folder, monkeypatch
):
    with serving(store) as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        monkeypatch.setenv("WENET_UIO_CACHE_BYTES", bound)
        assert_same_batches(batches_of(data_list, workers=1), batches_of_local(local))
    assert sum(path.stat().st_size for path in cache_folder.rglob("*.tar")) <= 120 << 10
    assert_nothing_is_left(cache_folder)


@pytest.mark.all
def test_batches_do_not_change_when_the_disk_fills_during_a_download(
    tmp_path, store, local, cache_folder
):
    with serving(store) as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # A larger write fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
        try:
            found = batches_of(data_list)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert_same_batches(found, batches_of_local(local))
    assert list(cache_folder.rglob("*.tar")) == []
    assert_nothing_is_left(cache_folder)


def test_a_later_process_resumes_a_partial_download(store, cache_folder):
    script = "import sys; from wenet_uio.dataset.storage import cache; cache.fetch(sys.argv[1])"
    with serving(store, fault=lambda path, number: "slow") as server:
        uri = f"{server.url}/shards_000000000.tar"
        process = subprocess.Popen([preloaded.python(), "-c", script, uri], env=environment())
        wait_until(
            lambda: sum(path.stat().st_size for path in cache_folder.rglob("*.part")) > 20_000
        )
        process.kill()
        process.wait(60)
        (part,) = cache_folder.rglob("*.part")
        begun = part.stat().st_size
        server.fault = None
        with cache.fetch(uri) as file:
            assert file.read() == (store / "shards_000000000.tar").read_bytes()
        assert server.ranges == [("/shards_000000000.tar", 0), ("/shards_000000000.tar", begun)]
    assert_nothing_is_left(cache_folder)


def test_threads_that_read_one_shard_share_one_download(tmp_path, store):
    with serving(store, fault=lambda path, number: "slow") as server:
        uri = f"{server.url}/shards_000000000.tar"
        threads = [threading.Thread(target=lambda: cache.fetch(uri).close()) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert server.requests["/shards_000000000.tar"] == 1


def test_damaged_remote_tars_give_all_intact_samples_and_name_the_others(
    tmp_path, store, utterances, cache_folder
):
    folder = tmp_path / "damaged"
    folder.mkdir()
    for number in range(4):
        data = bytearray((store / f"shards_00000000{number}.tar").read_bytes())
        if number == 1:
            del data[len(data) // 2 :]
        if number == 2:
            header = data.find(f"{utterances[28].key}.txt".encode())
            data[header : header + 512] = os.urandom(512)
        (folder / f"{number}.tar").write_bytes(data)
    with serving(folder) as server:
        data_list = write_list(tmp_path / "damaged.list", [f"{server.url}/{{0..3}}.tar"])
        corpus = open_list(data_list, "shard")
        batches = keep_going(data_list, "shard")
    found = keys_read(batches)
    assert len(found) == len(set(found)) == corpus.num_samples
    intact = {line.key for line in [*utterances[:12], *utterances[24:28], *utterances[29:]]}
    assert intact <= set(found)
    assert utterances[28].key not in found
    assert any("cut short" in reason for _, reason in corpus.bad)
    assert any("damaged at byte" in reason for _, reason in corpus.bad)
    assert utterances[28].key in dict(corpus.bad)
    assert_nothing_is_left(cache_folder)


def test_a_bad_line_of_a_remote_raw_list_loses_only_that_line(tmp_path, store, utterances):
    few = utterances[:5]
    with serving(store) as server:
        data_list = Path(raw_list(tmp_path, server, few))
        lines = data_list.read_text().splitlines()
        write_list(data_list, [*lines[:2], '{"key": "broken', *lines[2:]])
        assert open_list(str(data_list), "raw").bad[0][0] == f"{data_list}:3"
        assert keys_read(keep_going(str(data_list), "raw")) == sorted(line.key for line in few)
