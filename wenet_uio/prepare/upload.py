"""Upload shards to object storage in parallel, except those that are there already."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from wenet_uio.base.executor import Executor
from wenet_uio.base.files import digest_of, written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage.driver_store import driver, version_of_info
from wenet_uio.dataset.storage.objects import is_remote
from wenet_uio.dataset.storage.settings import describe_store
from wenet_uio.dataset.storage.versions import DriverError, StorageError

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
    uri = f"{_store_folder(target)}/.trial-{uuid4().hex}"
    with _name_uri(target):
        store, name = driver(uri)
        store.pipe_file(name, b"")
        with suppress(OSError):  # shards can be uploaded without permission to remove objects
            store.rm(name)


def put_shards(
    data_list: str, target: str, remote_list: str, executor: Executor
) -> tuple[int, int]:
    """Copy local shards of a list and their indexes below `target`, and write the remote list.

    `target` is such as s3://bucket/folder.

    A file is skipped if the store has an object of the same content, whatever the clocks say: the
    store tells the MD5 of the object, or `REMOTE_LIST.uploaded.json`, which earlier runs wrote,
    says that this content was copied and the object has not changed since.

    Returns:
        the number of shards, and how many of them were copied.

    Raises:
        ListError: two shards have the same file name, or `target` is not a URI.
        DriverError, StorageError: as of `try_store`.
    """
    shards = read_shard_list(data_list)
    uris = [f"{_store_folder(target)}/{Path(shard).name}" for shard in shards]
    if len(set(uris)) < len(uris):
        raise ListError(
            f"{data_list}: two shards have the same file name; upload them as separate lists, each "
            "to its own folder"
        )

    record = Path(f"{remote_list}.uploaded.json")
    uploads = _read_record(record)
    jobs: list[_ShardUpload] = []
    for shard, uri in zip(shards, uris, strict=True):
        index_uri = f"{uri}.idx"
        earlier = {uri: uploads.get(uri), index_uri: uploads.get(index_uri)}
        jobs.append(_ShardUpload(shard, uri, earlier))

    copied = 0
    try:
        results = executor.map(_put_shard, jobs, "upload", len(jobs), unit="shard")
        for was_copied, uploads_of_shard in results:
            copied += was_copied
            uploads |= uploads_of_shard
    finally:
        with written_aside(record, "w") as file:
            json.dump(uploads, file, indent=1)

    with written_aside(remote_list, "w") as file:
        file.writelines(f"{uri}\n" for uri in uris)

    return len(uris), copied


class _Upload(NamedTuple):
    """A file that was copied, and the object that it became."""

    md5: str
    """Hexadecimal digest of the file."""
    tag: str
    """As of `Version`, of the object."""


class _ShardUpload(NamedTuple):
    """A shard to copy."""

    shard: str
    uri: str
    uploads: Mapping[str, _Upload | None]
    """What earlier runs have recorded of the shard and its index, by URI."""


def _read_record(path: Path) -> dict[str, _Upload]:
    """Read what earlier runs have copied. Without the record more is compared or copied."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {uri: _Upload(*map(str, upload)) for uri, upload in values.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        print(f"{path}: damaged, and made again", file=sys.stderr)
        return {}


def _store_folder(target: str) -> str:
    """Return a URI of a folder without a slash at its end; raise ListError if it is no URI."""
    folder = target.rstrip("/")
    if not is_remote(folder):
        raise ListError(f"{target!r}: expected a folder in a store, such as s3://bucket/folder")
    return folder


def _put_shard(job: _ShardUpload) -> tuple[bool, dict[str, _Upload]]:
    """Copy a shard and its index; return whether the shard was copied, and the uploads by URI."""
    index = f"{job.uri}.idx"
    _, upload_of_index = _put_file(str(sidecar_of(job.shard)), index, job.uploads[index])
    was_copied, upload = _put_file(job.shard, job.uri, job.uploads[job.uri])
    return was_copied, {job.uri: upload, index: upload_of_index}


def _put_file(path: str, uri: str, earlier: _Upload | None) -> tuple[bool, _Upload]:
    """Copy a file unless the store has it; return whether it was copied, and what the store has.

    Args:
        earlier: the record of an earlier run; None if there is none.
    """
    md5 = digest_of(path, "md5")
    with _name_uri(uri):
        store, name = driver(uri, ATTEMPTS)
        if store.exists(name):
            info = store.info(name)
            upload = _Upload(md5, version_of_info(info).tag)
            has_size = info["size"] == Path(path).stat().st_size
            # Either the store tells the MD5, or its object is still the one that was copied.
            has_content = _stored_md5(info) == md5 or earlier == upload
            if has_size and has_content:
                return False, upload

        store.put_file(path, name)
        return True, _Upload(md5, version_of_info(store.info(name)).tag)


def _stored_md5(info: Mapping[str, Any]) -> str:
    """Return the MD5 that a store tells of an object; empty if it does not.

    The entity tag of S3 is the MD5 of an object that was uploaded in one part.
    """
    tag = str(info.get("ETag") or "").strip('"').lower()
    if re.fullmatch("[0-9a-f]{32}", tag):
        return tag

    # Google Cloud Storage has a field of its own.
    try:
        return base64.b64decode(info.get("md5Hash") or "", validate=True).hex()
    except (ValueError, TypeError):
        return ""


@contextmanager
def _name_uri(uri: str) -> Iterator[None]:
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
