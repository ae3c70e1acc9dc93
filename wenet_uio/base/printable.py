"""Texts for a terminal: characters that a terminal would obey are printed as escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

_COMMAND = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    # A carriage return inside a text would let the rest overwrite the beginning.
    r"|(?<!\A)\r(?!\n|\Z)"
)
"""Control characters, and marks that change the direction of what follows, in a text that is
written at once."""
_PROGRESS = re.compile(r"(?:\n|\r|\x1b\[A)*")
"""Movements that progress bars write alone; only the cursor moves."""


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
