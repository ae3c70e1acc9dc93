"""Space of the cache: bytes are reserved before they are written, and the least recently used
copies are evicted.

Only files that the cache made are removed, and never a file that is locked.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.files import Lock, lock
from wenet_uio.dataset.storage.checksums import SUFFIX, note_of
from wenet_uio.dataset.storage.settings import cache_bytes
from wenet_uio.dataset.storage.versions import StorageError

PART_KEPT = 86400.0
"""Seconds after which the partial file of a killed process is removed even if there is space."""
NOTE_KEPT = 86400.0
"""Seconds after which notes on versions and errors are removed; they are used for a shorter
time."""
SPARE = 1 << 26
"""Bytes of the disk that the cache never uses."""
COPY = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}(\.[A-Za-z0-9]{1,5})?")


class CacheFullError(StorageError):
    """The cache has no space, and nothing that may be evicted."""


class _Evictable(NamedTuple):
    """A file that may be removed if no process holds it. The order of the fields is the order of
    eviction.
    """

    used: float
    """Time of last use, in seconds since the epoch."""
    size: int
    path: str


def reserve(root: Path, size: int, part: str) -> None:
    """Count `size` bytes that will be written to the partial file `part` below `root`; evict copies
    to make space.

    Raises:
        CacheFullError: there is not enough space even after eviction.
    """
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "a+") as counter:
        lock(counter)
        counter.seek(0)
        text = counter.read()
        taken = int(text) if text.isdecimal() else None  # new or damaged: count again
        if taken is None or not _fits(root, taken, size):
            taken = _make_room(root, size, part)

        counter.truncate(0)
        counter.write(str(taken + size))


def bound(taken: int, free: int) -> int:
    """Return bytes that the cache may use: WENET_UIO_CACHE_BYTES, or half of what it uses and the
    disk has free together.

    Raises:
        ValueError: WENET_UIO_CACHE_BYTES is not a number of bytes.
    """
    configured = cache_bytes()
    return (taken + free) // 2 if configured is None else configured


def _fits(root: Path, taken: int, size: int) -> bool:
    """Tell whether `size` more bytes fit beside the `taken` bytes of the cache, and on its disk."""
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    most_taken = bound(taken, free)
    return taken + size <= most_taken and size + min(SPARE, most_taken) <= free


def _make_room(root: Path, size: int, part: str) -> int:
    """Evict the least recently used files until `size` more bytes fit; returns the bytes that
    remain in use.
    """
    taken, evictable = _count(root, part)
    slack = taken // 20  # so that a full cache is not counted again for every object
    for file in sorted(evictable):
        if _fits(root, taken, size + slack):
            break
        taken -= file.size if _removed(file.path, 0.0) else 0

    if not _fits(root, taken, size):
        raise CacheFullError(
            errno.ENOSPC,
            f"{root}: no space for {size} bytes, {taken} bytes are in use; see "
            "WENET_UIO_CACHE_BYTES",
        )

    return taken


def _count(root: Path, part: str) -> tuple[int, list[_Evictable]]:
    """Return bytes in use, and the files that may be evicted; removes files that are too old on the
    way.

    Of `part`, which the caller is writing, only the bytes already written count.
    """
    taken, evictable, used = 0, [], {}
    for entry in _entries(root):
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue
        if entry.path == part:
            taken += status.st_size
        elif entry.name.endswith((".version", ".failed")):
            _removed(entry.path, NOTE_KEPT)
        elif entry.name.endswith(SUFFIX):
            used[entry.path.removesuffix(SUFFIX)] = status.st_mtime
        elif COPY.fullmatch(entry.name):
            evictable.append(_Evictable(status.st_mtime, status.st_size, entry.path))
        elif entry.name.endswith(".part") and not _removed(entry.path, PART_KEPT):
            reserved = max(status.st_size, int(entry.name.split(".")[-2]))
            evictable.append(_Evictable(status.st_mtime, reserved, entry.path))

    for path in used.keys() - {file.path for file in evictable}:
        note_of(path).unlink(missing_ok=True)

    evictable = [file._replace(used=used.get(file.path, file.used)) for file in evictable]
    return taken + sum(file.size for file in evictable), evictable


def _entries(root: Path) -> Iterator[os.DirEntry]:
    for folder in os.scandir(root):
        if folder.is_dir():
            yield from os.scandir(folder.path)


def _removed(path: str, age: float) -> bool:
    """Remove a file unless it is locked or used less than `age` seconds ago; whether it is gone."""
    try:
        with open(path, "r+b") as file:
            held = lock(file, wait=False)
            if held is Lock.MISSING and path.endswith(".part"):
                age = max(age, PART_KEPT)  # another process may be writing to it

            if held is Lock.OTHERS or time.time() - os.fstat(file.fileno()).st_mtime < age:
                return False
            note_of(path).unlink(missing_ok=True)
            Path(path).unlink()
    except FileNotFoundError:
        pass
    except PermissionError:  # of another user
        return False
    return True
