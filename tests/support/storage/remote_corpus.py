"""Write lists of remote objects, read all their batches, and check what is left afterwards."""

import gc
import multiprocessing
import os
import time
from functools import cache
from pathlib import Path

import psutil
import torch

from tests.support.data.loading import loader
from wenet_uio.dataset.corpus.open_list import open_list

SHARDS = "shards_{000000000..000000003}.tar"
CONF = {"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 800}, "speed_perturb": True}


def write_list(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def shard_list(tmp_path, server, name=SHARDS):
    return write_list(tmp_path / "remote.list", [f"{server.url}/{name}"])


def indexed_list(tmp_path, server, cache_folder):
    """A shard list with its index; the cache is empty."""
    data_list = shard_list(tmp_path, server)
    open_list(data_list, "shard")
    for path in cache_folder.rglob("*.tar"):
        path.unlink()
    return data_list


def environment():
    """The environment of a process that imports this checkout."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def batches_of(data_list, data_type="shard", workers=0):
    one = loader(data_list, data_type, conf=CONF, num_workers=workers)
    try:
        return list(one)
    finally:
        if one.prefetch:
            one.prefetch.close()


@cache
def batches_of_local(data_list):
    """The batches of a shard list of local files, which are read once."""
    return batches_of(data_list)


def assert_same_batches(found, expected):
    assert [batch.keys for batch in found] == [batch.keys for batch in expected]
    assert all(
        torch.equal(left.feats, right.feats) for left, right in zip(found, expected, strict=True)
    )
    assert not any(batch.skipped for batch in found)


def keys_read(batches):
    return sorted(key for batch in batches for key in batch.keys)


def ledger(batches):
    return {sample.key: sample.reason for batch in batches for sample in batch.skipped}


EARLIER_CHILDREN: set[int] = set()
"""Processes that tests before this one have left, as zombies perhaps."""


def note_children():
    """Note the processes that tests before this one have left."""
    EARLIER_CHILDREN.clear()
    EARLIER_CHILDREN.update(child.pid for child in psutil.Process().children())


def assert_nothing_is_left(cache_folder):
    """Check that the cache has no temporary file, and that this test has left no zombie child."""
    assert [path for path in cache_folder.rglob("*") if path.suffix in (".part", ".tmp")] == []
    if not psutil.Process().children():
        return
    gc.collect()  # ends the workers of loaders that are no longer used
    # reaps those workers of earlier tests that torch ended without waiting for them
    multiprocessing.active_children()
    wait_until(
        lambda: (
            psutil.STATUS_ZOMBIE
            not in [
                child.status()
                for child in psutil.Process().children()
                if child.pid not in EARLIER_CHILDREN
            ]
        )
    )


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
