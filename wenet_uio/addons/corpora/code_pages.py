"""Guess the code page of a text that is not UTF-8: Excel writes CSV in that of the system, such as
cp1252 or gb18030, and no file names it.
"""

from __future__ import annotations

import re
import unicodedata

from charset_normalizer import from_bytes

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


def guessed_code_page(data: bytes) -> str | None:
    """Return the code page that gives the most likely text; None if no one fits.

    charset-normalizer names the code pages that fit, and how disordered their texts are. Tables are
    often too short for its ranking: it knows letters, not words. So the number of rare letters
    counts first, then that of words that mix scripts, then its own measures.
    """
    lines = [line for line in data.splitlines(keepends=True) if not line.isascii()]
    sample = b"".join(lines)[:SAMPLE]
    # A cut sample may end inside a character.
    sample = sample[: sample.rfind(b"\n") + 1] or sample

    candidates = []
    for match in from_bytes(sample, cp_isolation=list(CODE_PAGES), threshold=1.0):
        for encoding in {match.encoding, *match.could_be_from_charset}.intersection(CODE_PAGES):
            text = sample.decode(encoding)
            # Words that a wrong encoding makes: of several scripts, with symbols or capitals inside
            strange_words = sum(map(_is_strange, WORD.findall(text)))
            disorder = (strange_words, round(match.chaos, 2), -round(match.coherence, 1))
            rare_letters = len(RARE.findall(text))
            candidates.append((rare_letters, disorder, CODE_PAGES.index(encoding)))

    for _, _, index in sorted(candidates):
        if _can_decode(data, CODE_PAGES[index]):
            return CODE_PAGES[index]

    return None


def _can_decode(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_strange(word: str) -> bool:
    letters = list(filter(str.isalpha, word))
    inner = [letter for letter in word[1:] if not letter.isascii()]
    has_symbol = any(map(_is_symbol, word)) and bool(letters)
    has_capital = any(map(str.isupper, inner)) and any(map(str.islower, letters))
    return has_symbol or has_capital or len(set(map(_letter_script, letters))) > 1


def _is_symbol(letter: str) -> bool:
    """Tell whether a character is neither a letter, a digit, nor a mark beside words."""
    category = unicodedata.category(letter)
    is_usual = letter.isascii() or letter.isalpha() or category[0] in "PM"
    return not is_usual and category not in ("Nd", "Sc")


def _letter_script(letter: str) -> str:
    script = unicodedata.name(letter, "?").split()[0].split("-")[0]
    return "ASIAN" if script in ASIAN_SCRIPTS else script
