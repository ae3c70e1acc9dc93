"""Shards brought to a store: whole, in parallel, and only those that are not there yet."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from wenet_uio.dataset.data_list import ListError, read_shard_list
from wenet_uio.dataset.shard import sidecar_of
from wenet_uio.executor import Executor
from wenet_uio.files import written_aside


def put_shards(data_list: str, target: str, remote_list: str, executor: Executor) -> tuple[int, int]:
    """Copy the local shards of a list and their indexes below `target` (s3://bucket/folder), and list their URIs.

    What has the same size there and is not older is kept, so that a run that was stopped goes on.

    Returns:
        how many shards there are, and how many of them were copied.

    Raises:
        ListError: the store's driver is not installed; two shards have one name.
    """
    shards = read_shard_list(data_list)
    uris = [f"{target.rstrip('/')}/{Path(shard).name}" for shard in shards]
    if len(set(uris)) < len(uris):
        raise ListError(f"{data_list}: two shards have one name; give each list a folder of its own")
    jobs = [(shard, uri) for shard, uri in zip(shards, uris, strict=True)]
    copied = sum(executor.map(_put_shard, jobs, "upload", len(jobs), unit="shard"))
    with written_aside(remote_list, "w") as file:
        file.writelines(f"{uri}\n" for uri in uris)
    return len(uris), copied


def _put_shard(job: tuple[str, str]) -> bool:
    shard, uri = job
    _put(str(sidecar_of(shard)), f"{uri}.idx")
    return _put(shard, uri)


def _put(path: str, uri: str) -> bool:
    """Copy a file unless it is there; gives whether it was copied."""
    import fsspec

    try:
        store, name = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise ListError(f"{uri}: {' '.join(str(error).split())}") from None
    status = os.stat(path)
    if store.exists(name) and store.size(name) == status.st_size:
        there, here = store.modified(name), int(status.st_mtime)  # stores date in whole seconds
        if there.replace(tzinfo=there.tzinfo or timezone.utc) >= datetime.fromtimestamp(here, timezone.utc):
            return False
    store.put_file(path, name)
    return True
