"""The pulse of threads, by which others see that one hangs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """Tells for how long threads of one kind have been at one piece of work.

    They call `beat`, `rest` and `working`; any thread may call `trouble`.
    """

    def __init__(self, name: str) -> None:
        """Begin at rest; `name` is that of the threads for a person."""
        self._name = name
        self._begins: dict[int, float] = {}
        """{number of a thread: time of its last beat}; those that wait for work are left out."""

    def beat(self) -> None:
        """Note that the next piece of work of this thread begins."""
        self._begins[threading.get_ident()] = time.monotonic()

    def rest(self) -> None:
        """Note that this thread has no work."""
        self._begins.pop(threading.get_ident(), None)

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
        # `list` is one step, while threads beat.
        longest = time.monotonic() - min(list(self._begins.values()), default=math.inf)
        if longest <= most:
            return None
        return f"{self._name}: at one piece of work for {longest:.0f} s (--hung_seconds {most:g})"
