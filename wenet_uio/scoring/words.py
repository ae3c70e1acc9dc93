"""Cut recognised text into the units that are scored, and find their scripts. Words are cut as in
WeNet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

_PUNCTUATION = frozenset("!,?、。！，；？：「」︰『』《》")
_RUN = re.compile(r"[!-~\u00c0-\u052f\u1e00-\u1fff]+")
"""A run of ASCII, Latin, Greek or Cyrillic characters."""
_UNIT = re.compile(rf"[!,?]|<[!-=?-~]*>?|{_RUN.pattern}|\S")
"""A punctuation mark; a tag; a run; or another single character."""
_TAG = re.compile(r"<[^>]*>?")
_WORD_SPACE = "▁"
"""The space between two words, as a unit."""
_WITHOUT_SPACES = {"Mandarin", "Japanese"}
_IN_WORD_MARKS = frozenset("&'@℃=.-_#+;")
_SCRIPTS = (
    ("CJK UNIFIED IDEOGRAPH", "Mandarin"),
    ("CJK COMPATIBILITY IDEOGRAPH", "Mandarin"),
    ("LATIN CAPITAL LETTER", "English"),
    ("LATIN SMALL LETTER", "English"),
    ("DIGIT", "Number"),
    ("HIRAGANA LETTER", "Japanese"),
)


Unit = Literal["word", "char", "auto"]
"""What an error rate counts. word: words between spaces. char: characters; a space between two
words is one, except beside an ideograph or kana. auto: each ideograph and each run of Latin
characters."""


Measure = Literal["WER", "CER", "MER"]
"""What an error rate is called: that of words, of characters, or of both, the mixed error rate."""
MEASURES: dict[Measure, str] = {
    "WER": "words",
    "CER": "characters",
    "MER": "characters and words",
}
"""Measures, with what each counts."""


@dataclass(frozen=True)
class WordRules:
    """Rules that cut a text into the units that are scored."""

    unit: Unit = "word"
    """What is counted."""
    case_sensitive: bool = False
    """False: all words are converted to upper case."""
    remove_tags: bool = True
    """True: tags such as `<noise>` are removed."""
    ignored: frozenset[str] = frozenset()
    """Words to remove; upper case unless `case_sensitive`."""

    def __call__(self, text: str) -> list[str]:
        """Cut `text` into units. A letter with an accent is one character, however it is encoded
        (Unicode NFC).
        """
        text = unicodedata.normalize("NFC", text)
        uncut = _split_ideographs(text) if self.unit == "auto" else text.split()
        words: list[str] = []
        for word in uncut:
            if not self.case_sensitive:
                word = word.upper()
            if word in self.ignored:
                continue
            if self.remove_tags:
                word = _TAG.sub("", word)
            if word:
                words.append(word)

        return _split_characters(words) if self.unit == "char" else words

    def measure(self, units: Iterable[str]) -> Measure:
        """Name the error rate of references that have these units.

        The units of `auto` are characters, words or both, as the texts are.
        """
        if self.unit != "auto":
            return "CER" if self.unit == "char" else "WER"

        kinds = {bool(_RUN.fullmatch(unit)) for unit in units}
        if kinds == {True}:
            return "WER"
        return "CER" if kinds == {False} else "MER"


def _split_characters(words: list[str]) -> list[str]:
    """Cut words into characters, with a unit for each space that counts."""
    characters: list[str] = []
    for word in words:
        if characters:
            scripts_beside = (script_of(characters[-1]), script_of(word[0]))
            if _WITHOUT_SPACES.isdisjoint(scripts_beside):
                characters.append(_WORD_SPACE)
        characters.extend(word)

    return characters


def _split_ideographs(text: str) -> list[str]:
    """Cut a text into ideographs and words, as `_UNIT` finds them.

    Punctuation marks that stand alone and unassigned code points are removed.
    """
    units: list[str] = []
    for unit in _UNIT.findall(text):
        is_unassigned = len(unit) == 1 and unicodedata.category(unit) == "Cn"
        if unit not in _PUNCTUATION and not is_unassigned:
            units.append(unit)

    return units


@lru_cache(maxsize=1 << 16)
def script_of(word: str) -> str:
    """Name the script of a word: Mandarin, English, Number or Japanese; Other if it has several or
    none of these.
    """
    scripts = {_char_script(char) for char in word if char not in _IN_WORD_MARKS}
    return scripts.pop() if len(scripts) == 1 else "Other"


def _char_script(char: str) -> str:
    """Name the script of a character, which is in its Unicode name."""
    name = unicodedata.name(char, "")
    return next((script for start, script in _SCRIPTS if name.startswith(start)), "Other")
