"""Serve one adapter to the driver: a process for each rank answers commands, as JSON lines.

    {"do": "describe"}                                        -> {"versions": {...}, "out_of_scope": {...}}
    {"do": "write", "folder": ..., "source": ..., "number": n} -> {}
    {"do": "open", "run": {...}, "states": [...] or null}       -> {}
    {"do": "next"}                                            -> {"step": [[[key, length], ...], ...] or null}
    {"do": "state"}                                           -> {"state": base64 of pickle}

An exception is answered as {"error": "Type: message"}; its traceback goes to the log of the rank.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import socket
import sys
import traceback
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from protocol import Adapter, Run
from samples import make_samples


class Host:
    """Answers the commands for one adapter."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._steps: Any = None

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says."""
        return getattr(self, f"_{command.pop('do')}")(**command)

    def _describe(self) -> dict[str, Any]:
        versions = {name: version(name) for name in self._adapter.DISTRIBUTIONS}
        return {"versions": versions, "out_of_scope": dict(self._adapter.OUT_OF_SCOPE)}

    def _write(self, folder: str, source: str, number: int) -> dict[str, Any]:
        home = Path(folder) / source
        home.mkdir(parents=True)
        self._adapter.write(home, make_samples(source, number))
        return {}

    def _open(self, run: dict[str, Any], states: list[str] | None) -> dict[str, Any]:
        loaded_states = None
        if states is not None:
            loaded_states = tuple(pickle.loads(base64.b64decode(state)) for state in states)

        run |= {"folder": Path(run["folder"]), "sources": tuple(run["sources"])}
        self._steps = iter(self._adapter.open(Run(**run, states=loaded_states)))
        return {}

    def _next(self) -> dict[str, Any]:
        step = next(self._steps, None)
        if step is None:
            return {"step": None}
        # Loaders may give numpy's types, which json does not write.
        batches = [[[str(key), int(length)] for key, length in batch] for batch in step]
        return {"step": batches}

    def _state(self) -> dict[str, Any]:
        return {"state": base64.b64encode(pickle.dumps(self._adapter.state())).decode()}


def serve(adapter: Adapter, connection: socket.socket) -> None:
    """Answer commands until the driver closes the connection."""
    host = Host(adapter)
    with connection.makefile("rw", buffering=1, encoding="utf-8") as lines:
        lines.write(json.dumps({"pid": os.getpid()}) + "\n")
        while line := lines.readline():
            try:
                answer = host.answer(json.loads(line))
            except Exception as error:  # any error of a loader is a result of the trial
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            lines.write(json.dumps(answer) + "\n")


def main(module: str) -> None:
    """Load an adapter once, then fork a process for every rank that a line of stdin asks for.

    It ends when stdin ends.

    A line: {"module": ..., "socket": path to connect to, "log": path for stderr, "environment":
    {...}}
    """
    import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps killed ranks
    while line := sys.stdin.buffer.raw.readline():  # pyright: ignore[reportAttributeAccessIssue]
        wanted = json.loads(line)
        if os.fork():
            continue

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(wanted["environment"])
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(wanted["socket"])
        serve(import_module(wanted["module"]).Loader(), connection)
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
