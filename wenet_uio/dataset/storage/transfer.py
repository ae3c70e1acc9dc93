"""Reading from remote stores: which module reads which scheme, and versions and byte ranges, with
repeated attempts until a deadline.

To add a transport, write a module with its two functions and name it in TRANSPORTS.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, NamedTuple

from wenet_uio.base.uris import is_shown_form, server_of, shown
from wenet_uio.dataset.storage import driver_store, ftp_store, http_store
from wenet_uio.dataset.storage.addresses import check_scheme
from wenet_uio.dataset.storage.settings import deadline
from wenet_uio.dataset.storage.versions import (
    BusyError,
    DriverError,
    RefusedError,
    StorageError,
    Version,
)


class Transport(NamedTuple):
    """The two functions that read from a kind of store.

    Both make one attempt and may raise errors of any type when a connection breaks; `version_of` and
    `transfer` repeat them.
    """

    version: Callable[[str], Version]
    """Version of the object of a URI.

    Raises:
        FileNotFoundError, PermissionError, RefusedError, DriverError: another attempt would not
        help.
    """
    chunks: Callable[[str, int, int | None, Version, bool], Generator[bytes, None, None]]
    """Bytes of the object of a URI, from one offset up to another (None: the end), chunk by chunk.
    The last argument tells that the range is one of many.

    Raises:
        ChangedError: the object has another version than the one given.
        NoRangesError: the range is one of many, and reading it costs much more than a request.
        Otherwise the errors of `version`.
    """
    states_version: bool
    """Whether a range of many is compared with the version. Otherwise the caller asks for the
    version once more after the last one."""


HTTP = Transport(http_store.find_version, http_store.read_chunks, True)
FTP = Transport(ftp_store.find_version, ftp_store.read_chunks, True)
DRIVER = Transport(driver_store.find_version, driver_store.read_chunks, False)
TRANSPORTS = {"http": HTTP, "https": HTTP, "ais": HTTP, "oss": HTTP, "ftp": FTP}
"""Scheme -> transport. Every other scheme is read through its fsspec driver.

http and ftp do not use fsspec's drivers, because those cannot tell a short answer from a whole one,
do not give up a connection that sends nothing, and one needs an event loop in every worker.
"""


def transport(uri: str) -> Transport:
    """Return the transport of a URI.

    Raises:
        DriverError: the URI is only the shown form of one with a password or signature, or its
            scheme is not allowed.
    """
    if is_shown_form(uri):
        raise DriverError(
            f"{uri}: its password or signature was hidden when it was written to a report or "
            "train.yaml; "
            "name the original list or config"
        )
    check_scheme(uri)
    return TRANSPORTS.get(uri.partition("://")[0], DRIVER)


MOST_DOUBLINGS = 60
"""Enough to reach any sensible longest pause; more would overflow a float after a long outage."""


class Backoff:
    """Counts failed attempts and gives the pause before the next one.

    Pauses double from `first` up to `longest` seconds. Jitter of up to one half keeps processes
    that failed together from trying again together.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0
        """Failed attempts since the last progress."""

    def reset(self) -> None:
        """Begin with the first pause again, since there was progress."""
        self.failures = 0

    def next_pause(self) -> float:
        """Count a failed attempt; returns the seconds to wait before the next attempt."""
        doublings = min(self.failures, MOST_DOUBLINGS)
        longest = min(self._longest, self._first * 2.0**doublings)
        self.failures += 1
        return longest * random.uniform(0.5, 1.0)


log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts."""
FAILURES_BEFORE_WARNING = 4
"""Failed attempts, about a second, after which the log says what is waited for."""
PROGRESS = 1 << 20
"""Bytes that must arrive within one deadline."""
FINAL = (RefusedError, FileNotFoundError, PermissionError, DriverError)
"""Errors that another attempt would not change."""


_warned_of: set[str] = set()
"""Servers whose silence was logged in this process, and that have not answered since."""


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
            patience.note_answer()
            raise
        except Exception as error:  # drivers raise errors of any type when a connection breaks
            patience.pause(error)
        else:
            patience.note_answer()
            return version


def transfer(
    uri: str,
    write: Callable[[bytes], Any],
    start: int,
    end: int | None,
    version: Version,
    *,
    one_of_many: bool = False,
) -> None:
    """Pass the bytes of an object from `start` up to `end` (None: to the end of the object) to
    `write`.

    After a short answer or a broken connection the transfer continues at the byte where it stopped.

    Args:
        one_of_many: the range is one of many, which are read only if each costs one request. They
            may be of another version (`Transport.states_version`).

    Raises:
        NoRangesError: each of many ranges would cost more.
        FileNotFoundError, PermissionError, StorageError: no such object, no access, another
            version, or no progress until the deadline.
    """
    received = 0
    with closing(_chunks(uri, start, end, version, one_of_many)) as chunks:
        for chunk in chunks:
            write(chunk)
            received += len(chunk)

    log.debug("%s: %d bytes received", shown(uri), received)


def _chunks(
    uri: str, start: int, end: int | None, version: Version, one_of_many: bool
) -> Generator[bytes, None, None]:
    """Yield the bytes of an object, over as many connections as needed."""
    patience, position = _Patience(uri), start
    while end is None or position < end:
        try:
            read_chunks = transport(uri).chunks
            with closing(read_chunks(uri, position, end, version, one_of_many)) as connection:
                for chunk in connection:
                    patience.count_bytes(len(chunk))
                    position += len(chunk)
                    yield chunk

            # Without `end`, a connection that ends without an error has given the whole object.
            if end is None:
                break
            if position < end:
                raise ConnectionError(f"ended after {position} of {end} bytes")
        except FINAL:
            patience.note_answer()
            raise
        except Exception as error:  # drivers raise errors of any type when a connection breaks
            patience.pause(error)

    patience.note_answer()


class _Patience:
    """Back-off between attempts until a deadline; progress moves the deadline."""

    def __init__(self, uri: str, seconds: float | None = None) -> None:
        self._uri, self._backoff, self._bytes = uri, Backoff(FIRST_PAUSE, LONGEST_PAUSE), 0
        self._failures, self._has_warned = 0, False
        self._seconds = deadline() if seconds is None else min(seconds, deadline())
        self._until = time.monotonic() + self._seconds

    def count_bytes(self, count: int) -> None:
        """Count bytes that arrived; every PROGRESS bytes the deadline starts again.

        Raises:
            ConnectionError: too few bytes arrived until the deadline.
        """
        self._bytes += count
        if self._bytes >= PROGRESS:
            self._bytes, self._until = 0, time.monotonic() + self._seconds
            self._backoff.reset()
            self.note_answer()
        elif time.monotonic() > self._until:
            raise ConnectionError(f"only {self._bytes} bytes arrived")

    def note_answer(self) -> None:
        """Note that the server answers, so that its next silence is told too."""
        self._failures, self._has_warned = 0, False
        _warned_of.discard(server_of(self._uri))

    def pause(self, error: Exception) -> None:
        """Sleep before the next attempt, at least as long as a busy store asks for.

        Raises:
            RefusedError: the certificate of the server is refused, as it would be again.
            StorageError: the next attempt would be after the deadline.
        """
        if refusal := _refused_certificate(error):
            raise RefusedError(
                f"{shown(self._uri)}: the certificate of the server is refused ({refusal}); "
                "correct the address or the certificate, or name a file with the certificate of "
                "its authority in REQUESTS_CA_BUNDLE (for s3, AWS_CA_BUNDLE)"
            ) from None

        asked_seconds = error.seconds if isinstance(error, BusyError) else 0.0
        pause = max(self._backoff.next_pause(), asked_seconds)
        reason = " ".join(shown(error).split()) or type(error).__name__
        seconds_left = self._until - time.monotonic()
        if asked_seconds > max(seconds_left, 0.0):
            raise StorageError(
                f"{shown(self._uri)}: {self._too_long(asked_seconds, seconds_left)}: {reason}"
            ) from None

        if pause > seconds_left:
            raise StorageError(
                f"{shown(self._uri)}: no data received for {self._seconds:g} s "
                f"(WENET_UIO_DEADLINE): {reason}"
            ) from None

        self._failures += 1
        if self._failures >= FAILURES_BEFORE_WARNING and not self._has_warned:
            self._warn(reason)
        time.sleep(pause)

    def _too_long(self, asked_seconds: float, seconds_left: float) -> str:
        """Describe a wait that a store asks for, and that ends after the deadline."""
        limit = f"WENET_UIO_DEADLINE ({self._seconds:g} s)"
        if asked_seconds <= self._seconds:
            limit = f"the {max(seconds_left, 0):.0f} s left of {limit}"
        return f"the store asks to wait {asked_seconds:.0f} s, longer than {limit}"

    def _warn(self, reason: str) -> None:
        """Log what is waited for, once for each silence of a server."""
        self._has_warned = True
        server = server_of(self._uri)
        if server in _warned_of:
            return

        _warned_of.add(server)
        log.warning(
            "%s does not give what is asked for (%s); trying again for up to %g s "
            "(WENET_UIO_DEADLINE)",
            server,
            reason,
            self._seconds,
        )


def _refused_certificate(error: BaseException) -> str:
    """Return why a certificate was refused, if that is behind the error of a driver; else an empty
    string.
    """
    # Drivers wrap the error of the system, as its cause, as a value, or as `reason` (urllib3).
    waiting, seen = [error], set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, ssl.SSLCertVerificationError):
            return getattr(found, "verify_message", "") or shown(found)

        seen.add(id(found))
        behind = (found.__cause__, found.__context__, getattr(found, "reason", None), *found.args)
        waiting += [
            each for each in behind if isinstance(each, BaseException) and id(each) not in seen
        ]

    return ""
