"""Files that are whole or not there, locked, known by their digest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_aside(path: str | Path, mode: str = "wb") -> Iterator[IO]:
    """Open a file that becomes `path` when the block ends well, and vanishes when it does not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, mode, **({} if "b" in mode else {"encoding": "utf-8"})) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only their owner reads
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; it is released when its owner dies."""
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest_of(path: str | Path) -> str:
    """SHA-256 of a file."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()
