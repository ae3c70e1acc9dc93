"""Write numbers of English texts as they are spoken, where they have one reading only."""

from __future__ import annotations

import re

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


def with_spoken_numbers(text: str) -> str:
    """Write 1 to 99, 1st to 99th and percentages of them as words, in small letters.

    Other numbers keep their digits: 1990 and 2648 have several readings.
    """
    return _NUMBER.sub(_words, text)


def _words(number: re.Match[str]) -> str:
    """Spell a number below 100; the groups of the match are digits, ordinal ending and sign."""
    value, ordinal, sign = int(number[1]), number[2], number[3] or ""
    tens, ones = divmod(value, 10)
    words = [_ONES[value]] if value < len(_ONES) else [_TENS[tens], _ONES[ones]]
    words = [word for word in words if word]
    if ordinal:
        words[-1] = _ordinal(words[-1])

    return " ".join(words) + _SIGNS[sign]


def _ordinal(word: str) -> str:
    if word.endswith("y"):
        return f"{word[:-1]}ieth"
    return _ORDINALS.get(word, f"{word}th")
