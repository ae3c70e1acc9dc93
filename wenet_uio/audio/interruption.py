"""End long work on audio early: readers call a check again and again, which may raise.

Decoding and finding speech go through many layers, and hours of audio take minutes. The check
reaches the loops at the bottom without being an argument of every function in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CHECK_SECONDS = 0.5
"""Seconds between two checks of a thread that waits for others."""


class InterruptionError(Exception):
    """A check raises this, or a subclass of it, to end the reading of audio."""


_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` while audio is read within the block, in this thread; an InterruptionError that
    it raises ends the block.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_interruption() -> None:
    """Call the check of the surrounding `interruptible`, if there is one."""
    check = _check.get()
    if check is not None:
        check()
