"""Kaldi's text tables: each line has a key, a space, and the text of the utterance."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path

from wenet_uio.base.files import naming

HAS_NUL = "holds NUL characters; convert the file with iconv if it is UTF-16, or remove them"


def read_table(path: str | Path) -> dict[str, str]:
    """Read `key text` lines as {key: text}, in the order of the file.

    A line with only a key has an empty text.

    Raises:
        ValueError: a key occurs twice, or a line is not UTF-8; the message has file and line.
    """
    return parse_table(path, numbered_lines(path))


def parse_table(path: str | Path, lines: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return numbered `key text` lines as `read_table` does; `path` is where they were read."""
    table: dict[str, str] = {}
    for number, line in lines:
        if not line.strip():
            continue

        parts = line.split(maxsplit=1)
        key = parts[0]
        text = parts[1] if len(parts) == 2 else ""
        if key in table:
            raise ValueError(
                f"{path}:{number}: utterance {key!r} is there twice; remove one of the lines"
            )

        table[key] = text.strip()

    return table


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read (number, line) pairs of a UTF-8 file, numbered from 1.

    Lines come without line ends and byte order mark.

    Raises:
        ValueError: a line is not UTF-8, or holds NUL characters; the message has file and line.
    """
    with open(path, "rb") as file, naming(path):
        for number, raw in enumerate(file, 1):
            if number == 1:
                raw = raw.removeprefix(BOM_UTF8)
            if b"\0" in raw:
                raise ValueError(f"{path}:{number}: {HAS_NUL}")
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(
                    f"{path}:{number}: not UTF-8; convert the file with iconv"
                ) from None
