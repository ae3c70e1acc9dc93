"""Cut recognised text into the words that are scored, and find their scripts. The rules are those of WeNet."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_PUNCTUATION = frozenset("!,?、。！，；？：「」︰『』《》")
_UNIT = re.compile(r"[!,?]|<[!-=?-~]*>?|[!-~\u00c0-\u052f\u1e00-\u1fff]+|\S")
"""A punctuation mark; a tag; a run of ASCII, Latin, Greek or Cyrillic characters; or another single character."""
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
    """How a text is cut into words before scoring."""

    by_character: bool = False
    """True: each ideograph and each run of Latin characters is a word. False: words are separated by spaces."""
    case_sensitive: bool = False
    """False: all words are converted to upper case."""
    remove_tags: bool = True
    """True: tags such as `<noise>` are removed."""
    ignored: frozenset[str] = frozenset()
    """Words to remove; upper case unless `case_sensitive`."""

    def __call__(self, text: str) -> list[str]:
        """Cut `text` into words."""
        words = _by_character(text) if self.by_character else text.split()
        if not self.case_sensitive:
            words = [word.upper() for word in words]
        words = [word for word in words if word not in self.ignored]
        if self.remove_tags:
            words = [_TAG.sub("", word) for word in words]
        return [word for word in words if word]


def _by_character(text: str) -> list[str]:
    """Cut a text by `_UNIT`; punctuation marks that stand alone and unassigned code points are removed."""
    return [
        unit
        for unit in _UNIT.findall(text)
        if unit not in _PUNCTUATION and not (len(unit) == 1 and unicodedata.category(unit) == "Cn")
    ]


@lru_cache(maxsize=1 << 16)
def script_of(word: str) -> str:
    """Script of a word: Mandarin, English, Number or Japanese; Other if it has several or none of these."""
    scripts = {_script_of_char(char) for char in word if char not in _IN_WORD_MARKS}
    return scripts.pop() if len(scripts) == 1 else "Other"


def _script_of_char(char: str) -> str:
    name = unicodedata.name(char, "")
    return next((script for start, script in _SCRIPTS if name.startswith(start)), "Other")
