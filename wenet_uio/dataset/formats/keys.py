"""Keys of utterances: one rule for lists, manifests, cuts and tars.

1. A key is one word. Blanks and control characters in it become `_`.
2. A line that states no key has the name of its audio file without suffix, and, unless it starts at
   0, its start in seconds: `a_2.5`.
3. If two lines without a key would have the same key for different audio, all lines without a key
   get the folders of their audio in front: `d1-a` and `d2-a`. Folders that all of these lines share
   are left out. If keys still clash, starts have all their digits.
4. If lines without a key name one audio and one start, each of them that states another end than
   the others gets the end: `a_2.5-4`. Of lines that name one segment, the second one gets `-sub1`,
   the third one `-sub2`, as in NeMo.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects

NOT_OF_A_WORD = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
"""Blanks, line ends and control characters."""
DIGITS = 6
"""Digits of a start in a key, as in NeMo."""
ALL_DIGITS = 15
"""Digits of a start if keys clash; all that a float holds."""

Audio = tuple[str, float, float | None]
"""Path of the audio, and start and end of the utterance in seconds; None is the end of the
audio."""


def as_word(key: str) -> str:
    """Return the key by rule 1; an index of another tool may hold keys that are no words."""
    return key if key.isprintable() and " " not in key else NOT_OF_A_WORD.sub("_", key.strip())


def one_word(key: str) -> str:
    """Return the key by rule 1.

    Raises:
        ListError: the key is empty, or holds half of a surrogate pair.
    """
    if key.isprintable() and " " not in key and key:
        return key

    try:
        key.encode()
    except UnicodeEncodeError:
        raise ListError(
            f"the key {key!r} holds half of a surrogate pair, which is no character"
        ) from None

    word = as_word(key)
    if not word:
        raise ListError("the key is empty")

    return word


def key_of_audio(wav: str, start: float = 0.0, digits: int = DIGITS) -> str:
    """Return the key of a line without one: the file name without suffix and, except at 0, the
    start in seconds.
    """
    name = os.path.splitext(os.path.basename(without_query(wav)))[0]  # noqa: PTH119, PTH122 - runs for every line; pathlib is slow
    return one_word(f"{name}_{start:.{digits}g}" if start else name)


def without_query(uri: str) -> str:
    """Return a URI without its query, which may be a signature; a local path stays as it is."""
    return uri.partition("?")[0] if "?" in uri and objects.is_remote(uri) else uri


def distinct_keys(keys: Sequence[str], audio: Sequence[Audio | None]) -> Sequence[str]:
    """Return the keys of the lines of one list, with folders, ends and numbers where rules 3 and 4
    need them.

    Args:
        keys: the keys by rules 1 and 2.
        audio: the audio of lines that state no key; None for lines that do.
    """
    # {number of a line that states no key: its audio}
    unkeyed = {number: source for number, source in enumerate(audio) if source is not None}
    if len({keys[number] for number in unkeyed}) == len(unkeyed):
        return keys

    longer_keys = list(keys)
    if not _are_of_one_audio(longer_keys, unkeyed):
        heads = _distinct_folders([wav for wav, _, _ in unkeyed.values()])
        for number, head in zip(unkeyed, heads, strict=True):
            longer_keys[number] = one_word(head + keys[number])
        # Starts in one recording that differ only beyond the digits of a key
        if not _are_of_one_audio(longer_keys, unkeyed):
            for (number, (wav, start, _)), head in zip(unkeyed.items(), heads, strict=True):
                longer_keys[number] = one_word(head + key_of_audio(wav, start, ALL_DIGITS))

    _add_ends(longer_keys, unkeyed)
    _add_numbers(longer_keys, unkeyed)
    return longer_keys


def _are_of_one_audio(keys: Sequence[str], unkeyed: Mapping[int, Audio]) -> bool:
    """Tell whether lines with one key name one audio and one start.

    Args:
        unkeyed: {number of a line that states no key: its audio}.
    """
    first_of_key: dict[str, Audio] = {}
    return all(
        first_of_key.setdefault(keys[number], audio)[:2] == audio[:2]
        for number, audio in unkeyed.items()
    )


def _add_ends(keys: list[str], unkeyed: Mapping[int, Audio]) -> None:
    """Add the end, in place, to the keys that several lines with different ends share.

    Args:
        unkeyed: {number of a line that states no key: its audio}.
    """
    ends_of_key: dict[str, set[float | None]] = {}
    for number, (_, _, end) in unkeyed.items():
        ends_of_key.setdefault(keys[number], set()).add(end)

    for number, (_, start, end) in unkeyed.items():
        if len(ends_of_key[keys[number]]) > 1 and end is not None:
            keys[number] += f"{'' if start else '_0'}-{end:.{ALL_DIGITS}g}"


def _add_numbers(keys: list[str], unkeyed: Mapping[int, Audio]) -> None:
    """Add -sub1, -sub2, …, in place, to all but the first of the lines that have one key.

    Args:
        unkeyed: {number of a line that states no key: its audio}.
    """
    all_keys, repeats = {keys[number] for number in unkeyed}, Counter[str]()
    keys_of_earlier_lines: set[str] = set()
    for number in unkeyed:
        key = keys[number]
        while keys[number] in keys_of_earlier_lines:
            repeats[key] += 1
            longer_key = f"{key}-sub{repeats[key]}"
            if longer_key not in all_keys:
                keys[number] = longer_key

        keys_of_earlier_lines.add(keys[number])
        all_keys.add(keys[number])


def _distinct_folders(wavs: Sequence[str]) -> list[str]:
    """Return the folders of each file without those that all files share, as the beginning of a
    key.
    """
    paths: list[list[str]] = []
    for wav in wavs:
        folders = wav.split("/")[:-1]
        paths.append([folder for folder in folders if folder not in ("", ".")])

    shared = 0
    for folders_of_level in zip(*paths, strict=False):
        if len(set(folders_of_level)) > 1:
            break
        shared += 1

    return ["-".join([*folders[shared:], ""]) for folders in paths]
