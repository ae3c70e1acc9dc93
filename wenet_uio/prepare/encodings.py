"""Decode files of transcripts as programs of different systems write them.

UTF-8 and UTF-16 are recognised with certainty. Everything else is a guess, which readers print:
Excel writes CSV in the code page of the system, such as cp1252 or gb18030, and no file names it.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.files import naming
from wenet_uio.config.named_code import named_object
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.text.table import HAS_NUL

MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order mark -> encoding."""
ARCHIVE = b"PK\x03\x04"
"""First bytes of a zip archive, such as an .xlsx."""
SAMPLE = 1 << 14
"""Bytes of a file by which UTF-16 is known."""
GUESS = "wenet_uio.addons.corpora.code_pages:guessed_code_page"
"""`guess(data)` returns the code page that gives the most likely text; None if no one fits."""


class DecodedText(NamedTuple):
    """The text of a file, and how it was decoded."""

    text: str
    guessed: str | None
    """The encoding, if it is a guess; None for UTF-8 and UTF-16."""


def decode_file(path: str | Path) -> DecodedText:
    """Decode a file of text, without its byte order mark.

    Raises:
        ListError: no encoding fits, or the text has NUL characters.
    """
    with naming(path):
        data = Path(path).read_bytes()
    if data.startswith(ARCHIVE):
        raise ListError(f"{path}:1: an archive or spreadsheet, and no text; name it .xlsx or .ods")

    encoding = _certain_encoding(data)
    guessed = None
    if encoding is None:
        guess_code_page = named_object(GUESS, f"{path}: not UTF-8; the guess of its encoding")
        guessed = guess_code_page(data)

    text = _decode_data(path, data, encoding or guessed or "utf-8")
    if "\0" in text:
        line_number = text[: text.index("\0")].count("\n") + 1
        raise ListError(f"{path}:{line_number}: {HAS_NUL}")

    return DecodedText(text, guessed)


def read_text_file(path: str | Path) -> str:
    """Return the text of a whole file in UTF-8.

    UTF-16 with a byte order mark, as Praat writes it, is read as well.

    Raises:
        ListError: the file has another encoding, or NUL characters.
    """
    with naming(path):
        data = Path(path).read_bytes()
    has_mark = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = _decode_data(path, data, "utf-16" if has_mark else "utf-8-sig")
    if "\0" in text:
        raise ListError(f"{path}: {HAS_NUL}")

    return text


def _decode_data(path: str | Path, data: bytes, encoding: str) -> str:
    """Decode the bytes of a file; raise ListError that names the line which cannot be decoded."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line_number = data[: error.start].count(b"\n") + 1
        raise ListError(f"{path}:{line_number}: not UTF-8; convert the file with iconv") from None


def _certain_encoding(data: bytes) -> str | None:
    """Return UTF-8 or UTF-16 if a mark or the bytes themselves show it; None otherwise."""
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return encoding

    # In UTF-16 the high byte of the digits, separators and line ends of a table is NUL.
    sample = data[:SAMPLE]
    for encoding, high_byte in (("utf-16-le", 1), ("utf-16-be", 0)):
        high_bytes, low_bytes = sample[high_byte::2], sample[1 - high_byte :: 2]
        is_likely = high_bytes.count(0) > len(sample) // 8 and 0 not in low_bytes
        if is_likely and {"\n", "\r"}.intersection(sample.decode(encoding, errors="ignore")):
            return encoding

    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return "utf-8"
