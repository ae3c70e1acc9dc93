"""Notes beside the copies of the cache, by which a truncated, overwritten or decayed copy is
noticed.

`<copy>.sum` holds the size of a copy, the CRC-32 of its contents, and the time at which the system
last saw the copy change (ctime). Size and time are compared whenever a copy is opened; the system
sets the time at every write. The contents are compared once a process, and whenever the time
differs. The note's own time says when the copy was last used: using a copy must not change the time
of the copy.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from wenet_uio.base.files import is_at
from wenet_uio.dataset.storage.versions import NO_ROOM

SUFFIX = ".sum"
BLOCK = 1 << 20
MOST_COMPARED = 1 << 20
"""Copies that a process remembers as compared; beyond this number it forgets all, and compares them
again."""


class _Note(NamedTuple):
    """The contents of a note."""

    size: int
    crc32: int
    changed: int
    """Nanoseconds since the epoch, of the system's clock."""


def note_of(path: str | Path) -> Path:
    """Return the path of the note of a copy."""
    return Path(f"{path}{SUFFIX}")


def checksum_of(file: BinaryIO) -> int:
    """Return the CRC-32 of a whole file; its position stays as it is."""
    checksum, offset = 0, 0
    while block := os.pread(file.fileno(), BLOCK, offset):
        checksum, offset = zlib.crc32(block, checksum), offset + len(block)
    return checksum


def note(file: BinaryIO, path: Path, checksum: int) -> None:
    """Write the note of a complete copy, which is open and at `path`. A full disk leaves the copy
    without its note.
    """
    status = os.fstat(file.fileno())
    fields = _Note(status.st_size, checksum, status.st_ctime_ns)
    _remember(path, fields.changed)

    try:  # neither synced nor renamed: a note that is cut short is no note
        note_of(path).write_text(" ".join(map(str, fields)), encoding="utf-8")
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def is_intact(file: BinaryIO, path: Path, size: int | None, *, whole: bool) -> bool:
    """Tell whether an open copy is as it was when it was complete.

    A copy without a note is of a killed process; it is noted now if its size is right.

    Args:
        size: bytes of the object; None if not known.
        whole: compare the contents, unless this process has done so; otherwise only if the copy has
            changed.
    """
    status, noted = os.fstat(file.fileno()), _read(note_of(path))
    if size is not None and status.st_size != size:
        return False
    if noted is None:
        return _is_noted_now(file, path)
    if status.st_size != noted.size:
        return False

    is_same = status.st_ctime_ns == noted.changed
    if is_same and (not whole or hash((path, noted.changed)) in _compared()):
        return True
    if checksum_of(file) != noted.crc32:
        return False

    if is_same:
        _remember(path, noted.changed)
    else:
        note(file, path, noted.crc32)

    return True


def _is_noted_now(file: BinaryIO, path: Path) -> bool:
    """Note an open copy that has no note; False if the copy is no longer there, because another
    process has found damage and removed both.
    """
    if not is_at(file, path):
        return False
    note(file, path, checksum_of(file))
    return True


def mark_used(path: Path) -> None:
    """Note that a copy is used now."""
    with suppress(FileNotFoundError):  # on a full disk a copy has no note
        os.utime(note_of(path))


def _remember(path: Path, changed: int) -> None:
    if len(_compared()) >= MOST_COMPARED:
        _compared().clear()
    _compared().add(hash((path, changed)))


@cache
def _compared() -> set[int]:
    """Return hashes of path and time of change of the copies whose contents this process has
    compared.
    """
    return set()


def _read(path: Path) -> _Note | None:
    try:
        with open(path, "rb") as file:
            return _Note(*map(int, file.read().split()))
    except (FileNotFoundError, ValueError, TypeError):  # a damaged note is no note
        return None
