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
"""Servers whose silence was told in this process, and that have not answered since."""


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
            version = transport(uri).version(uri)
        except FINAL:
            patience.answered()
            raise
        except Exception as error:  # drivers raise errors of any type when a connection breaks
            patience.wait(error)
        else:
            patience.answered()
            return version


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
                break
            if position < end:
                raise ConnectionError(f"ended after {position} of {end} bytes")
        except FINAL:
            patience.answered()
            raise
        except Exception as error:  # as above
            patience.wait(error)

    patience.answered()


def _server_of(uri: str) -> str:
    """Return the scheme and server, or bucket, of a URI."""
    scheme, _, rest = shown(uri).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


class _Patience:
    """Back-off between attempts until a deadline; progress moves the deadline."""

    def __init__(self, uri: str, seconds: float | None = None) -> None:
        self._uri, self._backoff, self._bytes = uri, Backoff(FIRST_PAUSE, LONGEST_PAUSE), 0
        self._failures, self._has_told = 0, False
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
            self.answered()
        elif time.monotonic() > self._until:
            raise ConnectionError(f"only {self._bytes} bytes arrived")

    def answered(self) -> None:
        """Note that the server answers, so that its next silence is told too."""
        self._failures, self._has_told = 0, False
        _told.discard(_server_of(self._uri))

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt.

        Raises:
            StorageError: the next attempt would be after the deadline.
        """
        asked = error.seconds if isinstance(error, BusyError) else 0.0
        pause = max(self._backoff.next_pause(), asked)
        reason = " ".join(shown(error).split()) or type(error).__name__
        left = self._until - time.monotonic()
        if asked > max(left, 0.0):
            raise StorageError(
                f"{shown(self._uri)}: {self._too_long(asked, left)}: {reason}"
            ) from None
        if pause > left:
            raise StorageError(
                f"{shown(self._uri)}: no data received for {self._seconds:g} s "
                f"(WENET_UIO_DEADLINE): {reason}"
            ) from None

        self._failures += 1
        if self._failures >= FAILURES_TO_TELL and not self._has_told:
            self._tell(reason)
        time.sleep(pause)

    def _too_long(self, asked: float, left: float) -> str:
        """Describe a wait that a store asks for."""
        whole = f"WENET_UIO_DEADLINE ({self._seconds:g} s)"
        limit = whole if asked > self._seconds else f"the {max(left, 0):.0f} s left of {whole}"
        return f"the store asks to wait {asked:.0f} s, longer than {limit}"

    def _tell(self, reason: str) -> None:
        """Tell once for each silence of a server what is waited for."""
        self._has_told = True
        server = _server_of(self._uri)
        if server in _told:
            return

        _told.add(server)
        log.warning(
            "%s does not give what is asked for (%s); trying again for up to %g s "
            "(WENET_UIO_DEADLINE)",
            server,
            reason,
            self._seconds,
        )
