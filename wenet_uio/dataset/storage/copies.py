"""Files of the cache that several processes share: each is written once, and is either complete or
absent.

Locks are taken with flock. The system releases them when their process dies.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from wenet_uio.base.files import Lock, is_at, lock
from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.cache_space import CacheFullError, reserve
from wenet_uio.dataset.storage.checksums import (
    checksum_of,
    is_intact,
    mark_used,
    note,
    note_of,
)
from wenet_uio.dataset.storage.settings import deadline
from wenet_uio.dataset.storage.versions import NO_ROOM, StorageError

log = logging.getLogger(__name__)

STEP = 1 << 26
"""Bytes that are reserved at a time where the final length is not known."""
WAIT_FOR_BEGIN = 1.0
"""Seconds that `PartFiles.abandon` waits for a file that is just being opened."""


class PartFiles:
    """The partial files that a process is writing, so that it can remove them if it exits before
    they are complete.
    """

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._beginning = threading.Lock()

    def begin(self, path: Path) -> BinaryIO | None:
        """Open a partial file under an exclusive lock; None while another process or thread holds
        the lock.

        Where the file system has no locks, the file has a name of its own, and two processes may
        write the same copy.
        """
        with self._beginning:
            file = _open_locked(path)
            if file is not None:
                self._paths.add(Path(file.name))
            return file

    def end(self, path: Path) -> None:
        """Remove a partial file if it is still there, and forget it; a complete one was renamed."""
        path.unlink(missing_ok=True)
        self._paths.discard(path)

    def abandon(self) -> None:
        """Remove all partial files, just before the process exits; `begin` blocks from now on."""
        self._beginning.acquire(timeout=WAIT_FOR_BEGIN)
        for path in list(self._paths):
            path.unlink(missing_ok=True)


class SpaceWriter:
    """Writes to a partial file after reserving space for the bytes, step by step where their number
    is not known.
    """

    def __init__(self, file: BinaryIO, root: Path, size: int) -> None:
        """Reserve `size` bytes in the cache at `root`; 0 if the size is not known.

        Raises:
            CacheFullError: no space, here and in `write`.
        """
        self._file, self._root, self._reserved = file, root, 0
        self._reserve(size)

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        if self._reserved < len(data):
            self._reserve(max(STEP, len(data)))

        self._reserved -= len(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _reserve(self, size: int) -> None:
        if size:
            reserve(self._root, size, self._file.name)
            self._reserved += size


def open_copy(path: Path, uri: str, size: int | None, *, whole: bool = False) -> BinaryIO | None:
    """Open a complete copy under a shared lock, which protects the copy from eviction; None if
    there is none.

    A damaged copy is removed, with a warning. A memory mapping of the file keeps the lock after the
    file is closed.

    Args:
        uri: object of the copy, for messages.
        size: bytes of the copy; None if not known.
        whole: compare the contents with their checksum, once a process; otherwise only if the copy
            has changed.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None

    lock(file, shared=True)
    if not is_at(file, path):  # evicted before it was locked
        file.close()
        return None

    if not is_intact(file, path, size, whole=whole):
        log.warning("%s: its copy %s is damaged and is removed", shown(uri), path)
        if is_at(file, path):
            # The copy first: a process that has it open must not find it without its note.
            path.unlink(missing_ok=True)
            note_of(path).unlink(missing_ok=True)

        file.close()
        return None

    mark_used(path)
    return file


def make_copy(
    path: Path,
    size: int | None,
    make: Callable[[BinaryIO], None],
    uri: str,
    parts: PartFiles | None = None,
) -> BinaryIO:
    """Open the copy at `path`; where it is missing, one process makes it and the others wait.

    Args:
        size: bytes of the copy; None if not known.
        make: writes the copy into a partial file, which may hold the bytes that a killed process
            wrote.
        uri: object of the copy, for messages.
        parts: records the partial file, for a process that may exit before the copy is complete.

    Raises:
        CacheFullError: no space for the copy.
        StorageError: another process holds the partial file and makes no progress; and the errors
            of `make`.
    """
    part, parts = Path(f"{path}.{size or 0}.part"), parts or PartFiles()
    progress_of_other = _Progress(part, uri)
    while True:
        if copy := open_copy(path, uri, size, whole=True):
            return copy

        with _full_disk_is_full_cache(path):
            file = parts.begin(part)

        if file is None:  # another process makes the copy
            progress_of_other.wait()
            continue

        with file:
            try:
                if not path.exists():
                    _complete(file, path, make)
            finally:
                parts.end(Path(file.name))


def _complete(file: BinaryIO, path: Path, make: Callable[[BinaryIO], None]) -> None:
    """Write a partial file to its end and rename it."""
    with _full_disk_is_full_cache(path):
        make(file)
        os.fsync(file.fileno())
        checksum = checksum_of(file)
        Path(file.name).replace(path)
        note(file, path, checksum)


@contextmanager
def _full_disk_is_full_cache(path: Path) -> Iterator[None]:
    """Raise CacheFullError, not the error of the system, if the disk has no room for the file
    at `path`.
    """
    try:
        yield
    except CacheFullError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise CacheFullError(
                errno.ENOSPC, f"{path.parent.parent}: {os.strerror(error.errno)}"
            ) from None
        raise


class _Progress:
    """Waits for another process that writes a partial file, as long as the file grows."""

    def __init__(self, part: Path, uri: str) -> None:
        self._part, self._uri, self._size = part, uri, -1
        self._until = time.monotonic() + 2 * deadline()

    def wait(self) -> None:
        """Sleep for a moment.

        Raises:
            StorageError: the file has not grown for two deadlines.
        """
        try:
            size = self._part.stat().st_size
        except FileNotFoundError:
            size = self._size

        if size > self._size:
            self._size, self._until = size, time.monotonic() + 2 * deadline()
        elif time.monotonic() > self._until:
            raise StorageError(
                f"{shown(self._uri)}: another process holds {self._part} and makes no progress"
            )

        time.sleep(0.05)


def _open_locked(path: Path) -> BinaryIO | None:
    """Open a file for reading and writing under an exclusive lock; None if another owner has the
    lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _opened(path)
    held = lock(file, wait=False)
    if held is Lock.OURS and is_at(file, path):
        return file

    file.close()
    if held is not Lock.MISSING:
        return None

    path.unlink(missing_ok=True)
    stem, size, _ = path.name.rsplit(".", 2)
    return _opened(path.with_name(f"{stem}.{os.urandom(6).hex()}.{size}.part"))


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading and writing; create it if it is missing."""
    return open(
        path,
        "r+b",
        buffering=0,
        opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666),
    )
