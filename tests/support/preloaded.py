"""Python commands in processes of their own that have imported torch already, which takes 2 to 5 s of a new process.

The processes are forked from a server, which this process starts at the first command. The server imports packages of
others only: a command imports the modules of this project itself, and runs as `python SCRIPT` or `python -m MODULE`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

PACKAGES = (
    "matplotlib.figure",
    "onnxruntime",
    "pydantic",
    "soundfile",
    "torch._dynamo",
    "torch.onnx",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "torchaudio",
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([name for name in PACKAGES if find_spec(name.split(".")[0])])


def run(
    command: Sequence[object],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> CompletedProcess[str]:
    """`python COMMAND` without standard input: a script or `-m MODULE`, then its arguments.

    Variables of `env` that packages read at import, such as OMP_NUM_THREADS, have no effect.

    Raises:
        TimeoutError: the command was killed after `timeout` seconds.
    """
    arguments = [str(argument) for argument in command]
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}" for name in ("stdout", "stderr")]
        process = _context.Process(
            target=_command, args=(arguments, str(cwd or Path.cwd()), dict(env or os.environ), files)
        )
        process.start()
        process.join(timeout)
        stdout, stderr = (Path(file).read_text(encoding="utf-8") for file in files)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{arguments}: no end within {timeout} s\n{stdout}\n{stderr}")
    return CompletedProcess(arguments, process.exitcode, stdout, stderr)


def _command(arguments: list[str], cwd: str, environment: dict[str, str], files: list[str]) -> None:
    for number, path in zip((0, 1, 2), [os.devnull, *files], strict=True):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # processes of multiprocessing skip them
