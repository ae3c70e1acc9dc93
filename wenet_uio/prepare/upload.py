"""Upload shards to object storage in parallel, except those that are there already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage.driver_store import driver
from wenet_uio.dataset.storage.objects import is_remote
from wenet_uio.dataset.storage.settings import describe_store
from wenet_uio.dataset.storage.versions import DriverError, StorageError
from wenet_uio.executor import Executor
from wenet_uio.files import written_aside
from wenet_uio.uris import shown

ATTEMPTS = 5
"""Attempts of a request to S3, with growing pauses; other drivers have their own limits."""


def try_store(target: str) -> None:
    """Check that a folder of a store can be written: write an empty object, and remove it.

    Raises:
        ListError: `target` is not a URI.
        DriverError: its driver is not installed.
        StorageError: the store refuses; the message has its answer and the environment variables
            that it depends on.
    """
    uri = f"{_folder(target)}/.trial-{uuid4().hex}"
    with _told(target):
        store, name = driver(uri)
        store.pipe_file(name, b"")
        with suppress(OSError):  # shards can be uploaded without permission to remove objects
            store.rm(name)


def put_shards(
    data_list: str, target: str, remote_list: str, executor: Executor
) -> tuple[int, int]:
    """Copy local shards of a list and their indexes below `target`, and write the remote list.

    `target` is such as s3://bucket/folder.

    A file is skipped if the store has an object of the same size that is not older. So a repeated
    run copies what is missing or newer.

    Returns:
        the number of shards, and how many of them were copied.

    Raises:
        ListError: two shards have the same file name, or `target` is not a URI.
        DriverError, StorageError: as of `try_store`.
    """
    shards = read_shard_list(data_list)
    uris = [f"{_folder(target)}/{Path(shard).name}" for shard in shards]
    if len(set(uris)) < len(uris):
        raise ListError(
            f"{data_list}: two shards have the same file name; upload them as separate lists, each "
            "to its own folder"
        )

    jobs = [(shard, uri) for shard, uri in zip(shards, uris, strict=True)]
    copied = sum(executor.map(_put_shard, jobs, "upload", len(jobs), unit="shard"))
    with written_aside(remote_list, "w") as file:
        file.writelines(f"{uri}\n" for uri in uris)

    return len(uris), copied


def _folder(target: str) -> str:
    folder = target.rstrip("/")
    if not is_remote(folder):
        raise ListError(f"{target!r}: expected a folder in a store, such as s3://bucket/folder")
    return folder


def _put_shard(job: tuple[str, str]) -> bool:
    """Copy a shard and its index; return whether the shard was copied."""
    shard, uri = job
    _put(str(sidecar_of(shard)), f"{uri}.idx")
    return _put(shard, uri)


def _put(path: str, uri: str) -> bool:
    """Copy a file unless the store has it; return whether it was copied."""
    status = Path(path).stat()
    with _told(uri):
        store, name = driver(uri, ATTEMPTS)
        if store.exists(name) and store.size(name) == status.st_size:
            remote_time = _modified(store, name)
            remote_time = remote_time.replace(tzinfo=remote_time.tzinfo or timezone.utc)
            # Stores date in whole seconds.
            local_time = datetime.fromtimestamp(int(status.st_mtime), timezone.utc)
            if remote_time >= local_time:
                return False

        store.put_file(path, name)
        return True


def _modified(store: Any, name: str) -> datetime:
    """Return when an object was written.

    ossfs gives seconds since the epoch, and takes them for local time in `modified`.
    """
    last_modified = store.info(name).get("LastModified")
    if isinstance(last_modified, int):
        return datetime.fromtimestamp(last_modified, timezone.utc)
    return store.modified(name)


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """Turn any exception of a driver into a StorageError of one line that names the URI."""
    try:
        yield
    except DriverError:
        raise
    except Exception as error:
        reason = " ".join(shown(error).split()) or type(error).__name__
        variables = describe_store(uri.partition("://")[0])
        environment_hint = f"; in the environment: {variables}" if variables else ""
        raise StorageError(f"{shown(uri)}: cannot be written: {reason}{environment_hint}") from None
