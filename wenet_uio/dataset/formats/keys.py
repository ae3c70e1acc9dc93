"""Keys of utterances: one rule for lists, manifests, cuts and tars.

1. A key is one word. Blanks and control characters in it become `_`.
2. A line that states no key has the name of its audio file without suffix, and, unless it starts at 0, its start in
   seconds: `a_2.5`.
3. If two lines without a key would have the same key for different audio, all lines without a key get the folders of
   their audio in front: `d1-a` and `d2-a`. Folders that all of these lines share are left out. If keys still clash,
   starts have all their digits.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects

NOT_OF_A_WORD = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
"""Blanks, line ends and control characters."""
DIGITS = 6
"""Digits of a start in a key, as in NeMo."""
ALL_DIGITS = 15
"""Digits of a start if keys clash; all that a float holds."""

Audio = tuple[str, float]
"""Path of the audio, and the start of the utterance in seconds."""


def as_word(key: str) -> str:
    """The key by rule 1; indexes of earlier versions and of others may hold keys that are no words."""
    return key if key.isprintable() and " " not in key else NOT_OF_A_WORD.sub("_", key.strip())


def one_word(key: str) -> str:
    """The key by rule 1.

    Raises:
        ListError: the key is empty, or holds half of a surrogate pair.
    """
    if key.isprintable() and " " not in key and key:
        return key
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ListError(f"the key {key!r} holds half of a surrogate pair, which is no character") from None
    word = as_word(key)
    if not word:
        raise ListError("the key is empty")
    return word


def key_of_audio(wav: str, start: float = 0.0, digits: int = DIGITS) -> str:
    """The key of a line without one: the file name without suffix and, except at 0, the start in seconds."""
    name = os.path.splitext(os.path.basename(without_query(wav)))[0]  # noqa: PTH119, PTH122 - runs for every line; pathlib is slow
    return one_word(f"{name}_{start:.{digits}g}" if start else name)


def without_query(uri: str) -> str:
    """A URI without its query, which may be a signature; a local path stays as it is."""
    return uri.partition("?")[0] if "?" in uri and objects.is_remote(uri) else uri


def distinct_keys(keys: Sequence[str], audio: Sequence[Audio | None]) -> Sequence[str]:
    """The keys of the lines of one list, with folders where rule 3 needs them.

    Args:
        keys: the keys by rules 1 and 2.
        audio: the audio of lines that state no key; None for lines that do.
    """
    named = {number: each for number, each in enumerate(audio) if each is not None}
    if _are_distinct(keys, named):
        return keys
    heads = _heads([wav for wav, _ in named.values()])
    longer = list(keys)
    for number, head in zip(named, heads, strict=True):
        longer[number] = one_word(head + keys[number])
    if not _are_distinct(longer, named):  # starts in one recording that differ only beyond the digits of a key
        for (number, audio_of_key), head in zip(named.items(), heads, strict=True):
            longer[number] = one_word(head + key_of_audio(*audio_of_key, ALL_DIGITS))
    return longer


def _are_distinct(keys: Sequence[str], named: Mapping[int, Audio]) -> bool:
    """Whether no two of the numbered lines have one key for different audio."""
    first: dict[str, Audio] = {}
    return all(first.setdefault(keys[number], each) == each for number, each in named.items())


def _heads(wavs: Sequence[str]) -> list[str]:
    """The folders of each file without those that all files share, as the beginning of a key."""
    folders = [[part for part in wav.split("/")[:-1] if part not in ("", ".")] for wav in wavs]
    shared = sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))
    return ["".join(f"{part}-" for part in parts[shared:]) for parts in folders]
