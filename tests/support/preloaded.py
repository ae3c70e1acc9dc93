"""Python commands in processes of their own that have imported torch already, which takes 2 to 5 s
of a new process.

The processes are forked from a server, which pytest starts before its worker processes, or else at
the first command. The server imports most modules of this project, too. A command runs as `python
SCRIPT`, `python -m MODULE` or `python -c CODE`. Tests of what an import does start Python itself.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

SHARED = "WENET_UIO_TESTS_PYTHON"
"""Variable in which pytest gives its worker processes `python()`, so that they share one server."""
PATIENCE = 60
"""Seconds within which the server must start to listen, and end."""
PACKAGES = (
    "fsspec.core",
    "jinja2",
    "numpy",
    "onnx",
    "onnxruntime",
    "pydantic.types",
    "requests",
    "s3fs",
    "sentencepiece",
    "soundfile",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.launcher.api",
    "torch.onnx",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "torchaudio",
    "tqdm",
    "yaml",
)
COMMANDS = (
    "wenet_uio.bin.train",
    "wenet_uio.bin.recognize",
    "wenet_uio.bin.export_jit",
    "wenet_uio.bin.launch",
)
"""These import most modules of the project: reading, models, training, search and export."""


@cache
def python() -> str:
    """Path of a program `python` that the server runs; `python3` is beside it.

    The variables of a command that packages read at import, such as OMP_NUM_THREADS, have no
    effect. The parent of a command is the server: only the signals that `python` receives and
    forwards reach the command.
    """
    if SHARED in os.environ:
        return os.environ[SHARED]
    packages = [name for name in PACKAGES if find_spec(name.split(".")[0])]
    program, server = start([*packages, *COMMANDS])

    def end() -> None:
        server.kill()  # and with it its commands; a worker of a loader may hold its input open
        server.wait(PATIENCE)
        shutil.rmtree(program.parent)

    atexit.register(end)
    return str(program)


def start(modules: Sequence[str]) -> tuple[Path, subprocess.Popen[bytes]]:
    """Start a server that imports the modules -> its program `python`, in a folder of its own, and
    the server.
    """
    here = Path(__file__).parent
    # A socket in it wants a short path
    folder = Path(tempfile.mkdtemp(prefix="python", dir="/tmp"))
    program = folder / "python"
    program.write_text(f"#!{sys.executable} -IS\n{(here / 'preload_client.py').read_text()}")
    program.chmod(0o755)
    (folder / "python3").symlink_to("python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with open(folder / "log", "w") as log:
        command = [sys.executable, str(here / "preload_server.py"), str(folder), *modules]
        server = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    give_up = time.monotonic() + PATIENCE
    while not (folder / "socket").exists():
        assert server.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < give_up, (
            f"the server of commands does not start: {(folder / 'log').read_text()}"
        )
        time.sleep(0.01)
    return program, server


def on_path(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`environment` with a PATH on which `python` and `python3` are `python()`, for shell
    scripts.
    """
    folders = [str(Path(python()).parent), str(Path(sys.executable).parent), environment["PATH"]]
    return {**environment, "PATH": os.pathsep.join(folders)}


def run(
    command: Sequence[object],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> CompletedProcess[str]:
    """`python COMMAND` without standard input: a script, `-m MODULE` or `-c CODE`, then its arguments.

    What it starts with sys.executable, such as the ranks of torchrun, are such processes too.

    Raises:
        TimeoutExpired: the command was killed after `timeout` seconds.
    """
    return subprocess.run(
        [python(), *map(str, command)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
