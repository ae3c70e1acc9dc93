"""Files that are whole or not there, grow by lines, are locked, and known by their digest."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload


@overload
def written_aside(path: str | Path, mode: Literal["wb"] = "wb") -> AbstractContextManager[BinaryIO]: ...


@overload
def written_aside(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[TextIO]: ...


@contextmanager
def written_aside(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a file that becomes `path` when the block ends well, and vanishes when it does not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, mode, encoding="utf-8" if mode == "w" else None) as file:
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


def append_line(path: str | Path, record: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file that several processes add to, and which may not be there yet."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, ensure_ascii=False)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, f"{line}\n".encode())  # one call: lines of several processes do not mix
    finally:
        os.close(file)


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """What `append_line` added, but for a line that a kill cut short; nothing where there is no file."""
    path, found = Path(path), []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


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
