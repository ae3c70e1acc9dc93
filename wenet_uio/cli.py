"""What all commands share: one-line errors, warnings that come once, and short lists of many
findings.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TextIO, cast

from wenet_uio.printable import PrintableStream
from wenet_uio.uris import ShownStream

log = logging.getLogger(__name__)

AGAIN = os.EX_TEMPFAIL
"""Exit status 75: the same command continues if it is started again."""
SHARED_MEMORY = "/dev/shm"
"""File system through which processes share memory and semaphores."""
NO_SHARED_MEMORY = (
    f"{SHARED_MEMORY} is full, through which worker processes hand over their results: make it "
    "larger (docker run "
    "--shm-size 8g, or --ipc host), or use fewer workers, a lower --prefetch or smaller batches"
)


class StartAgainError(ValueError):
    """An expected failure that does not occur again if the same command is started again."""


def listed(items: Collection[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` items, followed by the number of the others: `a, b, c and 4 more`."""
    first = separator.join(islice(items, most))
    return f"{first} and {len(items) - most} more" if len(items) > most else first


@cache
def warn_once(message: str) -> None:
    """Log a message that would otherwise come again and again, from each stream or each reading of
    a file.
    """
    log.warning("%s", message)


def is_shared_memory_full(needed: int = 1 << 16) -> bool:
    """Tell whether less than `needed` bytes are free in the file system of shared memory."""
    return Path(SHARED_MEMORY).is_dir() and shutil.disk_usage(SHARED_MEMORY).free < needed


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
