"""Normalise transcripts of a user's corpus, and say what was changed or looks odd."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.messages import listed
from wenet_uio.text.characters import DECOMPOSED, INVISIBLE, LOOK_ALIKE, clean, oddities
from wenet_uio.text.normalize import english, mandarin

TEXTS: dict[str, Callable[[str], str]] = {
    "keep": lambda text: " ".join(text.split()),
    "clean": lambda text: " ".join(clean(text).split()),
    "english": english,
    "mandarin": mandarin,
}
"""How transcripts are normalised, by the names of the option --text."""
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


def normalised(lines: Sequence[RawLine], text: str) -> list[RawLine]:
    """Return lines with normalised texts.

    Stderr says how many texts `clean` mends, and how many texts are odd afterwards.

    Args:
        text: a key of TEXTS.
    """
    normalise = TEXTS[text]
    changed = [replace(line, text=normalise(line.text)) for line in lines]
    if text == "clean":
        mended = [line.key for line in lines if oddities(line.text)]
        if mended:
            count = f"{len(mended)} of {len(lines)} texts mended"
            print(f"--text clean: {count} ({listed(mended, NAMED)})", file=sys.stderr)

    tell_odd_texts(f"--text {text}", [(line.key, line.text) for line in changed], "--text clean")
    return changed


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
    first_of: dict[str, list[str]] = defaultdict(list)
    for key, text in texts:
        for kind, names in oddities(text):
            counts[kind] += 1
            if counts[kind] <= NAMED:
                first_of[kind].append(f"{key}: {names}")

    for kind, count in counts.items():
        others = f" and {count - NAMED} more" if count > NAMED else ""
        print(
            f"{where}: {count} texts with {PLURALS[kind]}: {mends} mends them "
            f"({'; '.join(first_of[kind])}{others})",
            file=sys.stderr,
        )
