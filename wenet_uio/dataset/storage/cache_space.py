"""Room in the cache: bytes are reserved before they are written, and copies evicted, those used longest ago first.

Only files that the cache made are ever removed, and never one that is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from wenet_uio.dataset.storage.versions import StorageError

PART_KEPT = 86400.0
"""Seconds after which what a killed run left is removed even where there is room."""
NOTE_KEPT = 86400.0
"""Seconds after which notes on versions and failures are removed; nobody believes them for as long."""
SPARE = 1 << 26
"""Bytes of the disk that are never taken."""
COPY = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}(\.[A-Za-z0-9]{1,5})?")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheFullError(StorageError):
    """No room, and nothing that may be evicted."""


def reserve(root: Path, size: int, part: str) -> None:
    """Take note of bytes about to be written to the file `part` below `root`, evicting where they do not fit.

    Raises:
        CacheFullError: they do not fit however much is evicted.
    """
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        text = lock.read()
        taken = int(text) if text else None
        if taken is None or not _fits(root, taken, size):
            taken = _make_room(root, size, part)
        lock.truncate(0)
        lock.write(str(taken + size))


def bound(taken: int, free: int) -> int:
    """Bytes that the cache may take: WENET_UIO_CACHE_BYTES, or half of what it has and the disk has free.

    Raises:
        ValueError: WENET_UIO_CACHE_BYTES is no number of bytes.
    """
    given = os.environ.get("WENET_UIO_CACHE_BYTES")
    return parse_bytes(given) if given else (taken + free) // 2


def _fits(root: Path, taken: int, size: int) -> bool:
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    most = bound(taken, free)
    return taken + size <= most and size + min(SPARE, most) <= free


def parse_bytes(text: str) -> int:
    """Bytes of a number with an optional K, M, G or T.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"WENET_UIO_CACHE_BYTES: {text!r} is no number of bytes; write 500G or the like")
    return int(float(found[1]) * UNITS[found[2].upper()])


def _make_room(root: Path, size: int, part: str) -> int:
    """Count what is there, and evict what was used longest ago until `size` more fit; returns the bytes taken."""
    taken, evictable = 0, []
    for entry in _entries(root):
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue
        if entry.path == part:
            taken += status.st_size
        elif entry.name.endswith(".part"):
            if not _removed(entry.path, PART_KEPT):
                reserved = max(status.st_size, int(entry.name.split(".")[-2]))
                taken += reserved
                evictable.append((status.st_mtime, reserved, entry.path))
        elif COPY.fullmatch(entry.name):
            taken += status.st_size
            evictable.append((status.st_mtime, status.st_size, entry.path))
        elif entry.name.endswith((".version", ".failed")):
            _removed(entry.path, NOTE_KEPT)
    slack = taken // 20  # so that a full cache is not counted anew for every object
    for _, freed, path in sorted(evictable):
        if _fits(root, taken, size + slack):
            break
        taken -= freed if _removed(path, 0.0) else 0
    if not _fits(root, taken, size):
        raise CacheFullError(
            errno.ENOSPC, f"{root}: no room for {size} bytes beside {taken} in use; see WENET_UIO_CACHE_BYTES"
        )
    return taken


def _entries(root: Path) -> Iterator[os.DirEntry]:
    for folder in os.scandir(root):
        if folder.is_dir():
            yield from os.scandir(folder.path)


def _removed(path: str, age: float) -> bool:
    """Remove a file that nobody holds and that is older than `age` seconds; whether it is gone."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(file.fileno()).st_mtime < age:
                return False
            os.unlink(path)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True
