"""Run a command: one-line errors, exit statuses, and Ctrl-C without a stack trace.

Commands alone import this module. It changes what an interrupt prints from then on, so that Ctrl-C
is quiet while a command still imports its libraries.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TextIO, cast

from wenet_uio.failures import AGAIN, NO_SHARED_MEMORY, StartAgainError, is_shared_memory_full
from wenet_uio.printable import PrintableStream
from wenet_uio.uris import ShownStream


def _show_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show the stack trace of an error, and nothing for Ctrl-C."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _show_failure


def run(main: Callable[[], int | None], *, prints_data: bool = False) -> None:
    """Call `main` and exit with its status (None is 0).

    Everything that the process prints from now on is shown without passwords and signatures, and
    without commands for terminals, stack traces too. A ValueError or OSError is printed as one
    `error:` line; the exit status is 1, or AGAIN after a StartAgainError.

    Args:
        prints_data: standard output has texts of utterances, which are printed unchanged, unless
            a terminal would obey characters of them.
    """
    sys.stderr = cast(TextIO, ShownStream(sys.stderr))
    if not prints_data:
        sys.stdout = cast(TextIO, ShownStream(sys.stdout))
    elif sys.stdout.isatty():
        sys.stdout = cast(TextIO, PrintableStream(sys.stdout))

    try:
        status = main()
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except (ValueError, OSError) as error:
        print(f"error: {_described(error)}", file=sys.stderr)
        status = AGAIN if isinstance(error, StartAgainError) else 1
    except KeyboardInterrupt:
        status = 130

    sys.exit(status or 0)


def _described(error: Exception) -> str:
    """Return the message of an error; an error of the system begins with the name of the file."""
    if not isinstance(error, OSError) or not error.strerror or error.filename2 is not None:
        return str(error)

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        if error.filename is None and is_shared_memory_full():
            return NO_SHARED_MEMORY
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; free space, then run the same command again"

    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
