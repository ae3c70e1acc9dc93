"""Where the bytes are: local paths, file:// and remote stores look the same from here on.

Remote objects are read through the node's cache (cache.py); where it has no room they are read directly.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from wenet_uio.dataset.storage import cache, cache_space
from wenet_uio.dataset.storage.cache_space import CacheFullError
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.transports import driver
from wenet_uio.dataset.storage.versions import DriverError, Version, shown

PACKED = (".tar.gz", ".tgz")
"""What is unpacked before it is read."""
HELD_PATHS = 64
"""Copies that a process keeps from eviction because it was told their paths."""

_held: OrderedDict[str, BinaryIO] = OrderedDict()
_held_lock = threading.Lock()
os.register_at_fork(after_in_child=_held.clear)


def is_remote(uri: str | Path) -> bool:
    """Whether `uri` is in a remote store: neither a local path nor file://."""
    return "://" in str(uri) and not str(uri).startswith("file://")


def is_plain(uri: str | Path) -> bool:
    """Whether `uri` is a local file that is read as it is: neither remote nor packed."""
    return not is_remote(uri) and not _is_packed(str(uri))


def local_path(uri: str | Path) -> str:
    """Path of a local file with the whole contents: itself, or its copy, fetched and unpacked where it has to be.

    A copy stays where it is until this process has asked for 64 others.

    Raises:
        OSError: it cannot be had.
    """
    if is_plain(uri):
        return without_scheme(uri)
    file = open_whole(uri)
    with _held_lock:
        _held.pop(file.name, None)
        _held[str(file.name)] = file
        while len(_held) > HELD_PATHS:
            _held.popitem(last=False)[1].close()
    return str(file.name)


@contextmanager
def held_path(uri: str | Path) -> Iterator[str]:
    """The same, for as long as the block lasts."""
    with open_whole(uri) as file:
        yield str(file.name)


def open_whole(uri: str | Path, version: Version | None = None) -> BinaryIO:
    """Open a local file with the whole contents; while it is open, a copy is not evicted.

    Raises:
        OSError: it cannot be had, or is not of that version.
    """
    path = without_scheme(uri)
    if is_plain(path):
        return open(path, "rb")
    if not _is_packed(path):
        return cache.fetch(path, version)
    found = version or current_version(path)
    return cache.unpacked(path, found, lambda: cache.fetch(path, found) if is_remote(path) else open(path, "rb"))


def open_present(uri: str, version: Version) -> BinaryIO | None:
    """The same without fetching what is remote and not packed; None where there is no copy of that version."""
    return cache.copy_of(uri, version) if is_remote(uri) and not _is_packed(uri) else open_whole(uri, version)


def read_bytes(uri: str | Path) -> bytes:
    """The whole contents.

    Raises:
        OSError: it cannot be had.
    """
    try:
        with open_whole(uri) as file:
            return file.read()
    except CacheFullError:
        return read_range(str(uri), 0, None, Version(None))


def read_range(uri: str, start: int, end: int | None, version: Version) -> bytes:
    """Bytes `start` up to `end` (None: to the end) of a remote object, past the cache.

    Raises:
        OSError: they cannot be had, or the object is not of that version.
    """
    data = bytearray()
    cache.remembering(uri, lambda: transfer(uri, data.extend, start, end, version))
    return bytes(data)


def check_cache() -> None:
    """Raises: OSError, ValueError: the cache is nowhere to write to, or its bound is no number."""
    root = cache.directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise OSError(f"{root}: the cache cannot be written ({error}); set WENET_UIO_CACHE") from None
    cache_space.bound(0, 0)


def exists(uri: str | Path) -> bool:
    """Whether there is such a file or object.

    Raises:
        StorageError: its store cannot be reached.
    """
    path = without_scheme(uri)
    if not is_remote(path):
        return os.path.exists(path)
    try:
        version_of(path)
    except FileNotFoundError:
        return False
    return True


def current_version(uri: str | Path, kept: float = cache.VERSION_KEPT) -> Version:
    """What tells this state of a file or object from the next; of a remote one, as of `kept` seconds ago at most.

    Raises:
        OSError: there is no such file or object, or it cannot be had.
    """
    path = without_scheme(uri)
    if is_remote(path):
        return cache.current_version(path, kept)
    status = os.stat(path)
    return Version(status.st_size, str(status.st_mtime_ns))


def beside(uri: str, suffix: str) -> str:
    """URI of an object whose name is longer by `suffix`; a signature is left behind, as it is for one name only."""
    return without_scheme(uri).partition("?")[0] + suffix if is_remote(uri) else without_scheme(uri) + suffix


def matches(pattern: str) -> list[str]:
    """URIs of the remote objects that a glob matches, sorted.

    Raises:
        DriverError: the store cannot list.
    """
    scheme = pattern.partition("://")[0]
    if scheme in ("http", "https", "ais"):
        raise DriverError(f"{shown(pattern)}: {scheme} cannot list; write a range such as {{000..511}} instead")
    filesystem, path = driver(pattern)
    start = pattern[: len(pattern) - len(path.lstrip("/"))] if pattern.endswith(path.lstrip("/")) else f"{scheme}://"
    return [start + found.lstrip("/") for found in sorted(filesystem.glob(path))]


def _is_packed(uri: str) -> bool:
    return uri.partition("?")[0].endswith(PACKED) if is_remote(uri) else uri.endswith(PACKED)


def without_scheme(uri: str | Path) -> str:
    """A local path as the system knows it; remote URIs stay as they are."""
    text = str(uri)
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text
