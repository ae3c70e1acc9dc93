"""Normalise transcripts of a user's corpus, and say what was changed or looks odd."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wenet_uio.base.messages import listed, note
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.text.characters import DECOMPOSED, INVISIBLE, LOOK_ALIKE, clean, oddities
from wenet_uio.text.languages import LANGUAGES, normaliser
from wenet_uio.text.normalize import english, mandarin


def _join_words(text: str) -> str:
    return " ".join(text.split())


TEXTS: dict[str, Callable[[str], str]] = {
    "keep": _join_words,
    "none": _join_words,
    "clean": lambda text: _join_words(clean(text)),
    "english": english,
    "mandarin": mandarin,
    **{language: normaliser(language) for language in LANGUAGES},
}
"""How transcripts are normalised, by the names of the option --text; none is another word for
keep."""
KEEPING = frozenset({"keep", "none", "clean"})
"""Names of TEXTS that keep the words as they are written."""
SHOWN = 5
"""This many changed texts are shown."""
PLURALS = {
    INVISIBLE: "invisible characters",
    DECOMPOSED: "decomposed letters",
    LOOK_ALIKE: "look-alike letters",
}
"""Kinds of odd characters in messages."""
NAMED = 3
"""A message names this many utterances; it gives the number of all."""

KeyedText = tuple[str, str]
"""Key and text of an utterance."""


def normalise_lines(lines: Sequence[RawLine], text: str) -> list[RawLine]:
    """Return lines with normalised texts.

    Stdout has the number of changed texts by what was changed, and the first ones. Stderr says how
    many texts `clean` mends, and how many texts are odd afterwards.

    Args:
        text: a key of TEXTS.
    """
    normalise = TEXTS[text]
    changed = [replace(line, text=normalise(line.text)) for line in lines]
    _tell_changes(f"--text {text}", lines, changed)
    keys_with_digits = [
        line.key for line in changed if any(character.isdigit() for character in line.text)
    ]
    if text not in KEEPING and keys_with_digits:
        print(
            f"--text {text}: {len(keys_with_digits)} texts have digits, which stay; write them as "
            f"they are spoken ({listed(keys_with_digits, NAMED)})"
        )

    if text == "clean":
        mended = [line.key for line in lines if oddities(line.text)]
        if mended:
            count = f"{len(mended)} of {len(lines)} texts mended"
            note(f"--text clean: {count} ({listed(mended, NAMED)})")

    tell_odd_texts(f"--text {text}", [(line.key, line.text) for line in changed], "--text clean")
    return changed


def _tell_changes(where: str, lines: Sequence[RawLine], changed: Sequence[RawLine]) -> None:
    """Print how many texts a normalisation changes, by kind of change, and show the first ones."""
    pairs = [
        (line, changed_line)
        for line, changed_line in zip(lines, changed, strict=True)
        if line.text != changed_line.text
    ]
    if not pairs:
        return

    counts: Counter[str] = Counter()
    for line, changed_line in pairs:
        counts.update(_change_kinds(line.text, changed_line.text))

    kinds = ", ".join(f"{kind} in {count}" for kind, count in sorted(counts.items()))
    print(f"{where}: {len(pairs)} of {len(lines)} texts changed: {kinds}")
    for line, changed_line in pairs[:SHOWN]:
        print(f'  {line.key}: "{line.text}" -> "{changed_line.text}"')


def _change_kinds(old: str, new: str) -> set[str]:
    """Return what differs between a text and its normalised form, by kind of character."""
    if not new:
        return {"nothing is left"}

    removed = Counter(old) - Counter(new)
    added = Counter(new) - Counter(old)
    if not removed and not added:
        return {"order"}
    return {_character_kind(character) for character in removed + added}


def _character_kind(character: str) -> str:
    if character.isspace():
        return "spaces"
    if unicodedata.category(character)[0] in "PS":
        return "punctuation"
    if character.lower() != character.upper():
        return "letter case"
    return "other characters"


def tell_odd_texts(
    where: str, texts: Iterable[KeyedText], mends: str = "convert_manifest.py --text clean"
) -> None:
    """Print on stderr how many texts have characters that nobody sees, by kind, and name some.

    Print nothing if there are none.

    Args:
        where: what the message begins with, such as the file of the texts.
        mends: the option or command that mends them.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)
    for key, text in texts:
        for kind, names in oddities(text):
            counts[kind] += 1
            if counts[kind] <= NAMED:
                examples[kind].append(f"{key}: {names}")

    for kind, count in counts.items():
        more = f" and {count - NAMED} more" if count > NAMED else ""
        print(
            f"{where}: {count} texts with {PLURALS[kind]}: {mends} mends them "
            f"({'; '.join(examples[kind])}{more})",
            file=sys.stderr,
        )
