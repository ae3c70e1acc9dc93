"""Reading objects of remote stores: versions and byte ranges, with retries under a deadline."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from wenet_uio.dataset.storage.transports import transport
from wenet_uio.dataset.storage.versions import DriverError, RefusedError, StorageError, Version, deadline, shown

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between tries."""
PROGRESS = 1 << 20
"""Bytes that have to come within one deadline."""
FINAL = (RefusedError, FileNotFoundError, PermissionError, DriverError)
"""What trying again would not change."""


def version_of(uri: str) -> Version:
    """Ask a store for the version of an object.

    Raises:
        FileNotFoundError, PermissionError, StorageError: there is none, or it cannot be had.
        DriverError: the scheme has no driver; names the command that installs it.
    """
    patience = _Patience(uri)
    while True:
        try:
            return transport(uri).version(uri)
        except FINAL:
            raise
        except Exception as error:  # what a driver raises when a connection breaks is its own affair
            patience.wait(error)


def transfer(uri: str, write: Callable[[bytes], Any], start: int, end: int | None, version: Version) -> None:
    """Hand the bytes of an object from `start` up to `end` (None: to its end) to `write`.

    Short reads and broken connections go on where they stopped.

    Raises:
        FileNotFoundError, PermissionError, StorageError: gone, changed, or no progress within the deadline.
    """
    patience, position, chunks = _Patience(uri), start, None
    try:
        while end is None or position < end:
            try:
                if chunks is None:
                    chunks = transport(uri).chunks(uri, position, end, version)
                chunk = next(chunks, b"")
                if not chunk and end is not None:
                    raise ConnectionError(f"ended after {position} of {end} bytes")
                patience.progress(len(chunk))
            except FINAL:
                raise
            except Exception as error:  # as above
                if chunks is not None:
                    chunks.close()
                chunks = None
                patience.wait(error)
                continue
            if not chunk:
                return
            write(chunk)
            position += len(chunk)
    finally:
        if chunks is not None:
            chunks.close()


class _Patience:
    """Backoff with jitter, until a deadline that progress puts off."""

    def __init__(self, uri: str) -> None:
        self._uri, self._tries, self._bytes = uri, 0, 0
        self._until = time.monotonic() + deadline()

    def progress(self, count: int) -> None:
        self._bytes += count
        if self._bytes >= PROGRESS:
            self._tries, self._bytes, self._until = 0, 0, time.monotonic() + deadline()
        elif time.monotonic() > self._until:
            raise ConnectionError(f"only {self._bytes} bytes came")

    def wait(self, error: Exception) -> None:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._tries) * random.uniform(0.5, 1)
        self._tries += 1
        if time.monotonic() + pause > self._until:
            found = " ".join(str(error).split()) or type(error).__name__
            raise StorageError(
                f"{shown(self._uri)}: not to be had within {deadline():g} s (WENET_UIO_DEADLINE): {found}"
            ) from error
        time.sleep(pause)
