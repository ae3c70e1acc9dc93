"""Notes that --quiet silences, warnings that come once, and short lists of many findings."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice

log = logging.getLogger(__name__)
PACKAGE = logging.getLogger("wenet_uio")
"""The parent of all loggers of the package. Its level says what is shown: above INFO, no notes and
no progress bars."""
said_once: dict[str, object] = {}
"""The messages of `warn_once`, each with the mark of the call that logged it."""


def start_log(form: str, level: int = logging.INFO) -> None:
    """Show the log of the package from `level` on, unless an option has set the level; of other
    packages, warnings.
    """
    logging.basicConfig(format=form, datefmt="%F %T")
    if PACKAGE.level == logging.NOTSET:
        PACKAGE.setLevel(level)


def is_quiet() -> bool:
    """Whether only results, warnings and errors are asked for."""
    return PACKAGE.level > logging.INFO


def hides_bar() -> bool | None:
    """Return the option `disable` of a progress bar; None: a bar on a terminal only."""
    return True if is_quiet() else None


@contextmanager
def unsaid() -> Iterator[None]:
    """Log nothing of the package, such as while something is tried again that has logged it all."""
    level = PACKAGE.level
    PACKAGE.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        PACKAGE.setLevel(level)


def note(*lines: str) -> None:
    """Print what is good to know, but neither result nor warning, on standard error."""
    if not is_quiet():
        print(*lines, sep="\n", file=sys.stderr, flush=True)


def listed(items: Collection[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` items, followed by the number of the others: `a, b, c and 4 more`."""
    first = separator.join(islice(items, most))
    return f"{first} and {len(items) - most} more" if len(items) > most else first


def warn_once(message: str) -> None:
    """Log a message that would otherwise come again and again, from each stream, thread or reading
    of a file.
    """
    mark = object()
    if said_once.setdefault(message, mark) is mark:  # one step, so that one of the threads logs
        log.warning("%s", message)
