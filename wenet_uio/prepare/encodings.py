"""Decode files of transcripts as programs of different systems write them.

UTF-8 and UTF-16 are recognised with certainty. Everything else is a guess, which readers print:
Excel writes CSV in the code page of the system, such as cp1252 or gb18030, and no file names it.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from charset_normalizer import from_bytes

from wenet_uio.base.files import naming
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
CODE_PAGES = (
    *("cp1252", "gb18030", "cp1251", "cp1250", "cp1254", "cp1253", "cp932", "cp949", "big5"),
    *("mac_roman", "cp1255", "cp1256"),
)
"""Encodings that are guessed, the most common ones first."""
SAMPLE = 1 << 14
"""Bytes of lines beyond ASCII that a guess looks at."""
WORD = re.compile(r"[^\s,;|\"'().!?:/\\-]+")
ASIAN_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "FULLWIDTH", "HALFWIDTH", "HANGUL", "BOPOMOFO")
"""First words of the names of letters that words of Chinese, Japanese and Korean mix."""
RARE = re.compile("[þðÞÐ\uff61-\uff9f]")
"""Letters of Icelandic, where cp1254 has the far more common ones of Turkish; and katakana of half
width, which cp932 makes of any other text."""


class DecodedText(NamedTuple):
    """The text of a file, and how it was decoded."""

    text: str
    guessed: str | None
    """The encoding, if it is a guess; None for UTF-8 and UTF-16."""


def decoded(path: str | Path) -> DecodedText:
    """Decode a file of text, without its byte order mark.

    Raises:
        ListError: no encoding fits, or the text has NUL characters.
    """
    with naming(path):
        data = Path(path).read_bytes()
    if data.startswith(ARCHIVE):
        raise ListError(f"{path}:1: an archive or spreadsheet, and no text; name it .xlsx or .ods")

    encoding = _certain_encoding(data)
    guessed = None if encoding else _guess(data)
    try:
        text = data.decode(encoding or guessed or "utf-8")
    except UnicodeDecodeError as error:
        place = data[: error.start].count(b"\n") + 1
        raise ListError(f"{path}:{place}: not UTF-8; convert the file with iconv") from None

    if "\0" in text:
        place = text[: text.index("\0")].count("\n") + 1
        raise ListError(f"{path}:{place}: {HAS_NUL}")

    return DecodedText(text, guessed)


def _certain_encoding(data: bytes) -> str | None:
    """Return UTF-8 or UTF-16 if a mark or the bytes themselves show it; None otherwise."""
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return encoding

    # In UTF-16 every second byte of the digits, separators and line ends of a table is NUL.
    sample = data[:SAMPLE]
    for encoding, high, low in (("utf-16-le", 1, 0), ("utf-16-be", 0, 1)):
        is_likely = sample[high::2].count(0) > len(sample) // 8 and 0 not in sample[low::2]
        if is_likely and {"\n", "\r"}.intersection(sample.decode(encoding, errors="ignore")):
            return encoding

    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return "utf-8"


def _guess(data: bytes) -> str | None:
    """Return the code page that gives the most likely text; None if no one fits.

    charset-normalizer names the candidates and their disorder. Tables are often too short for its
    order of them, which is that of the alphabet, so that words of several scripts come first.
    """
    lines = [line for line in data.splitlines(keepends=True) if not line.isascii()]
    sample = b"".join(lines)[:SAMPLE]
    # A cut sample may end inside a character.
    sample = sample[: sample.rfind(b"\n") + 1] or sample

    candidates = []
    for match in from_bytes(sample, cp_isolation=list(CODE_PAGES), threshold=1.0):
        for encoding in {match.encoding, *match.could_be_from_charset}.intersection(CODE_PAGES):
            text = sample.decode(encoding)
            disorder = (_strange_words(text), round(match.chaos, 2), -round(match.coherence, 1))
            rare_letters = len(RARE.findall(text))
            candidates.append((rare_letters, disorder, CODE_PAGES.index(encoding)))

    for _, _, index in sorted(candidates):
        if _fits(data, CODE_PAGES[index]):
            return CODE_PAGES[index]

    return None


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _strange_words(text: str) -> int:
    """Count words that a wrong encoding makes: of several scripts, with symbols or capitals inside."""
    return sum(map(_is_strange, WORD.findall(text)))


def _is_strange(word: str) -> bool:
    letters = list(filter(str.isalpha, word))
    inner = [letter for letter in word[1:] if not letter.isascii()]
    has_symbol = any(map(_is_symbol, word)) and bool(letters)
    has_capital = any(map(str.isupper, inner)) and any(map(str.islower, letters))
    return has_symbol or has_capital or len(set(map(_script, letters))) > 1


def _is_symbol(letter: str) -> bool:
    """Tell whether a character is neither a letter, a digit, nor a mark beside words."""
    category = unicodedata.category(letter)
    is_usual = letter.isascii() or letter.isalpha() or category[0] in "PM"
    return not is_usual and category not in ("Nd", "Sc")


def _script(letter: str) -> str:
    script = unicodedata.name(letter, "?").split()[0].split("-")[0]
    return "ASIAN" if script in ASIAN_SCRIPTS else script
