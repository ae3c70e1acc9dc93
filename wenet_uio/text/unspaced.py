"""Cut a run of letters into characters, in scripts that write no space between words.

Ideographs, kana, Yi and the scripts of mainland South-East Asia (Thai, Lao, Khmer, Burmese and
their neighbours), Tibetan, Javanese and Balinese. A character is a letter with its marks, as a
reader counts it; finding words would need a dictionary of each language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f"  # kana, zhuyin
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # ideographs
    "\ua000-\ua48c"  # Yi
    "\u0e01-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"  # Burmese, Shan, Karen
    "\u1780-\u17f9"  # Khmer
    "\u1950-\u19df\u1a20-\u1aad\uaa80-\uaadf"  # scripts of the Tai languages
    "\u1b00-\u1b7f\ua980-\ua9df"  # Balinese, Javanese
)
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_CONTINUES = re.compile(
    "[ぁぃぅぇぉっゃゅょゎゕゖゝゞァィゥェォッャュョヮヵヶㇰ-ㇿーヽヾｧ-ｰﾞﾟ"
    "ะาำๅๆฯະາຳຽໆຯ\u19b0-\u19b4\u19b8-\u19b9\u19bb-\u19c0\u19c8-\u19c9]"
)
"""Letters that belong to the letter before: small kana and long vowels; vowels that Thai, Lao and
Tai Lue write after their consonant; signs of repetition."""
_JOINS_NEXT = re.compile("[เแโใไເແໂໃໄ\u19b5-\u19b7\u19ba\uaab5\uaab6\uaab9\uaabb\uaabc]")
"""Vowels that are written before their consonant."""
_STACKS_NEXT = frozenset("\u17d2\u1039\u1a60\ua9c0\u1b44\u200d")
"""Signs that put the next consonant below the one before: coeng, virama, and the joiner."""


def has_unspaced(text: str) -> bool:
    """Tell whether a text has a letter of a script that writes no space between words."""
    return not text.isascii() and _HAS_UNSPACED.search(text) is not None


def starts_character(before: str, after: str) -> bool:
    """Tell whether a text may be cut between two neighbouring parts.

    It may beside a letter of an unspaced script, unless the part after begins with a mark, a
    small letter or a punctuation mark that belongs to the part before.
    """
    last, first = before[-1:], after[:1]
    if not (has_unspaced(_base(before)) or has_unspaced(first)):
        return False

    category = unicodedata.category(first)
    if category in ("Ps", "Pi"):  # an opening bracket or quotation mark
        return True
    if category[0] not in "LNS" or _CONTINUES.match(first):
        return False

    opens = unicodedata.category(last) in ("Ps", "Pi")
    return not (opens or last in _STACKS_NEXT or _JOINS_NEXT.match(last))


def starts_of_characters(parts: Sequence[str]) -> list[int]:
    """Return the indexes of the parts of a text at which a character begins.

    The first part begins one. Parts may be empty, such as that of a token without text.
    """
    starts: list[int] = []
    previous = ""  # the last part that is not empty
    for index, part in enumerate(parts):
        if index == 0 or (previous and part and starts_character(previous, part)):
            starts.append(index)
        previous = part or previous

    return starts


def _base(text: str) -> str:
    """Return the last letter of a text, without the marks and punctuation after it."""
    return next((char for char in reversed(text) if unicodedata.category(char)[0] in "LN"), "")
