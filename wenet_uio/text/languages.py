"""Normalise transcripts of many languages, by Unicode and by the rules of each language.

All of them: NFKC without invisible characters; letters, marks of letters and digits stay; small
letters; an apostrophe stays between letters; marks such as <NOISE> stay as they are; all other
punctuation and symbols become a space. Digits stay, because their reading depends on the sentence:
write numbers as they are spoken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from wenet_uio.text.characters import without_invisible

LANGUAGES = (
    *("arabic", "cantonese", "catalan", "czech", "danish", "dutch", "finnish", "french", "german"),
    *("greek", "hebrew", "hindi", "hungarian", "indonesian", "italian", "japanese", "korean"),
    *("norwegian", "persian", "polish", "portuguese", "romanian", "russian", "spanish", "swedish"),
    *("thai", "turkish", "ukrainian", "vietnamese"),
)
"""Languages with rules of their own, or with those of all languages."""
WITHOUT_SPACES = frozenset({"cantonese", "japanese", "thai"})
"""Languages that are scored by characters, as Mandarin is."""
MARK = re.compile(r"<\w+>")
"""A mark of noise or of an unknown word."""
APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\uff07", "''''")
TURKISH_CAPITALS = str.maketrans({"I": "ı", "İ": "i"})
TATWEEL = "\u0640"
"""Lengthens a word of Arabic script, and is no letter."""
ASIAN = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
SPACE_BESIDE_ASIAN = re.compile(f"(?<=[{ASIAN}]) +| +(?=[{ASIAN}])")


def normaliser(language: str) -> Callable[[str], str]:
    """Return the function that normalises texts of a language of LANGUAGES.

    - german: ß stays ß, and capital ẞ becomes ß.
    - turkish: I becomes ı, and İ becomes i.
    - arabic, persian: the tatweel, which lengthens words, is removed.
    - japanese, cantonese: no space beside their characters.
    """

    def normalise(text: str) -> str:
        folded = unicodedata.normalize("NFKC", without_invisible(text)).translate(APOSTROPHES)
        words = _lower_between_marks(folded.replace(TATWEEL, ""), language).split()
        joined = " ".join(words)
        return SPACE_BESIDE_ASIAN.sub("", joined) if language in WITHOUT_SPACES else joined

    return normalise


def _lower_between_marks(text: str, language: str) -> str:
    """Return a text in small letters, without punctuation; marks such as <NOISE> stay."""
    pieces: list[str] = []
    place = 0
    for mark in MARK.finditer(text):
        pieces += [_lower_words(text[place : mark.start()], language), f" {mark[0]} "]
        place = mark.end()

    pieces.append(_lower_words(text[place:], language))
    return "".join(pieces)


def _lower_words(text: str, language: str) -> str:
    """Return a text without marks in small letters; what is no part of a word becomes a space."""
    if language == "turkish":
        text = text.translate(TURKISH_CAPITALS)
    small = text.lower()

    letters: list[str] = []
    for place, letter in enumerate(small):
        if not _is_part_of_word(small, place):
            letter = " "
        letters.append(letter)
    return "".join(letters)


def _is_part_of_word(text: str, place: int) -> bool:
    """Tell whether a character is a part of a word: a letter, its mark, a digit, an apostrophe."""
    if text[place] == "'":
        return text[:place][-1:].isalpha() and text[place + 1 : place + 2].isalpha()
    return unicodedata.category(text[place])[0] in "LMN"
