"""Servers in processes of their own, as the command starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.support import preloaded

ROOT = Path(__file__).parents[3]
PATIENCE = 60
"""Seconds within which a server starts, and ends."""


class ServerProcess:
    """A server that has started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.log: list[str] = []
        """Lines of standard error so far."""
        self.url = ""
        for line in iter(process.stderr.readline, ""):
            self.log.append(line)
            if served := re.match(r"serving .* on (\S+)$", line):
                self.url = served[1]
                break
        assert self.url, "".join(self.log)
        self._reading = Thread(target=self._read_log, daemon=True)
        self._reading.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    @property
    def socket_url(self) -> str:
        """Address of the WebSocket."""
        return self.url.replace("http", "ws", 1)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end of the process; return its exit status."""
        status = self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        return status


@contextmanager
def server_process(model: Path, *options: object, **arguments: object) -> Iterator[ServerProcess]:
    """Start a server of a model on the CPU; it is killed at the end of the block if it still runs.

    Args:
        arguments: of Popen.
    """
    command = [
        "-m",
        "tests.support.serve.without_silero",
        "--model",
        model,
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    process = subprocess.Popen(
        [preloaded.python(), *map(str, (*command, *options))],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        **arguments,  # type: ignore[call-overload]
    )
    try:
        yield ServerProcess(process)
    finally:
        process.kill()
        process.wait(PATIENCE)
