"""Transcripts of corpora as text to train on: marks taken out, spaces and case made one."""

from __future__ import annotations

import re
import unicodedata

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACE_BESIDE_IDEOGRAPH = re.compile(f"(?<=[{_IDEOGRAPH}]) +| +(?=[{_IDEOGRAPH}])")
_NOT_OF_A_WORD = re.compile(r"[^\w'<> ]|_")
_BEFORE_GENITIVE = re.compile(r"[^\w'<> ]+(?='S\b)")
_NOT_WITHIN_LATIN = re.compile(rf"(?<![^\W\d_])'|'(?![^\W\d_])|(?<=[{_IDEOGRAPH}])'|'(?=[{_IDEOGRAPH}])")
_BACKCHANNEL = re.compile(r"\b(UH|UM|MM|HM|HUH|NUH|EH)-(?=(?:UH|UM|MM|HM|HUH|HUM|NUH)\b)")
_LONE_APOSTROPHE = re.compile(r"(?<!\S)'+(?!\S)")


def mandarin(text: str) -> str:
    """Upper case, half-width letters and digits (NFKC), no space beside a Chinese character, one between other words.

    Spaces in Mandarin corpora are word segmentation (AISHELL-1), which no unit is to learn; those between words in
    Latin letters are kept. Punctuation is taken out (AISHELL-2 has some), but for apostrophes within Latin words; marks
    such as <NOISE> stay.
    """
    folded = unicodedata.normalize("NFKC", text).replace("\u2019", "'").upper()
    words = _NOT_OF_A_WORD.sub(" ", _NOT_WITHIN_LATIN.sub("", folded)).split()
    return _SPACE_BESIDE_IDEOGRAPH.sub("", " ".join(words))


def english(text: str) -> str:
    """Upper-case words with their apostrophes, and marks such as <NOISE>; other punctuation becomes space.

    The 's of an abbreviation stays with its last letter: t.v.'s is T V'S.
    """
    folded = _BEFORE_GENITIVE.sub("", unicodedata.normalize("NFKC", text).replace("\u2019", "'").upper())
    return " ".join(_LONE_APOSTROPHE.sub(" ", _NOT_OF_A_WORD.sub(" ", folded)).split())


def english_of_calls(text: str) -> str:
    """As `english`, but what a listener says is one word: UHHUH, UMHUM. UH and UM alone are hesitations."""
    return english(_BACKCHANNEL.sub(r"\1", text.upper()))
