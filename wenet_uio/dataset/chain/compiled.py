"""The functions of fbank.cpp, which the C++ compiler of the machine compiles at first use.

The compiled file is kept in the cache folder for later processes, or else in the folder of
temporary files. Its name has a digest of all that it depends on, so machines with different
processors may share a home folder. Its own digest is noted beside it, and is verified before the file
is loaded: one that was cut short would end the process with a bus error. Without a compiler the
features are computed by torch and numpy.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from wenet_uio.base.files import (
    Lock,
    digest_of,
    is_temporary,
    locked,
    temporary_path,
    written_aside,
)
from wenet_uio.dataset.storage.settings import cache_folder

SOURCE = Path(__file__).with_name("fbank.cpp")
SWITCH = "WENET_UIO_COMPILE"
"""Variable of the environment; 0 switches the compiled functions off."""
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
TIME_LIMIT = 120
"""Seconds in which the compiler must end. It takes less than one."""
PROCESSOR = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
}
"""What /proc/cpuinfo says of the type of a processor."""

log = logging.getLogger(__name__)


class Compiled(NamedTuple):
    """The compiled functions, or why there are none."""

    functions: ctypes.CDLL | None
    description: str
    """The path of the compiled file; without functions the reason, and how to mend it."""

    @property
    def kind(self) -> str:
        """What computes features on a CPU. Of two kinds, the features are not the same bits."""
        return "torch and numpy" if self.functions is None else "compiled functions"

    @property
    def way(self) -> str:
        """How features are computed on a CPU, for reports, without paths of the machine if all is
        well.
        """
        return f"{self.kind} ({self.description})" if self.functions is None else self.kind


class _NotCompiledError(Exception):
    """The message says why there are no compiled functions, and how to mend it."""


@lru_cache(maxsize=1)
def compiled() -> Compiled:
    """Return the compiled functions, after compiling them if no process has done so before.

    Processes that this one forks have them already.
    """
    try:
        functions, path = _load()
    except _NotCompiledError as reason:
        log.info("fbank features are computed by torch and numpy, which is slower: %s", reason)
        return Compiled(None, str(reason))

    return Compiled(functions, str(path))


def int16_or_float32(waveform: torch.Tensor) -> torch.Tensor:
    """Return a waveform as the compiled functions read it: without gaps, of one of these types."""
    if waveform.dtype not in (torch.int16, torch.float32):
        waveform = waveform.float()
    return waveform.contiguous()


def _load() -> tuple[ctypes.CDLL, Path]:
    """Load the compiled functions from a folder of this user, where they are compiled first if need be.

    Returns:
        the library, and its path.

    Raises:
        _NotCompiledError: they are switched off, or no folder can hold them.
    """
    if os.environ.get(SWITCH, "").strip() == "0":
        raise _NotCompiledError(f"{SWITCH}=0 switches the compiled functions off")

    compiler = _compiler()
    name = f"fbank-{_digest(compiler)}.so"
    problems: list[str] = []
    # Nobody but this user may write into the folders.
    user = f"compiled-{os.getuid()}"
    folders = [Path(tempfile.gettempdir()) / f"wenet_uio-{user}"]
    with suppress(RuntimeError):  # the user has no home folder
        folders.insert(0, cache_folder().with_name(user))

    for folder in folders:
        try:
            path = _compiled_file(folder, name, compiler)
            return ctypes.CDLL(str(path)), path
        except OSError as error:  # read-only, full, without locks, mounted noexec
            problems.append(str(error))

    raise _NotCompiledError(
        f"no folder for the compiled functions ({'; '.join(problems)}); set WENET_UIO_CACHE or "
        "TMPDIR to a folder of yours that can be written and is not mounted noexec"
    )


def _compiler() -> list[str]:
    """Return the command of the C++ compiler.

    Raises:
        _NotCompiledError: there is none.
    """
    chosen = os.environ.get("CXX", "").strip()
    try:
        commands = [shlex.split(chosen)] if chosen else [[name] for name in COMPILERS]
    except ValueError as error:
        raise _NotCompiledError(f"CXX={chosen}: {error}") from None

    for program, *options in commands:
        path = shutil.which(program)
        if path is not None:
            return [path, *options]

    missing = f"CXX={chosen}: no such program" if chosen else f"no {', '.join(COMPILERS)}"
    raise _NotCompiledError(f"{missing}; install g++, or set CXX to a C++ compiler")


def _digest(compiler: Sequence[str]) -> str:
    """Return a digest of what the compiled file depends on."""
    version = _run([*compiler, "--version"])
    parts = (SOURCE.read_text(), version, *compiler, *FLAGS, platform.machine(), *_processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _processor() -> list[str]:
    """Return lines that tell one type of processor from another."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return [platform.processor()]

    lines = information.read_text().splitlines()
    return sorted({line for line in lines if line.partition(":")[0].strip() in PROCESSOR})


def _compiled_file(folder: Path, name: str, compiler: Sequence[str]) -> Path:
    """Return the path of the compiled file, after compiling it if it is missing or damaged.

    Raises:
        OSError: the folder cannot be used.
        _NotCompiledError: the compiler failed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{folder}: others may write into this folder")

    path = folder / name
    if _is_whole(path):
        return path

    with locked(folder / "lock") as held:
        for file in folder.iterdir():  # of processes that were killed
            if is_temporary(file) and held is Lock.OURS:
                file.unlink()
        if not _is_whole(path):
            if path.exists():
                log.warning("%s is not the file that was compiled; it is compiled again", path)
            _compile(compiler, path)

    return path


def _is_whole(path: Path) -> bool:
    """Tell whether the file has the digest that was noted when it was compiled."""
    try:
        return _noted_digest(path).read_bytes() == digest_of(path).encode()
    except FileNotFoundError:
        return False


def _noted_digest(path: Path) -> Path:
    """Return the path of the file that has the digest of the compiled file."""
    return path.with_name(f"{path.name}.sha256")


def _compile(compiler: Sequence[str], path: Path) -> None:
    """Compile the functions into `path`, then note the digest of the file beside it."""
    temporary = temporary_path(path)
    try:
        _run([*compiler, *FLAGS, str(SOURCE), "-o", str(temporary)])
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        digest = digest_of(temporary)
        temporary.replace(path)
        with written_aside(_noted_digest(path)) as file:
            file.write(digest.encode())
    finally:
        temporary.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> str:
    """Run a compiler and return its output.

    Raises:
        _NotCompiledError: it failed, or did not end.
    """
    mend = "mend it, or set CXX to another C++ compiler"
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise _NotCompiledError(f"{command[0]}: {error.strerror}; {mend}") from None

    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also the programs that a wrapper started
        process.communicate()
        raise _NotCompiledError(f"{command[0]} did not end in {TIME_LIMIT} s; {mend}") from None

    if process.returncode:
        lines = [line for line in errors.splitlines() if "error" in line] or ["no message"]
        raise _NotCompiledError(
            f"{command[0]} failed with exit status {process.returncode} ({lines[0].strip()}); {mend}"
        )

    return output
