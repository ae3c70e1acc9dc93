"""The pulse of a thread, by which others see that it hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """Tells for how long a thread has been at one piece of work.

    The thread calls `beat` and `rest`; any thread may call `trouble`.
    """

    def __init__(self, name: str) -> None:
        """Begin at rest; `name` is that of the thread for a person."""
        self._name = name
        self._begin: float | None = None
        """Time of the last beat; None: the thread waits for work."""

    def beat(self) -> None:
        """Note that the next piece of work begins."""
        self._begin = time.monotonic()

    def rest(self) -> None:
        """Note that there is no work."""
        self._begin = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Beat at the begin of a block, and rest after it."""
        self.beat()
        try:
            yield
        finally:
            self.rest()

    def trouble(self, most: float) -> str | None:
        """Say that one piece of work takes more than `most` seconds; None: all is well."""
        begin = self._begin
        if begin is None or time.monotonic() - begin <= most:
            return None

        seconds = time.monotonic() - begin
        return f"{self._name}: at one piece of work for {seconds:.0f} s (--hung_seconds {most:g})"
