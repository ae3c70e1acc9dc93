"""Local paths, file:// and remote URIs behind one set of functions. Start here to read a file or an
object.

Remote objects are read through the cache of the node (`cache.py`); where the cache is full they are
read directly.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from wenet_uio.base.files import naming
from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage import cache, cache_space, containers
from wenet_uio.dataset.storage.cache_space import CacheFullError
from wenet_uio.dataset.storage.copies import PartFiles
from wenet_uio.dataset.storage.driver_store import driver
from wenet_uio.dataset.storage.settings import cache_folder, deadline
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.versions import NO_ROOM, DriverError, StorageError, Version

PACKED = (".tar.gz", ".tgz")
"""Names of archives that are unpacked into the cache before they are read; so are parts of
containers."""
HELD_PATHS = 64
"""Copies that `HeldPaths` protects from eviction."""


class HeldPaths:
    """Gives local paths of objects, and protects the last 64 copies it gave from eviction.

    A forked child protects its own copies only: it closes those of its parent when it asks for its
    first path.
    """

    def __init__(self) -> None:
        self._by_process: dict[int, tuple[threading.Lock, OrderedDict[str, BinaryIO]]] = {}

    def path_of(self, uri: str | Path) -> str:
        """Return the path of a local file with the whole contents: the file itself, or a copy that
        is downloaded and unpacked.

        A copy stays where it is until this object gave the paths of 64 others.

        Raises:
            OSError: the file or object cannot be read.
        """
        if is_plain(uri):
            return without_scheme(uri)

        file = open_whole(uri)
        lock, held = self._lock_and_files()
        with lock:
            held.pop(file.name, None)
            held[file.name] = file
            while len(held) > HELD_PATHS:
                held.popitem(last=False)[1].close()

        return file.name

    def _lock_and_files(self) -> tuple[threading.Lock, OrderedDict[str, BinaryIO]]:
        lock_and_files = self._by_process.setdefault(os.getpid(), (threading.Lock(), OrderedDict()))
        for process in set(self._by_process) - {os.getpid()}:
            self._by_process.pop(process, None)
        return lock_and_files


@lru_cache(1)
def shared_paths() -> HeldPaths:
    """Return the `HeldPaths` of all corpora of a process, so that a mixture of many corpora does
    not hold many more files.
    """
    return HeldPaths()


def is_remote(uri: str | Path) -> bool:
    """Tell whether `uri` is in a remote store: neither a local path nor file://."""
    return "://" in str(uri) and not str(uri).startswith("file://")


def is_plain(uri: str | Path) -> bool:
    """Tell whether `uri` is a local file that is read in place: neither remote nor packed."""
    return not is_remote(uri) and not is_packed(str(uri))


@contextmanager
def held_path(uri: str | Path, version: Version | None = None) -> Iterator[str]:
    """Yield the path of a local file with the whole contents, as `open_or_hold` opens it. It is
    valid until the end of the block.

    Raises:
        OSError: the file or object cannot be read, or has another version.
    """
    with open_or_hold(uri, version) as file:
        yield file.name if isinstance(file.name, str) else f"/dev/fd/{file.fileno()}"


def open_or_hold(uri: str | Path, version: Version | None = None) -> BinaryIO:
    """Open as `open_whole` does, for contents that are read once: where the cache is full, they are
    held in memory.

    Raises:
        OSError: the file or object cannot be read, or has another version.
    """
    try:
        return open_whole(uri, version)
    except CacheFullError:
        path = without_scheme(uri)

    stored = file_of(path)
    if is_remote(path):
        current, packed = version or current_version(path), _memory_file()
        cache.remembering(path, lambda: transfer(stored, packed.write, 0, current.size, current))
        packed.seek(0)
    else:
        packed = open(stored, "rb")  # noqa: SIM115 - closed below, or by the caller

    if not is_packed(path):
        return packed

    with packed:
        plain = _memory_file()
        _unpack_of(path)(packed, plain.write)

    plain.seek(0)
    return plain


def _unpack_of(path: str) -> Callable[[BinaryIO, Callable[[bytes], Any]], None]:
    """Return the function that passes the contents of a packed file, or of a part of a container,
    to another function.
    """
    part = containers.part_of(path)
    if part is None:
        return partial(cache.unpack_gzip, path)

    folder = part.container.partition("?")[0].rpartition("/")[0]

    def read_beside(name: str) -> bytes:
        """Read another file of the folder, such as the index.json of LitData."""
        return read_bytes(f"{folder}/{name}")

    def unpack(file: BinaryIO, write: Callable[[bytes], Any]) -> None:
        containers.unpack(part, file, write, read_beside)

    return unpack


def _memory_file() -> BinaryIO:
    """Return a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("object"), "w+b")
    return tempfile.TemporaryFile()


def open_whole(
    uri: str | Path, version: Version | None = None, parts: PartFiles | None = None
) -> BinaryIO:
    """Open a local file with the whole contents: the file itself, or a copy, which is not evicted
    while it is open.

    Args:
        version: the version that is wanted; None is the current one.
        parts: records partial downloads, for a process that may exit before they are complete.

    Raises:
        OSError: the file or object cannot be read, or has another version.
    """
    path = without_scheme(uri)
    if is_plain(path):
        return open(path, "rb")
    if not is_packed(path):
        return cache.fetch(path, version, parts)

    current, stored = version or current_version(path), file_of(path)

    def packed() -> BinaryIO:
        return cache.fetch(stored, current, parts) if is_remote(path) else open(stored, "rb")

    return cache.unpacked(path, current, packed, _unpack_of(path), parts)


def file_of(uri: str) -> str:
    """Return the file or object that is stored: `uri` itself, or the container of which it is a
    part.
    """
    part = containers.part_of(uri)
    return uri if part is None else part.container


def parts_of(uri: str) -> list[str]:
    """Return the shards that a file holds: the parts of a container (`x.parquet/0.tar`), or the
    file itself.

    Raises:
        OSError: a container cannot be read. DriverError: reading containers of this kind needs a
            package.
    """
    if not containers.kind_of(uri):
        containers.refuse_compressed(uri)
        return [uri]
    with open_or_hold(uri) as file:
        return containers.names_of_parts(without_scheme(uri), file)


def open_present(uri: str, version: Version) -> BinaryIO | None:
    """Open as `open_whole` does, without downloading: None if a remote object has no copy of that
    version.

    A packed object has no byte ranges to read instead, so it is downloaded all the same.
    """
    if is_remote(uri) and not is_packed(uri):
        return cache.copy_of(uri, version)
    return open_whole(uri, version)


def read_bytes(uri: str | Path) -> bytes:
    """Return the whole contents of a file or object.

    Raises:
        OSError: the file or object cannot be read.
    """
    with open_or_hold(uri) as file, naming(shown(uri)):
        return file.read()


def read_range(
    uri: str, start: int, end: int | None, version: Version, *, one_of_many: bool = False
) -> bytes:
    """Return bytes `start` up to `end` (None: to the end) of a remote object, read from the store
    without the cache.

    Args:
        one_of_many: as in `transfer`.

    Raises:
        OSError: the object cannot be read, or has another version.
    """
    data = bytearray()

    def read() -> None:
        transfer(uri, data.extend, start, end, version, one_of_many=one_of_many)

    cache.remembering(uri, read)
    return bytes(data)


def check_cache() -> None:
    """Check that the cache can be used, and that the variables of storage are valid.

    Raises:
        OSError: the folder cannot be written.
        ValueError: the maximum size is not a number of bytes, or the deadline is no time.
    """
    deadline()
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        if error.errno in NO_ROOM:
            return  # costs speed only
        raise OSError(
            f"{root}: the cache cannot be written ({error}); set WENET_UIO_CACHE to a folder that "
            "can"
        ) from None

    cache_space.bound(0, 0)


def exists(uri: str | Path) -> bool:
    """Tell whether a file or object exists.

    Raises:
        StorageError: the store cannot be reached.
    """
    path = without_scheme(uri)
    if not is_remote(path):
        return os.path.exists(path)  # noqa: PTH110 - Path.exists raises if a folder may not be entered

    try:
        version_of(path)
    except FileNotFoundError:
        return False

    return True


def current_version(
    uri: str | Path, kept: float = cache.VERSION_KEPT, *, asked: float | None = None
) -> Version:
    """Return the version of a file or object; that of a remote object may be up to `kept` seconds
    old.

    Args:
        asked: ask a store in any case, and wait for so many seconds.

    Raises:
        OSError: the file or object does not exist or cannot be read.
    """
    path = file_of(without_scheme(uri))
    if is_remote(path) and asked is not None:
        return cache.present_version(path, asked)
    if is_remote(path):
        return cache.current_version(path, kept)
    status = Path(path).stat()
    return Version(status.st_size, str(status.st_mtime_ns))


def beside(uri: str, suffix: str) -> str:
    """Return the URI with a suffix added to its name; a signature is removed, because it is valid
    for one name only.
    """
    path = without_scheme(uri)
    if is_remote(uri):
        path = path.partition("?")[0]
    return path + suffix


def matches(pattern: str) -> list[str]:
    """Return URIs of the remote objects that match a glob pattern, sorted.

    Raises:
        DriverError: the store cannot list its objects. StorageError: the store refuses or does not
            answer.
    """
    scheme = pattern.partition("://")[0]
    if scheme in ("http", "https", "ais"):
        raise DriverError(
            f"{shown(pattern)}: {scheme} cannot list; write a range such as {{000..511}} instead"
        )

    filesystem, path = driver(pattern)
    start = f"{scheme}://"
    if pattern.endswith(path.lstrip("/")):
        start = pattern[: len(pattern) - len(path.lstrip("/"))]
    try:
        names = sorted(filesystem.glob(path))
    except Exception as error:  # drivers raise errors of any type
        reason = " ".join(shown(error).split()) or type(error).__name__
        raise StorageError(f"{shown(pattern)}: cannot be listed: {reason}") from None

    return [start + name.lstrip("/") for name in names]


def without_scheme(uri: str | Path) -> str:
    """Return the path of a file:// URI; paths and remote URIs are returned unchanged."""
    text = str(uri)
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text


def is_packed(uri: str) -> bool:
    """Tell whether a file is unpacked into the cache before it is read."""
    name = uri.partition("?")[0] if is_remote(uri) else uri
    return name.endswith(PACKED) or containers.part_of(name) is not None
