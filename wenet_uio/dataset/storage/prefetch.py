"""Fetching ahead: a process beside each rank brings what the plan needs next into the node's cache.

The loader tells it, group by group, what will be read, and what is through. It fetches in that order, and keeps what it
fetched from eviction until it is through; where there is no room, it waits. A process of its own has its own threads
and connections, which neither slow training down nor survive a fork badly; it ends with its loader, killed or not.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import wenet_uio
from wenet_uio.dataset.storage import cache, objects
from wenet_uio.dataset.storage.versions import Version

if TYPE_CHECKING:
    pass

CONNECTIONS = {"shards": 4, "files": 16}
"""Downloads at a time, of each kind."""
ROOM_PAUSE = 0.5
"""Seconds until room is looked for again."""
CLOSING = 10.0
"""Seconds that the process gets to end by itself."""


class Prefetch:
    """The loader's end: what is wanted, by name, in the order in which it is needed."""

    def __init__(self) -> None:
        self._owner, self._process = os.getpid(), None
        self._wanted: dict[str, str] = {}

    @property
    def process_id(self) -> int | None:
        """Of the process; None before there was anything to fetch."""
        return self._process and self._process.pid

    def want(self, name: str, kind: str, objects: Sequence[tuple[str, Version | None]]) -> None:
        """Fetch remote objects, and keep them until `drop`; `kind` is one of CONNECTIONS."""
        if name in self._wanted:
            return
        listed = [(uri, version and astuple(version)) for uri, version in objects]
        self._wanted[name] = json.dumps({"want": name, "kind": kind, "objects": listed}) + "\n"
        self._send(self._wanted[name])

    def drop(self, name: str) -> None:
        """What `want` asked for by that name is through."""
        del self._wanted[name]
        self._send(json.dumps({"drop": name}) + "\n")

    def drop_all(self) -> None:
        """Begin anew, keeping what is there."""
        for name in list(self._wanted):
            self.drop(name)

    def close(self) -> None:
        """End the process; of processes that inherited this object only the first does."""
        if self._process is None or os.getpid() != self._owner:
            return
        process, self._process = self._process, None
        with suppress(BrokenPipeError):
            process.stdin.write(b"\n")
            process.stdin.close()
        try:
            process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._process.stdin.close()
            self._process = None  # it was killed: another takes over
        if self._process is None:
            self._process, line = _start(), "".join(self._wanted.values())
        with suppress(BrokenPipeError):  # it dies at this moment; the next call finds it dead
            self._process.stdin.write(line.encode())


def _start() -> subprocess.Popen:
    root = str(Path(wenet_uio.__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", __spec__.name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, env={**os.environ, "PYTHONPATH": path})


class _Fetcher:
    """The process's end."""

    def __init__(self) -> None:
        self._pools = {kind: ThreadPoolExecutor(number) for kind, number in CONNECTIONS.items()}
        self._held: dict[str, list[BinaryIO]] = {}
        self._lock = threading.Lock()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def want(self, name: str, kind: str, objects: Sequence[tuple[str, Sequence | None]]) -> None:
        with self._lock:
            self._held[name] = []
        for uri, version in objects:
            self._pools[kind].submit(self._fetch, name, uri, version and Version(*version))

    def drop(self, name: str) -> None:
        with self._lock:
            files = self._held.pop(name)
        for file in files:
            file.close()

    def _fetch(self, name: str, uri: str, version: Version | None) -> None:
        while name in self._held:
            try:
                file = objects.open_whole(uri, version)
            except cache.CacheFullError:
                time.sleep(ROOM_PAUSE)
                continue
            except Exception as error:  # whoever reads it meets the same, and counts its samples as bad
                print(f"prefetch: {error}", file=sys.stderr, flush=True)
                return
            with self._lock:
                if name in self._held:
                    self._held[name].append(file)
                else:
                    file.close()
            return


def main() -> None:
    """Follow the orders that come in by standard input, one JSON object a line, until an empty line or its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader decides when to end
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    fetcher = _Fetcher()
    for line in sys.stdin:
        if not line.strip():
            break
        order = json.loads(line)
        if "want" in order:
            fetcher.want(order["want"], order["kind"], order["objects"])
        else:
            fetcher.drop(order["drop"])
    _leave()


def _leave() -> None:
    cache.abandon()
    os._exit(0)  # downloads under way are not waited for


if __name__ == "__main__":
    main()
