"""Kaldi's text tables: a key, a space, and the text of an utterance a line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path


def read_table(path: str | Path) -> dict[str, str]:
    """Read `key text` lines as {key: text}, in the order of the file; a key alone has empty text.

    Raises:
        ValueError: naming file and line, for a key that comes twice, or bytes that are not UTF-8.
    """
    table: dict[str, str] = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        key, text = [*line.split(maxsplit=1), ""][:2]
        if key in table:
            raise ValueError(f"{path}:{number}: utterance {key!r} is there twice")
        table[key] = text.strip()
    return table


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file, counted from 1, without their ends and without the byte order mark of some editors.

    Raises:
        ValueError: naming file and line, for bytes that are not UTF-8.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            if number == 1:
                raw = raw.removeprefix(BOM_UTF8)
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"{path}:{number}: not UTF-8; convert the file with iconv") from None
