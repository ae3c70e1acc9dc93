"""The node's cache of whole objects: each is fetched once a node, and is whole or not there.

    aa/<uri>-<version>.tar             a copy; readers hold a shared lock on it, and what is locked is not evicted
    aa/<uri>-<version>.tar.<size>.part a copy on its way, locked by its writer; the next goes on with what one left
    aa/<uri>.version                   what the store said last about an object; believed for an hour
    aa/<uri>.failed                    why an object could not be had; believed for two deadlines
    lock                               held while space is reserved; its text is the bytes reserved so far

Locks are flock's, which die with their owner.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import BinaryIO

from wenet_uio.dataset.storage.cache_space import CacheFullError, reserve
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.versions import ChangedError, StorageError, Version, deadline, shown
from wenet_uio.files import written_aside

VERSION_KEPT = 3600.0
"""Seconds for which a version is believed without asking again."""
STEP = 1 << 26
"""Bytes that are reserved at a time where the length is not known."""
SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")


_parts: set[Path] = set()
"""What this process is writing."""
_begins = threading.Lock()
"""Held while a part is begun."""


def directory() -> Path:
    """The cache's own folder: below WENET_UIO_CACHE, NEMO_DATA_STORE_CACHE_DIR or ~/.cache/wenet_uio."""
    names = ("WENET_UIO_CACHE", "NEMO_DATA_STORE_CACHE_DIR")
    given = next((os.environ[name] for name in names if os.environ.get(name)), Path.home() / ".cache" / "wenet_uio")
    return Path(given) / "uio1"


def copy_of(uri: str, version: Version) -> BinaryIO | None:
    """The cached copy, kept from eviction while it is open; None where there is none."""
    return _hold(_path(uri, version))


def fetch(uri: str, version: Version | None = None) -> BinaryIO:
    """The same, fetched first where it is missing; of several processes one does it, the others wait.

    Raises:
        CacheFullError: there is no room for it.
        FileNotFoundError, PermissionError, StorageError: it cannot be had.
    """
    found = version or current_version(uri)
    try:
        return _made(_path(uri, found), found.size, lambda file: _download(uri, found, file), uri)
    except ChangedError:
        if version is not None:
            raise
        found = current_version(uri, kept=0.0)  # it changed since we asked
        return _made(_path(uri, found), found.size, lambda file: _download(uri, found, file), uri)


def unpacked(uri: str, version: Version, packed: Callable[[], BinaryIO]) -> BinaryIO:
    """The unpacked contents of a gzip file that `packed` opens; where it breaks off, what comes before that."""

    def unpack(file: BinaryIO) -> None:
        file.truncate(0)
        writer = _Writer(file, 0)
        with packed() as source, gzip.open(source) as plain:
            try:
                while chunk := plain.read1(1 << 20):
                    writer.write(chunk)
            except (EOFError, gzip.BadGzipFile, zlib.error):
                return

    return _made(_path(f"{uri}\nunpacked", version, ".tar"), None, unpack, uri)


def abandon() -> None:
    """Remove what this process has half written, as it is about to exit; nothing is begun after this."""
    _begins.acquire(timeout=1)
    for part in list(_parts):
        part.unlink(missing_ok=True)


def current_version(uri: str, kept: float = VERSION_KEPT) -> Version:
    """The version of a remote object, asked for unless that was done on this node within `kept` seconds.

    Raises:
        FileNotFoundError, PermissionError, StorageError: it cannot be had.
    """
    path = _named(uri, ".version")
    if _age(path) < kept:
        return Version(*json.loads(path.read_text()))
    version = remembering(uri, lambda: version_of(uri))
    with written_aside(path, "w") as file:
        json.dump(astuple(version), file)
    return version


def remembering(uri: str, read: Callable):
    """Read from a store, unless that failed a short while ago; a failure is remembered on the node.

    One object that is gone costs one deadline, however many samples it holds.
    """
    path = _named(uri, ".failed")
    run = os.getpgrp()  # what failed in an earlier run may have been mended
    if _age(path) < 2 * deadline():
        failure = json.loads(path.read_text())
        if failure["run"] == run:
            raise StorageError(failure["error"])
    try:
        return read()
    except (CacheFullError, ChangedError):
        raise
    except (StorageError, FileNotFoundError, PermissionError) as error:
        with written_aside(path, "w") as file:
            json.dump({"run": run, "error": str(error)}, file)
        raise


def _download(uri: str, version: Version, file: BinaryIO) -> None:
    start = file.seek(0, os.SEEK_END)
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    known = version.tag and version.size is not None
    if not known or start > version.size or os.fstat(file.fileno()).st_mtime < booted:
        start = file.seek(0)  # after a power cut a file may be long enough and hold nothing
    file.truncate(start)
    writer = _Writer(file, 0 if version.size is None else version.size - start)
    transfer(uri, writer.write, start, version.size, version)
    if version.md5:
        file.seek(0)
        found = hashlib.md5(usedforsecurity=False)
        while chunk := file.read(1 << 20):
            found.update(chunk)
        if found.hexdigest() != version.md5:
            raise StorageError(f"{shown(uri)}: its MD5 is {found.hexdigest()}, the store says {version.md5}")


class _Writer:
    """Writes what there is space reserved for, reserving more where the length was not known."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._reserved = file, 0
        self._reserve(size)

    def write(self, data: bytes) -> None:
        if self._reserved < len(data):
            self._reserve(max(STEP, len(data)))
        self._reserved -= len(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _reserve(self, size: int) -> None:
        if size:
            reserve(directory(), size, self._file.name)
            self._reserved += size


def _made(path: Path, size: int | None, make: Callable[[BinaryIO], None], uri: str) -> BinaryIO:
    """The file at `path`, made by `make` under the lock of its part."""
    part = Path(f"{path}.{size or 0}.part")
    grown, until = -1, time.monotonic() + 2 * deadline()
    while True:
        if copy := _hold(path):
            return copy
        with _begins:
            file = _lock(part)
            if file is not None:
                _parts.add(part)
        if file is None:
            now = part.stat().st_size if part.exists() else grown
            if now > grown:
                grown, until = now, time.monotonic() + 2 * deadline()
            elif time.monotonic() > until:
                raise StorageError(f"{shown(uri)}: another process holds {part} and does nothing")
            time.sleep(0.05)
            continue
        with file:
            try:
                if not path.exists():
                    remembering(uri, lambda file=file: make(file))
                    os.fsync(file.fileno())
                    os.replace(part, path)
            except CacheFullError:
                raise
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise CacheFullError(errno.ENOSPC, f"{path.parent.parent}: {os.strerror(error.errno)}") from None
                raise
            finally:
                part.unlink(missing_ok=True)
                _parts.discard(part)


def _hold(path: Path) -> BinaryIO | None:
    """Open a copy under a shared lock, which a mapping of it keeps."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    fcntl.flock(file, fcntl.LOCK_SH)
    if not _is_at(file, path):  # evicted meanwhile
        file.close()
        return None
    os.utime(file.fileno())
    return file


def _lock(path: Path) -> BinaryIO | None:
    """Open a file for writing under an exclusive lock; None where another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "r+b", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not _is_at(file, path):
        file.close()
        return None
    return file


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _named(uri: str, suffix: str) -> Path:
    name = hashlib.blake2b(uri.encode(), digest_size=16).hexdigest()
    return directory() / name[:2] / (name + suffix)


def _path(uri: str, version: Version, suffix: str = "") -> Path:
    state = hashlib.blake2b(repr((version.size, version.tag)).encode(), digest_size=8).hexdigest()
    found = SUFFIX.search(uri.split("?")[0])
    return _named(uri, f"-{state}{suffix or (found[0].lower() if found else '')}")
