"""Downloading ahead: a process beside each rank downloads what the plan needs next into the cache
of the node.

The loader says, group by group, what will be read and what is no longer needed. The process
downloads in that order. It keeps its downloads open, so that they are not evicted before they are
read. Where the cache has no space, it waits.

This is a process and not a thread: its threads and connections do not slow training down, and a
forked worker does not inherit them. The process ends with its loader, even when the loader is
killed.
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
from typing import IO, BinaryIO

import wenet_uio
from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage import cache, objects
from wenet_uio.dataset.storage.copies import PartFiles
from wenet_uio.dataset.storage.versions import Version

CONNECTIONS = {"shards": 4, "files": 16}
"""Downloads at a time, of each kind of object."""
ROOM_PAUSE = 0.5
"""Seconds until the process looks for space again."""
CLOSING = 10.0
"""Seconds that the process has to end before it is killed."""


class Prefetch:
    """The loader's end: names sets of objects in the order in which they will be read."""

    def __init__(self) -> None:
        self._owner, self._process = os.getpid(), None
        self._wanted: dict[str, str] = {}
        """Name of each set that was not dropped -> the line that orders it."""

    @property
    def process_id(self) -> int | None:
        """Number of the process; None before the first `want`."""
        return self._process and self._process.pid

    def want(self, name: str, kind: str, objects: Sequence[tuple[str, Version | None]]) -> None:
        """Download remote objects and keep them in the cache until `drop(name)`.

        Args:
            name: a name for this set of objects; a name that is in use is ignored.
            kind: one of `CONNECTIONS`.
            objects: URI and version of each object; None is the current version.
        """
        if name in self._wanted:
            return
        listed = [(uri, version and astuple(version)) for uri, version in objects]
        self._wanted[name] = json.dumps({"want": name, "kind": kind, "objects": listed}) + "\n"
        self._send(self._wanted[name])

    def drop(self, name: str) -> None:
        """Give up the objects of `want(name)`, which were read or are not needed any more."""
        del self._wanted[name]
        self._send(json.dumps({"drop": name}) + "\n")

    def drop_all(self) -> None:
        """Give up all objects; their copies stay in the cache until they are evicted."""
        for name in list(self._wanted):
            self.drop(name)

    def close(self) -> None:
        """End the process. In a forked child, which inherited this object, this does nothing."""
        if self._process is None or os.getpid() != self._owner:
            return

        process, self._process = self._process, None
        orders = _orders_of(process)
        with suppress(BrokenPipeError):
            orders.write(b"\n")
            orders.close()

        try:
            process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, line: str) -> None:
        """Send an order to the process; a new process gets all orders that count."""
        if self._process is not None and self._process.poll() is not None:
            _orders_of(self._process).close()
            self._process = None  # the process was killed: start another one
        if self._process is None:
            self._process, line = _start(), "".join(self._wanted.values())

        # The process is being killed; the next call starts another one
        with suppress(BrokenPipeError):
            _orders_of(self._process).write(line.encode())


def _start() -> subprocess.Popen[bytes]:
    """Run this module as a process, which finds the package where this process found it."""
    root = str(Path(wenet_uio.__path__[0]).parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", __spec__.name]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, bufsize=0, env={**os.environ, "PYTHONPATH": path}
    )


def _orders_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


class _Fetcher:
    """The other end: carries out the orders of the loader in threads."""

    def __init__(self) -> None:
        self._pools = {kind: ThreadPoolExecutor(number) for kind, number in CONNECTIONS.items()}
        self._held: dict[str, list[BinaryIO]] = {}
        self._lock = threading.Lock()
        self.parts = PartFiles()
        # Each copy in the cache stays open, which protects it: as many files as the system allows.
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    def want(self, name: str, kind: str, objects: Sequence[tuple[str, Sequence | None]]) -> None:
        with self._lock:
            self._held[name] = []

        for uri, version in objects:
            self._pools[kind].submit(
                self._fetch, name, uri, None if version is None else Version(*version)
            )

    def drop(self, name: str) -> None:
        with self._lock:
            files = self._held.pop(name)
        for file in files:
            file.close()

    def _fetch(self, name: str, uri: str, version: Version | None) -> None:
        """Download an object and hold it, unless its set was dropped meanwhile."""
        while name in self._held:
            try:
                file = objects.open_whole(uri, version, self.parts)
            except cache.CacheFullError:
                time.sleep(ROOM_PAUSE)
                continue
            except Exception as error:  # the worker that reads the object gets the same error and counts bad samples
                print(f"prefetch: {shown(error)}", file=sys.stderr, flush=True)
                return

            with self._lock:
                if name in self._held:
                    self._held[name].append(file)
                else:
                    file.close()
            return


def main() -> None:
    """Carry out orders from standard input, one JSON object per line, until an empty line or the
    end of the input.
    """
    for number in (signal.SIGINT, signal.SIGUSR1):  # the loader decides when to end
        signal.signal(number, signal.SIG_IGN)
    fetcher = _Fetcher()
    signal.signal(signal.SIGTERM, lambda *_: _leave(fetcher))

    for line in sys.stdin:
        if not line.strip():
            break
        order = json.loads(line)
        if "want" in order:
            fetcher.want(order["want"], order["kind"], order["objects"])
        else:
            fetcher.drop(order["drop"])

    _leave(fetcher)


def _leave(fetcher: _Fetcher) -> None:
    """Exit at once, without waiting for downloads in progress, and leave no partial files."""
    fetcher.parts.abandon()
    os._exit(0)


if __name__ == "__main__":
    main()
