"""Reading from remote stores: versions and byte ranges, with repeated attempts until a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from wenet_uio.dataset.storage.backoff import Backoff
from wenet_uio.dataset.storage.settings import deadline
from wenet_uio.dataset.storage.transports import transport
from wenet_uio.dataset.storage.versions import (
    BusyError,
    DriverError,
    RefusedError,
    StorageError,
    Version,
)
from wenet_uio.uris import shown

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts."""
FAILURES_TO_TELL = 4
"""Failed attempts, about a second, after which a person is told what is waited for."""
PROGRESS = 1 << 20
"""Bytes that must arrive within one deadline."""
FINAL = (RefusedError, FileNotFoundError, PermissionError, DriverError)
"""Errors that another attempt would not change."""


_told: set[str] = set()
"""Servers whose silence was told in this process."""


def version_of(uri: str, seconds: float | None = None) -> Version:
    """Ask a store for the version of an object.

    Args:
        seconds: a shorter deadline, for a question that can be left unanswered.

    Raises:
        FileNotFoundError, PermissionError, StorageError: no such object, no access, or no answer
        until the deadline.
        DriverError: the driver of the scheme is missing; the message names the command that
            installs it.
    """
    patience = _Patience(uri, seconds)
    while True:
        try:
            return transport(uri).version(uri)
        except FINAL:
            raise
        except Exception as error:  # drivers raise errors of any type when a connection breaks
            patience.wait(error)


def transfer(
    uri: str, write: Callable[[bytes], Any], start: int, end: int | None, version: Version
) -> None:
    """Pass the bytes of an object from `start` up to `end` (None: to the end of the object) to
    `write`.

    After a short answer or a broken connection the transfer continues at the byte where it stopped.

    Raises:
        FileNotFoundError, PermissionError, StorageError: no such object, no access, another
        version, or no progress
            until the deadline.
    """
    with closing(_chunks(uri, start, end, version)) as chunks:
        for chunk in chunks:
            write(chunk)


def _chunks(
    uri: str, start: int, end: int | None, version: Version
) -> Generator[bytes, None, None]:
    """Yield the bytes of an object, over as many connections as needed."""
    patience, position = _Patience(uri), start
    while end is None or position < end:
        try:
            with closing(transport(uri).chunks(uri, position, end, version)) as connection:
                for chunk in connection:
                    patience.progress(len(chunk))
                    position += len(chunk)
                    yield chunk
            if end is None:
                return
            if position < end:
                raise ConnectionError(f"ended after {position} of {end} bytes")
        except FINAL:
            raise
        except Exception as error:  # as above
            patience.wait(error)


def _server_of(uri: str) -> str:
    """Return the scheme and server, or bucket, of a URI."""
    scheme, _, rest = shown(uri).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


class _Patience:
    """Back-off between attempts until a deadline; progress moves the deadline."""

    def __init__(self, uri: str, seconds: float | None = None) -> None:
        self._uri, self._backoff, self._bytes = uri, Backoff(FIRST_PAUSE, LONGEST_PAUSE), 0
        self._failures = 0
        self._seconds = deadline() if seconds is None else min(seconds, deadline())
        self._until = time.monotonic() + self._seconds

    def progress(self, count: int) -> None:
        """Count bytes that arrived.

        Raises:
            ConnectionError: too few bytes arrived until the deadline.
        """
        self._bytes += count
        if self._bytes >= PROGRESS:
            self._bytes, self._until = 0, time.monotonic() + self._seconds
            self._backoff.reset()
        elif time.monotonic() > self._until:
            raise ConnectionError(f"only {self._bytes} bytes arrived")

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt.

        Raises:
            StorageError: the next attempt would be after the deadline.
        """
        asked = error.seconds if isinstance(error, BusyError) else 0.0
        pause = max(self._backoff.next_pause(), asked)
        reason = " ".join(shown(error).split()) or type(error).__name__
        if asked > self._seconds:
            raise StorageError(
                f"{shown(self._uri)}: the store asks to wait {asked:.0f} s, longer than "
                f"WENET_UIO_DEADLINE ({self._seconds:g} s): {reason}"
            ) from None
        if time.monotonic() + pause > self._until:
            raise StorageError(
                f"{shown(self._uri)}: no data received for {self._seconds:g} s "
                f"(WENET_UIO_DEADLINE): {reason}"
            ) from None

        self._failures += 1
        server = _server_of(self._uri)
        if self._failures >= FAILURES_TO_TELL and server not in _told:
            _told.add(server)
            log.warning(
                "%s does not give what is asked for (%s); trying again for up to %g s "
                "(WENET_UIO_DEADLINE)",
                server,
                reason,
                self._seconds,
            )
        time.sleep(pause)
