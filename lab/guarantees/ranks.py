"""Run the ranks of a training: one process for each rank, which serves an adapter."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOADING = 600.0
"""Seconds that the packages of an adapter may take to load, which is no part of a trial."""
WRITING = 3600.0
"""Seconds that an adapter may take to write a source, which is no part of a trial."""
NAMES_OF_RANKS = ("RANK", "LOCAL_RANK")
NAMES_OF_SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")

Step = list[list[tuple[str, int]]]
"""The batches of one rank in one step: (key, frames) of each sample."""


class LoaderError(Exception):
    """A loader raised an exception, ended or did not answer.

    The message is evidence for the table.
    """


class Server:
    """A process that has loaded the packages of an adapter and forks the ranks.

    So a rank starts in no time.
    """

    def __init__(self, python: str, module: str, timeout: float = 120.0) -> None:
        self.module = module
        self.timeout = timeout
        """Seconds to wait for an answer."""
        self._folder = tempfile.TemporaryDirectory()
        self.log = Path(self._folder.name) / "log"
        self._forked = 0
        paths = [str(HERE), str(HERE / "adapters"), str(ROOT)]

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, str(HERE / "host.py"), module],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self._folder.cleanup()

    def fork(self, environment: dict[str, str]) -> tuple[socket.socket, Path]:
        """Start the process of a rank; return the connection to it, and its log."""
        self._forked += 1
        path = Path(self._folder.name) / f"{self._forked}.socket"
        log = Path(self._folder.name) / f"{self._forked}.log"
        request = {
            "module": self.module,
            "socket": str(path),
            "log": str(log),
            "environment": environment,
        }

        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            assert self.process.stdin
            with suppress(BrokenPipeError):
                self.process.stdin.write(json.dumps(request).encode() + b"\n")
                self.process.stdin.flush()

            deadline = time.monotonic() + max(LOADING, self.timeout)
            while not select.select([listening], [], [], 0.2)[0]:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise LoaderError(f"the adapter cannot be loaded: {last_line(self.log)}")

            connection, _ = listening.accept()
            return connection, log


def last_line(log: Path) -> str:
    """Return the last line of a log."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "no message"


class Rank:
    """The process of one rank."""

    def __init__(self, server: Server, rank: int, world: int, port: int) -> None:
        self._server, self._rank = server, rank
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment |= dict.fromkeys(NAMES_OF_RANKS, str(rank))
        environment |= dict.fromkeys(NAMES_OF_SIZES, str(world))
        self._connection, self._log = server.fork(environment)
        self._received = b""
        """Bytes after the last answer."""
        self._pid: int = self.receive()["pid"]

    def send(self, do: str, **values: Any) -> None:
        """Send a command; `receive` waits for its answer."""
        with suppress(BrokenPipeError):  # `receive` then reports that the process has ended
            self._connection.sendall(json.dumps({"do": do, **values}).encode() + b"\n")

    def receive(self, within: float | None = None) -> dict[str, Any]:
        """Return the answer to the command that was sent last.

        It may take `within` seconds, by default those of the server.

        Raises:
            LoaderError: the answer is an error, or there is none.
        """
        within = self._server.timeout if within is None else within
        deadline = time.monotonic() + within
        while b"\n" not in self._received:
            remaining = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._connection], [], [], remaining)
            if not ready:
                raise LoaderError(f"rank {self._rank}: no answer in {within:g} s")

            data = self._connection.recv(1 << 20)
            if not data:
                raise LoaderError(f"rank {self._rank}: the process ended: {last_line(self._log)}")

            self._received += data

        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise LoaderError(f"rank {self._rank}: {answer['error']}")

        return answer

    def ask(self, do: str, within: float | None = None, **values: Any) -> dict[str, Any]:
        """Send a command and wait for its answer, as `receive` does."""
        self.send(do, **values)
        return self.receive(within)

    def memory_mb(self) -> float:
        """Return the memory of this process, its workers and the libraries they share, in MB.

        Shared pages count once.
        """
        kilobytes = 0
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            with suppress(OSError, ProcessLookupError):  # the process may have ended
                if pid == self._server.process.pid or os.getpgid(pid) == self._pid:
                    lines = (folder / "smaps_rollup").read_text().splitlines()
                    kilobytes += sum(
                        int(line.split()[1]) for line in lines if line.startswith("Pss:")
                    )

        return kilobytes / 1024

    def kill(self) -> None:
        """End the process and its workers by SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self._connection.close()


class Ranks:
    """All ranks of one run. Leaving the block kills them."""

    def __init__(self, server: Server, world: int) -> None:
        with socket.socket() as probe:  # port 0 is any free port
            probe.bind(("127.0.0.1", 0))
            _, port = probe.getsockname()

        self._ranks = [Rank(server, rank, world, port) for rank in range(world)]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rank in self._ranks:
            rank.kill()

    def describe(self) -> dict[str, Any]:
        """Return what the adapter says of itself."""
        return self._ranks[0].ask("describe")

    def write(self, **source: Any) -> None:
        """Write one source."""
        self._ranks[0].ask("write", WRITING, **source)

    def open(self, states: list[str] | None, **run: Any) -> None:
        """Open the loaders of all ranks at the same time.

        Some loaders wait for one another.
        """
        for number, rank in enumerate(self._ranks):
            rank.send("open", run={**run, "rank": number, "world": len(self._ranks)}, states=states)
        for rank in self._ranks:
            rank.receive()

    def step(self) -> list[Step | None]:
        """Return the next step of each rank; None where the epoch of a rank has ended."""
        for rank in self._ranks:
            rank.send("next")
        return [rank.receive()["step"] for rank in self._ranks]

    def states(self) -> list[str]:
        """Return the states of all ranks."""
        for rank in self._ranks:
            rank.send("state")
        return [rank.receive()["state"] for rank in self._ranks]

    def memory_mb(self) -> float:
        """Return the memory of all ranks and workers in MB."""
        return sum(rank.memory_mb() for rank in self._ranks)
