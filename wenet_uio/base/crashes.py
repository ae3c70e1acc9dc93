"""Processes that fail: those that the same command continues, and native code that crashes its
process, such as a decoder on damaged audio.

A worker that crashes takes all of its work with it and names nothing. So the work is repeated in a
careful process: it forks before each call that may crash, and makes the call itself only if the
forked process survived it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NOT_CRASHES = (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of processes that did not crash. Linux sends SIGKILL when memory runs out."""
HANDLED = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""Signals for which torch or faulthandler may print a message."""
AGAIN = os.EX_TEMPFAIL
"""Exit status 75: the same command continues if it is started again."""

_is_careful = False
"""Whether `rehearse` forks in this process."""


class StartAgainError(ValueError):
    """An expected failure that does not occur again if the same command is started again."""


def be_careful() -> None:
    """Make this process careful: from now on `rehearse` forks."""
    global _is_careful
    _is_careful = True


def is_careful() -> bool:
    """Tell whether `rehearse` forks in this process."""
    return _is_careful


@contextmanager
def careful() -> Iterator[None]:
    """Make this process careful in a block."""
    global _is_careful
    was_careful = _is_careful
    _is_careful = True
    try:
        yield
    finally:
        _is_careful = was_careful


def has_crashed(exitcode: int | None) -> bool:
    """Tell from the exit status of a process (-11: ended by signal 11) whether it crashed; None: it
    still runs.
    """
    return exitcode is not None and exitcode not in NOT_CRASHES


def describe_exit(exitcode: int) -> str:
    """Describe an exit status in words: SIGSEGV, or exit status 3."""
    return signal.Signals(-exitcode).name if exitcode < 0 else f"exit status {exitcode}"


def rehearse(call: Callable[[], object]) -> str | None:
    """Make a call in a forked process first, if this process is careful; do nothing in others.

    Exceptions of the call are ignored: the caller makes the call again and gets them.

    Returns:
        how the forked process crashed; None if it did not.

    Raises:
        OSError: the forked process was killed (ENOMEM), which is not the fault of the call.
    """
    if not _is_careful:
        return None

    process = os.fork()
    if not process:
        try:
            # no stack trace and no core file: the parent reports the crash
            for number in HANDLED:
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            call()
        finally:
            # Leave without the clean-up that the parent does for itself. An exception exits with 0
            # too: it is no crash.
            os._exit(0)

    exitcode = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if has_crashed(exitcode):
        return describe_exit(exitcode)

    if exitcode:
        raise OSError(
            errno.ENOMEM, f"a process was ended by {describe_exit(exitcode)}; did memory run out?"
        )

    return None
