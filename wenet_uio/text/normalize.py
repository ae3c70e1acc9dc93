"""Normalise transcripts for training: punctuation, spaces, letter case, English numbers."""

from __future__ import annotations

import re
import unicodedata

from wenet_uio.text.characters import without_invisible

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACE_BESIDE_IDEOGRAPH = re.compile(f"(?<=[{_IDEOGRAPH}]) +| +(?=[{_IDEOGRAPH}])")
_NOT_OF_A_WORD = re.compile(r"[^\w'<> ]|_")
_BEFORE_GENITIVE = re.compile(r"[^\w'<> ]+(?='S\b)")
_NOT_WITHIN_LATIN = re.compile(
    rf"(?<![^\W\d_])'|'(?![^\W\d_])|(?<=[{_IDEOGRAPH}])'|'(?=[{_IDEOGRAPH}])"
)
_BACKCHANNEL = re.compile(r"\b(UH|UM|MM|HM|HUH|NUH|EH)-(?=(?:UH|UM|MM|HM|HUH|HUM|NUH)\b)")
_LONE_APOSTROPHE = re.compile(r"(?<!\S)'+(?!\S)")
_ONES = (
    *("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
"""Those that are not the number with `th`."""
_SIGNS = {"%": " percent", "": ""}
_NUMBER = re.compile(
    r"(?<![\w$£€¥.,:/+-])"  # not a part of 10:30, 3.5, 5-10, $5 or B12
    r"([1-9]\d?)(?:(st|nd|rd|th)\b|(%|)(?![\w%]|[.,:/-]\d))"
)


def mandarin(text: str) -> str:
    """Normalise a Mandarin transcript.

    The result has upper case, half-width letters and digits (NFKC), no space beside a Chinese
    character, and one space between other words. Spaces between Chinese characters are word
    segmentation (AISHELL-1), which a model should not learn. Punctuation is removed (AISHELL-2 has
    some), except apostrophes within Latin words. Marks such as <NOISE> stay.
    """
    folded = _fold_text(text)
    words = _NOT_OF_A_WORD.sub(" ", _NOT_WITHIN_LATIN.sub("", folded)).split()
    return _SPACE_BESIDE_IDEOGRAPH.sub("", " ".join(words))


def english(text: str) -> str:
    """Normalise an English transcript.

    The result has upper-case words with their apostrophes, and marks such as <NOISE>. Other
    punctuation becomes a space, but the 's of an abbreviation stays with the last letter: t.v.'s
    becomes T V'S.
    """
    folded = _fold_text(text)
    without_dots = _BEFORE_GENITIVE.sub("", folded)
    words = _LONE_APOSTROPHE.sub(" ", _NOT_OF_A_WORD.sub(" ", without_dots))
    return " ".join(words.split())


def english_of_calls(text: str) -> str:
    """Normalise an English transcript of a call.

    The result is that of `english`, but backchannels become one word: UHHUH, UMHUM.

    UH and UM alone are hesitations and stay separate words.
    """
    return english(_BACKCHANNEL.sub(r"\1", without_invisible(text).upper()))


def _fold_text(text: str) -> str:
    """Return a text in upper case and NFKC, without invisible characters."""
    folded = unicodedata.normalize("NFKC", without_invisible(text))
    return folded.replace("\u2019", "'").upper()


def spell_numbers(text: str) -> str:
    """Write 1 to 99, 1st to 99th and percentages of them as words, in small letters.

    Other numbers keep their digits: 1990 and 2648 have several readings.
    """
    return _NUMBER.sub(_spell_number, text)


def _spell_number(number: re.Match[str]) -> str:
    """Spell a number below 100; the groups of the match are digits, ordinal ending and sign."""
    value, ordinal, sign = int(number[1]), number[2], number[3] or ""
    tens, ones = divmod(value, 10)
    words = [_ONES[value]] if value < len(_ONES) else [_TENS[tens], _ONES[ones]]
    words = [word for word in words if word]
    if ordinal:
        words[-1] = _ordinal_word(words[-1])

    return " ".join(words) + _SIGNS[sign]


def _ordinal_word(word: str) -> str:
    """Return the ordinal of a number below 20, or of a multiple of ten."""
    if word.endswith("y"):
        return f"{word[:-1]}ieth"
    return _ORDINALS.get(word, f"{word}th")
