"""Writing files atomically, appending lines from several processes, locking files, and digests of
files.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from wenet_uio.base.uris import shown

log = logging.getLogger(__name__)

TEMPORARY = r"\.{name}\.[0-9a-f]{{12}}\.tmp"
"""Pattern of the names by `temporary_path`; {name} is that of what is written."""
FORMER = r"\.{name}\.[0-9a-f]{{12}}\.former"
"""Pattern of the names of the folders that `folder_written_aside` replaces."""
MARK = ".unfinished"
"""File in a folder that is being written. Its process holds a lock on it."""
MARK_TEXT = b"wenet_uio writes this folder\n"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system that has no locks, such as Lustre mounted without `flock`."""


class Lock(Enum):
    """Who has a lock that this process asked for."""

    OURS = auto()
    OTHERS = auto()
    MISSING = auto()
    """The file system has no locks."""


@overload
def written_aside(
    path: str | Path, mode: Literal["wb"] = "wb"
) -> AbstractContextManager[BinaryIO]: ...


@overload
def written_aside(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[TextIO]: ...


@contextmanager
def written_aside(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that is renamed to `path` at the end of the block, or removed if the
    block raises.

    Parent folders are created. Mode `w` writes UTF-8. The temporary file is locked, so that
    `remove_left_over` leaves it alone.

    Raises:
        OSError: writing fails, as on a full disk or in a read-only folder; the error has `path` as
            its filename.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    encoding = "utf-8" if mode == "w" else None

    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None

    try:
        with os.fdopen(descriptor, mode, encoding=encoding) as file:
            with suppress(OSError):  # of a file system without locks
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)

        # On a full disk torch.save raises a RuntimeError in place of the OSError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError) and not cause.filename:
            raise OSError(cause.errno, cause.strerror, str(path)) from None

        raise


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Give an error of the system the name of the file that the block reads or writes: errors of
    open files have none.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def require_writable(path: str | Path) -> None:
    """Check before long work that a file or folder can be made at `path`; nothing is left there.

    Raises:
        OSError: it cannot, as in a read-only folder; the error has `path` as its filename.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))

    # Parent folders that are missing are made when the file is written.
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    temporary = folder / temporary_path(path).name
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    temporary.unlink()


def temporary_path(path: Path) -> Path:
    """Return a new name beside a path, for what is renamed to the path when it is complete."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")


def is_temporary(path: Path) -> bool:
    """Tell whether a path is a file or link that was left when its process was killed."""
    return not path.is_dir() and _has_name(path, TEMPORARY)


def remove_left_over(folder: Path) -> None:
    """Remove the temporary files in a folder, except those that living processes write."""
    for path in filter(is_temporary, folder.iterdir()):
        if path.is_symlink() or not _is_written(path):
            path.unlink(missing_ok=True)


def _is_written(temporary: Path) -> bool:
    """Tell whether another process holds the lock of `written_aside`."""
    try:
        with open(temporary, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # it has got its name meanwhile, or there are no locks
        return False

    return False


def _has_name(path: Path, pattern: str, written: str | None = None) -> bool:
    """Tell whether the name of a path is one that `pattern` gives to temporary files or folders.

    Args:
        written: name of the file or folder that the temporary one replaces; None: any name.
    """
    name = ".+" if written is None else re.escape(written)
    return re.fullmatch(pattern.format(name=name), path.name) is not None


@contextmanager
def folder_written_aside(path: Path, is_ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Give a new folder that replaces `path` at the end of the block, or is removed if the block
    raises.

    A kill leaves the former folder, the new one, or none, but no mixture of their files. What else
    lies in the former folder moves to the new one. Unfinished folders of killed processes are
    removed first, with a warning that names them.

    Args:
        is_ours: tells whether a file or folder in the former folder belongs to what is replaced.

    Raises:
        OSError: writing fails, as on a full disk.
    """
    try:
        with new_folder_aside(path) as new:
            _take_back_former(path, is_ours)
            yield new
            for file in new.iterdir():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())

            if path.is_dir():
                path.rename(new.with_suffix(".former"))
    finally:
        _take_back_former(path, is_ours)


@contextmanager
def new_folder_aside(path: Path) -> Iterator[Path]:
    """Give a new folder that is renamed to `path` at the end of the block, or removed if the block
    raises.

    Unfinished folders of killed processes are removed first, with a warning that names them.

    Raises:
        OSError: writing fails, or `path` is a folder with files at the end of the block.
    """
    _remove_unfinished(path)
    new = temporary_path(path)
    new.mkdir(parents=True)
    try:
        with open(new / MARK, "xb") as mark:
            # Another process takes a folder with this text and without a lock for a leftover.
            lock(mark)
            mark.write(MARK_TEXT)
            mark.flush()
            yield new
            new.rename(path)
            # A mark that a kill leaves here is not taken over by the next export.
            (path / MARK).unlink()
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _remove_unfinished(path: Path) -> None:
    """Remove the folders that killed calls of `new_folder_aside` left beside `path`."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        mark = folder / MARK
        is_ours = _has_name(folder, TEMPORARY, path.name) and not folder.is_symlink()
        if not is_ours or not mark.is_file():
            continue

        # Without locks, nothing tells whether the process still writes.
        with open(mark, "r+b") as file:
            is_marked = file.read(len(MARK_TEXT) + 1) == MARK_TEXT
            if is_marked and lock(file, wait=False) is Lock.OURS:
                shutil.rmtree(folder)
                log.warning("%s: an unfinished folder of a killed process, removed", folder)


def _take_back_former(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Bring what is not ours in replaced folders back to `path`: a kill may have come before."""
    for former in path.parent.glob(f".{glob.escape(path.name)}.*.former"):
        if not _has_name(former, FORMER, path.name):
            continue
        if not path.exists():
            former.rename(path)
            continue

        for file in former.iterdir():
            if file.name != MARK and not is_ours(file) and not (path / file.name).exists():
                file.rename(path / file.name)
        shutil.rmtree(former)


def append_line(path: str | Path, record: Mapping[str, Any]) -> None:
    """Append a record as one line of JSON; several processes may append to the file, which is
    created if missing. A line that was cut short ends before it.

    URIs are shown without passwords and signatures: such records are passed on.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    shown_record: dict[str, Any] = {}
    for name, value in record.items():
        shown_record[name] = shown(value) if isinstance(value, str) else value
    line = f"{json.dumps(shown_record, ensure_ascii=False)}\n".encode()

    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line

        # One call writes the whole line, so that lines of several processes do not mix. Only a
        # full disk cuts the write short; the second call then raises its error.
        while line:
            line = line[os.write(file, line) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(file)


def read_lines(path: str | Path, fields: Collection[str] = ()) -> list[dict[str, Any]]:
    """Read the records that `append_line` wrote. A missing file gives none.

    Lines that are cut short, as by a kill or a full disk, and lines without one of the `fields` are
    left out, and a warning says how many.
    """
    path = Path(path)
    if not path.exists():
        return []

    records, damaged = [], []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:  # also bytes that are not UTF-8
            record = None

        if isinstance(record, dict) and all(field in record for field in fields):
            records.append(record)
        elif line.strip():
            damaged.append(number)

    if damaged:
        log.warning(
            "%s: %d damaged lines are ignored; the first is line %d",
            path,
            len(damaged),
            damaged[0],
        )
    return records


@contextmanager
def locked(path: str | Path, *, removed: bool = False) -> Iterator[Lock]:
    """Hold an exclusive lock on a lock file, waiting for it; the lock ends with the block or with
    its process. The file is created if it is missing.

    Args:
        removed: remove the file after the block. On NFS, another machine may know of the removal
            too late: for work that may be done twice.

    Yields:
        Lock.MISSING where the file system has no locks: the block runs without one, after a
        warning. Otherwise Lock.OURS.

    Raises:
        OSError: the file cannot be opened or locked; the error has `path` as its filename.
    """
    path = Path(path)
    file, held = _locked_file(path)
    with file:
        try:
            yield held
        finally:
            if removed:
                path.unlink(missing_ok=True)
            # Processes that were forked meanwhile have the file open, too.
            if held is Lock.OURS:
                fcntl.flock(file, fcntl.LOCK_UN)


def _locked_file(path: Path) -> tuple[BinaryIO, Lock]:
    """Open and lock a lock file; a file that its former holder removed meanwhile is created again."""
    while True:
        file = open(path, "ab")  # noqa: SIM115 - open as long as the lock
        try:
            held = lock(file)
            if held is Lock.MISSING or is_at(file, path):
                return file, held
        except OSError as error:
            if error.errno != errno.ESTALE:  # removed by another machine
                file.close()
                raise
        file.close()


def lock(file: IO, *, shared: bool = False, wait: bool = True) -> Lock:
    """Lock an open file (flock); the lock ends when the file is closed or its process dies.

    On NFS, an exclusive lock needs a file that is open for writing, and a shared lock one that is
    open for reading. A warning names the first file of a file system without locks.

    Args:
        shared: other processes may hold shared locks at the same time.
        wait: wait for the lock; otherwise give up at once.

    Raises:
        OSError: the system refuses; the error has the path of the file as its filename.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        return Lock.OTHERS
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise OSError(error.errno, error.strerror, file.name) from None
        _warn_of_missing_locks(file, error)
        return Lock.MISSING

    return Lock.OURS


def _warn_of_missing_locks(file: IO, error: OSError) -> None:
    """Log that a file system has no locks, once in each process."""
    device = os.fstat(file.fileno()).st_dev
    if device in _devices_without_locks():
        return

    _devices_without_locks().add(device)
    log.warning(
        "%s cannot be locked (%s): processes that start together may do the same work twice; see "
        "that no two commands write to the same folder",
        file.name,
        error.strerror,
    )


@cache
def _devices_without_locks() -> set[int]:
    """Return the file systems that the log has named."""
    return set()


def is_at(file: IO, path: Path) -> bool:
    """Tell whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def digest_of(path: str | Path, algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of the contents of a file; `algorithm` is a name that hashlib
    knows.
    """
    with open(path, "rb") as file, naming(path):
        return digest_of_blocks(iter(lambda: file.read(1 << 20), b""), algorithm)


def digest_of_blocks(blocks: Iterable[bytes], algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of a file from its consecutive blocks."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    for block in blocks:
        state.update(block)
    return state.hexdigest()
