"""Find and mend characters of transcripts that nobody sees: each would become a unit of its own.

- `invisible_character`: zero-width spaces, soft hyphens, byte order marks, marks of direction,
  variation selectors, control characters. They are removed.
- `decomposed_letter`: letters that Unicode can write in another way, such as a letter and an accent
  (NFD). They are composed (NFC).
- `look_alike_letter`: words that mix Latin with Cyrillic or Greek letters of the same look. They
  are written in one script.

Joiners and zero-width spaces stay where writing needs them: U+200D after letters of scripts that
join letters (Arabic, Indic scripts), U+200C between such letters, and U+200B between letters of
scripts without spaces between words (Thai, Lao, Khmer, Burmese).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from wenet_uio.base.messages import listed

BYTE_ORDER_MARK = "\ufeff"
"""At the start of a text it marks the encoding. Elsewhere it is an invisible character."""
INVISIBLE, DECOMPOSED, LOOK_ALIKE = "invisible_character", "decomposed_letter", "look_alike_letter"
MOST_NAMED = 5
"""Characters of a kind, or words, that are named of a text."""

_JOINING = (
    "\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17d3\u1820-\u18aa\ufb50-\ufdff\ufe70-\ufefc"
)
"""Scripts in which a joiner changes the form of letters, for a class of a regular expression."""
_WITHOUT_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad"
"""Scripts in which a zero-width space may end a word."""
_INVISIBLE = re.compile(
    # Colours and movements of terminals
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    # A run of them counts as one where it is needed: the first of the run stays.
    f"|\u200b(?!(?<=[{_WITHOUT_SPACES}]\u200b)\u200b*[{_WITHOUT_SPACES}])"
    f"|\u200c(?!(?<=[{_JOINING}]\u200c)\u200c*[{_JOINING}])"
    f"|(?<![{_JOINING}])\u200d"
    # Control characters, except those that count as spaces
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)

_MARKS = "\u0300-\u036f"
_LETTERS = {
    "LATIN": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    "CYRILLIC": "\u0400-\u0481\u048a-\u052f\u1c80-\u1c8f\ua640-\ua66d",
    "GREEK": "\u0370-\u0373\u0376-\u037d\u037f\u0386\u0388-\u03ff\u1f00-\u1fff",
}
"""Letters by script, each as a class of a regular expression."""
_WORD = re.compile(f"[{''.join(_LETTERS.values())}{_MARKS}]+")
_OF_SCRIPT = {script: re.compile(f"[{letters}]") for script, letters in _LETTERS.items()}
_TWINS = {
    ("CYRILLIC", "LATIN"): (
        "АВЕКМНОРСТУХЅІЈЇЁаеорсухѕіјїёԁһԛԝ",
        "ABEKMHOPCTYXSIJ\u00cf\u00cbaeopcyxsij\u00ef\u00ebdhqw",
    ),
    ("GREEK", "LATIN"): ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοϳ", "ABEZHIKMNOPTYXoj"),
    ("GREEK", "CYRILLIC"): ("ΑΒΓΕΗΚΜΟΠΡΤΥΦΧο", "АВГЕНКМОПРТУФХо"),
}
"""Letters of two scripts that look the same, in the same order."""
_LOOKS_AS = {scripts: str.maketrans(*twins) for scripts, twins in _TWINS.items()}
_LOOKS_AS |= {scripts[::-1]: str.maketrans(*twins[::-1]) for scripts, twins in _TWINS.items()}
"""{(script, other script): letters of the first -> letters of the second that look the same}."""


class Oddity(NamedTuple):
    """Characters of one kind in a text."""

    kind: str
    """INVISIBLE, DECOMPOSED or LOOK_ALIKE."""
    names: str
    """Numbers and names of the characters; words with the letters that do not fit."""


def without_mark(text: str) -> str:
    """Return a text without byte order marks at its start."""
    return text.lstrip(BYTE_ORDER_MARK)


def without_invisible(text: str) -> str:
    """Return a text without characters that show nothing, such as zero-width spaces.

    Joiners and zero-width spaces stay between letters of scripts that need them.
    """
    return _INVISIBLE.sub("", text)


def composed(text: str) -> str:
    """Return a text in Unicode's composed form, NFC."""
    return unicodedata.normalize("NFC", text)


def in_one_script(text: str) -> str:
    """Return a text whose words mix no letters of the same look.

    A word is changed if all its letters of one script have a twin in the other. It gets the script
    of most of its letters, or else that of most letters of the text; without a majority it stays.
    """
    scripts = [name for name, pattern in _OF_SCRIPT.items() if pattern.search(text)]
    if len(scripts) < 2:
        return text
    return _WORD.sub(lambda match: _word_in_one_script(match[0], text), text)


def clean(text: str) -> str:
    """Return a text without the characters that this module finds."""
    # Letters that change their script may compose with the marks that follow them.
    return composed(in_one_script(composed(without_invisible(text))))


def oddities(text: str) -> list[Oddity]:
    """Return the characters of a text that `clean` changes, one entry for each kind."""
    if text.isascii() and text.isprintable():
        return []

    visible_text = without_invisible(text)
    composed_text = composed(visible_text)
    odd: list[Oddity] = []
    if visible_text != text:
        # Of a command for terminals only the first character
        invisible = [match[0] for match in _INVISIBLE.findall(text)]
        odd.append(Oddity(INVISIBLE, _list_names(invisible)))
    if composed_text != visible_text:
        odd.append(Oddity(DECOMPOSED, _list_names(_changed_by_nfc(visible_text))))
    if in_one_script(composed_text) != composed_text:
        odd.append(Oddity(LOOK_ALIKE, _list_mixed_words(composed_text)))
    return odd


def visible(text: str) -> str:
    """Return a text in which characters that show nothing are written as `<U+200B>`."""
    return _INVISIBLE.sub(lambda match: f"<{_code_point(match[0][0])}>{match[0][1:]}", text)


def _word_in_one_script(word: str, text: str) -> str:
    """Return a word of a text, as `in_one_script` writes it."""
    counts = _letters_by_script(word)
    scripts = [script for script, count in counts.items() if count]
    if len(scripts) != 2:
        return word

    spellings = _spellings_by_script(word, scripts)
    if len(spellings) < 2:
        return next(iter(spellings.values()), word)

    # Either script can write the word.
    first, second = scripts
    for votes in (counts, _letters_by_script(text)):
        if votes[first] != votes[second]:
            return spellings[max(scripts, key=votes.__getitem__)]

    return word


def _letters_by_script(text: str) -> dict[str, int]:
    """Return {script: number of its letters in a text}."""
    return {script: len(pattern.findall(text)) for script, pattern in _OF_SCRIPT.items()}


def _spellings_by_script(word: str, scripts: list[str]) -> dict[str, str]:
    """Return {script: the word in it} for those of two scripts that have all letters of the word."""
    spellings: dict[str, str] = {}
    for source, target in (scripts, scripts[::-1]):
        spelling = word.translate(_LOOKS_AS[source, target])
        if not _OF_SCRIPT[source].search(spelling):
            spellings[target] = spelling

    return spellings


def _changed_by_nfc(text: str) -> list[str]:
    """Return the characters, each with its marks, that NFC changes."""
    clusters: list[str] = []
    for char in text:
        is_mark = unicodedata.combining(char) > 0
        if clusters and (is_mark or len(composed(clusters[-1] + char)) == 1):
            clusters[-1] += char
        else:
            clusters.append(char)

    return [cluster for cluster in clusters if composed(cluster) != cluster]


def _list_mixed_words(text: str) -> str:
    """Name the words of a text that mix scripts, with the letters that would change."""
    words = []
    for match in _WORD.finditer(text):
        word = match[0]
        spelling = _word_in_one_script(word, text)
        changed = [letter for letter, mend in zip(word, spelling, strict=True) if letter != mend]
        if changed:
            words.append(f"{word} ({_list_names(changed)})")

    return listed(words, MOST_NAMED)


def _list_names(parts: Iterable[str]) -> str:
    """Name each of several characters, or sequences of characters, once."""
    names: list[str] = []
    for part in dict.fromkeys(parts):
        # `U+200B ZERO WIDTH SPACE`
        chars = [f"{_code_point(c)} {unicodedata.name(c, 'control character')}" for c in part]
        names.append(" + ".join(chars))

    return listed(names, MOST_NAMED)


def _code_point(char: str) -> str:
    """Return the number of a character: `U+200B`."""
    return f"U+{ord(char):04X}"
