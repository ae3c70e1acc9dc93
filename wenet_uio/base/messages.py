"""Texts for the user: notes that --quiet silences, warnings that come once, short lists of many
findings, the name that was probably meant, and characters that a terminal would obey.
"""

from __future__ import annotations

import difflib
import logging
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TextIO

log = logging.getLogger(__name__)
PACKAGE = logging.getLogger("wenet_uio")
"""The parent of all loggers of the package. Its level says what is shown: above INFO, no notes and
no progress bars."""
said_once: dict[str, object] = {}
"""The messages of `warn_once`, each with the mark of the call that logged it."""
LEAST_SIMILARITY = 0.5
"""Names that share fewer of their letters, in order, are no suggestion."""
_COMMAND = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    # A carriage return inside a text would let the rest overwrite the beginning.
    r"|(?<!\A)\r(?!\n|\Z)"
)
"""Control characters, and marks that change the direction of what follows, in a text that is
written at once."""
_PROGRESS = re.compile(r"(?:\n|\r|\x1b\[A)*")
"""Movements that progress bars write alone; only the cursor moves."""


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


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, whatever the case of their letters;
    None if none is similar.
    """
    in_lower_case = {candidate.lower(): candidate for candidate in known}
    similar = difflib.get_close_matches(name.lower(), in_lower_case, 1, LEAST_SIMILARITY)
    return in_lower_case[similar[0]] if similar else None


def printable(text: str) -> str:
    r"""Return a text in which control characters are escapes such as `\u001b`.

    Line ends and tabs stay, and so do carriage returns at the start and at the end, by which
    progress bars return to the start of their line. The escapes are valid in strings of JSON.
    """
    if not _COMMAND.search(text) or _PROGRESS.fullmatch(text):
        return text
    return _COMMAND.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class PrintableStream:
    """A terminal, to which every text is written `printable`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
