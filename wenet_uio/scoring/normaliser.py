"""Normalise texts before they are scored, so that error rates compare with those of others.

- english: Whisper's normaliser for English. It removes case, punctuation, hesitations and what
  stands in brackets; contractions, numbers, currencies and British spellings become one form.
- basic: for all other languages. It removes case, punctuation, symbols and what stands in brackets.
  Whisper's basic normaliser also cuts words at marks that do not compose with their letter, such as
  vowel signs of Hindi; here such marks stay, because other vowels are other words.

A. Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, appendix C.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from wenet_uio.base.imports import need_extra

NormaliserName = Literal["english", "basic"]

_ENGLISH = "en"
_ASIDES = (re.compile(r"[<\[][^>\]]*[>\]]"), re.compile(r"\([^)]+\)"))
"""What stands in brackets, and then in parentheses."""


def normaliser_for(language: str | None) -> NormaliserName:
    """Name the normaliser of a language.

    Args:
        language: ISO 639-1 code; None, or several codes with commas: basic.
    """
    return "english" if language == _ENGLISH else "basic"


def load_normaliser(name: NormaliserName) -> Callable[[str], str]:
    """Return the function that normalises a text: words in small letters, with single spaces.

    Raises:
        ValueError: english, and its package is not installed; the message says how to install it.
    """
    if name == "basic":
        return _basic

    need_extra("normalize", ("whisper_normalization",))
    from whisper_normalization import EnglishTextNormalizer

    normalise = EnglishTextNormalizer()
    return lambda text: normalise(text).strip()


def _basic(text: str) -> str:
    """Return a text in small letters, without asides, punctuation and symbols."""
    small = text.lower()
    for aside in _ASIDES:
        small = aside.sub("", small)

    letters: list[str] = []
    for letter in unicodedata.normalize("NFKC", small):
        letters.append(" " if unicodedata.category(letter)[0] in "PS" else letter)
    return " ".join("".join(letters).lower().split())
