"""The process that downloads ahead: it follows its loader, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.data.loading import loader
from tests.support.storage.remote_corpus import (
    assert_nothing_is_left,
    batches_of_local,
    environment,
    indexed_list,
    keys_read,
    ledger,
    wait_until,
)
from tests.support.storage.servers import serving
from wenet_uio.base.files import Lock, lock
from wenet_uio.dataset.storage import cache
from wenet_uio.dataset.storage.prefetch import Prefetch


@pytest.fixture
def prefetch():
    prefetch = Prefetch()
    yield prefetch
    prefetch.close()


def uris_of(server):
    return [f"{server.url}/shards_00000000{number}.tar" for number in range(4)]


def is_held(cache_folder, contents):
    """Whether the copy with these contents is complete and protected from eviction."""
    for path in cache_folder.rglob("*.tar"):
        if path.read_bytes() == contents:
            with open(path, "rb") as file:
                return lock(file, wait=False) is Lock.OTHERS
    return False


def is_running(number):
    """Whether a process runs; one that has ended and waits to be reaped by the system does not."""
    return psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE


def test_objects_are_held_from_want_to_drop(store, cache_folder, prefetch):
    with serving(store) as server:
        first, second, *_ = uris_of(server)
        contents = [(store / f"shards_00000000{number}.tar").read_bytes() for number in range(2)]
        assert prefetch.process_id is None
        prefetch.want("a", "shards", [(first, None)])
        prefetch.want("a", "shards", [(second, None)])  # the name is in use
        prefetch.want("b", "files", [(second, cache.current_version(second))])
        wait_until(lambda: all(is_held(cache_folder, part) for part in contents))
        prefetch.drop("a")
        wait_until(lambda: not is_held(cache_folder, contents[0]))
        assert is_held(cache_folder, contents[1])
        prefetch.drop_all()
        wait_until(lambda: not is_held(cache_folder, contents[1]))
        assert server.requests[f"/{first.rpartition('/')[2]}"] == 1


@pytest.mark.parametrize("end", ["close", "SIGTERM"])
def test_a_process_that_ends_during_downloads_leaves_no_partial_files(
    end, store, cache_folder, prefetch
):
    with serving(store, fault=lambda path, number: "stall") as server:
        prefetch.want("all", "shards", [(uri, None) for uri in uris_of(server)])
        wait_until(lambda: len(list(cache_folder.rglob("*.part"))) == 4)
        process = prefetch.process_id
        if end == "SIGTERM":
            os.kill(process, signal.SIGTERM)
        prefetch.close()
        assert not is_running(process)
    assert_nothing_is_left(cache_folder)


def test_a_forked_child_does_not_end_the_process(store, prefetch):
    with serving(store) as server:
        prefetch.want("first", "shards", [(uris_of(server)[0], None)])
        child = os.fork()
        if not child:
            prefetch.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert is_running(prefetch.process_id)


def test_killing_the_prefetch_process_loses_no_samples(tmp_path, store, local, cache_folder):
    with serving(store, fault=lambda path, number: "slow") as server:
        data_list = indexed_list(tmp_path, server, cache_folder)
        one = loader(
            data_list, "shard", conf={"batch_conf": {"batch_type": "static", "batch_size": 10}}
        )
        batches = []
        for batch in one:
            if not batches:
                first = one.prefetch.process_id
                os.kill(first, signal.SIGKILL)
            batches.append(batch)
        one.set_epoch(0)
        batches_again = list(one)
        assert one.prefetch.process_id != first
        one.prefetch.close()
    assert keys_read(batches) == keys_read(batches_again) == keys_read(batches_of_local(local))
    assert ledger(batches) == {}
    assert_nothing_is_left(cache_folder)


def test_the_prefetch_process_ends_when_its_loader_is_killed(store):
    script = """
import sys
from wenet_uio.dataset.storage.prefetch import Prefetch
prefetch = Prefetch()
prefetch.want("first", "shards", [(sys.argv[1], None)])
print(prefetch.process_id, flush=True)
sys.stdin.read()
"""
    with serving(store) as server:
        command = [sys.executable, "-c", script, f"{server.url}/shards_000000000.tar"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        prefetching = int(process.stdout.readline())
        assert psutil.pid_exists(prefetching)
        process.kill()
        process.communicate(timeout=60)
        wait_until(lambda: not is_running(prefetching))


def test_the_prefetch_process_starts_without_numpy_and_drivers():
    code = "import sys, wenet_uio.dataset.storage.prefetch; assert not {'numpy', 'fsspec'} & sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0
