"""What counts as a word when recognised text is scored, and which script it belongs to. The rules are WeNet's."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_PUNCTUATION = frozenset("!,?、。！，；？：「」︰『』《》")
_UNIT = re.compile(r"[!,?]|<[!-=?-~]*>?|[!-~\u00c0-\u052f\u1e00-\u1fff]+|\S")
"""A mark, a tag, a run of ASCII, Latin, Greek and Cyrillic, or a single character of another script."""
_TAG = re.compile(r"<[^>]*>?")
_IN_WORD_MARKS = frozenset("&'@℃=.-_#+;")
_SCRIPTS = (
    ("CJK UNIFIED IDEOGRAPH", "Mandarin"),
    ("CJK COMPATIBILITY IDEOGRAPH", "Mandarin"),
    ("LATIN CAPITAL LETTER", "English"),
    ("LATIN SMALL LETTER", "English"),
    ("DIGIT", "Number"),
    ("HIRAGANA LETTER", "Japanese"),
)


@dataclass(frozen=True)
class WordRules:
    """How a text is cut into the words that are compared."""

    by_character: bool = False
    """Each ideograph is a word, and so is each run of Latin characters; else words stand between spaces."""
    case_sensitive: bool = False
    remove_tags: bool = True
    """`<noise>` and the like are left out."""
    ignored: frozenset[str] = frozenset()
    """Words left out; in upper case unless case_sensitive."""

    def __call__(self, text: str) -> list[str]:
        """The words of `text`."""
        words = _by_character(text) if self.by_character else text.split()
        if not self.case_sensitive:
            words = [word.upper() for word in words]
        words = [word for word in words if word not in self.ignored]
        if self.remove_tags:
            words = [_TAG.sub("", word) for word in words]
        return [word for word in words if word]


def _by_character(text: str) -> list[str]:
    """Runs of alphabetic and ASCII characters whole, others one by one; punctuation that stands alone is left out."""
    return [
        unit
        for unit in _UNIT.findall(text)
        if unit not in _PUNCTUATION and not (len(unit) == 1 and unicodedata.category(unit) == "Cn")
    ]


@lru_cache(maxsize=1 << 16)
def script_of(word: str) -> str:
    """Mandarin, English, Number, Japanese, or Other for a word of no or several of them."""
    scripts = {_script_of_char(char) for char in word if char not in _IN_WORD_MARKS}
    return scripts.pop() if len(scripts) == 1 else "Other"


def _script_of_char(char: str) -> str:
    name = unicodedata.name(char, "")
    return next((script for start, script in _SCRIPTS if name.startswith(start)), "Other")
