"""Divide the utterances of a corpus into train, dev and test."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

from wenet_uio.base.messages import note
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.columns import COLUMNS
from wenet_uio.prepare.corpus_parts import split_by
from wenet_uio.prepare.separated import known_field

PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "development", "valid", "validation", "val", "eval"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Part by the values that a column or field `part` (or split, subset) may have."""
PART_COLUMNS = " or ".join(COLUMNS["part"])
SHARES = {"dev": 10.0, "test": 10.0}
"""Percent of the speakers in dev and test; percent of the utterances if speakers are unknown or
few."""
FEW_SPEAKERS = 10
"""With fewer speakers, utterances are divided instead of speakers: dev would have the voice of one
speaker only."""


def divide_utterances(lines: Sequence[RawLine]) -> dict[str, list[RawLine]]:
    """Divide utterances as their part field says.

    Without such fields, a tenth of the speakers each is for dev and test.

    Raises:
        ListError: only some utterances name their part, a part is unknown or empty, or utterances
            are too few.
    """
    if any(stated_part(line) for line in lines):
        return _divide_by_field(lines)

    for line in lines:
        unknown_part = known_field(line, "part")
        if unknown_part:  # the column may mean something else
            print(f"{PART_COLUMNS}: unknown part {unknown_part!r} ignored", file=sys.stderr)
            break

    return _split_by_speaker(lines, SHARES)


def stated_part(line: RawLine) -> str | None:
    """Return the part that an utterance names: train, dev or test.

    None if it names none or an unknown part.
    """
    return PARTS.get((known_field(line, "part") or "").lower())


def names_divide_corpus(parts: Collection[str | None]) -> bool:
    """Whether names of files or folders divide a corpus: all name a part, and train and another
    part are among them.
    """
    return None not in parts and "train" in parts and len(set(parts)) > 1


def _divide_by_field(lines: Sequence[RawLine]) -> dict[str, list[RawLine]]:
    """Divide utterances by their part fields; without a dev part, take a share of train for it,
    and without a test part, take dev for it.
    """
    parts: dict[str, list[RawLine]] = {"train": [], "dev": [], "test": []}
    for line in lines:
        parts[_require_part(line, lines)].append(line)

    empty = [part for part, members in parts.items() if not members]
    if empty == ["dev"]:
        parts |= _split_by_speaker(parts["train"], {"dev": SHARES["dev"]})
        note(f"no utterance is for dev: {len(parts['dev'])} utterances of train are used for dev")
    elif empty == ["test"]:
        parts["test"] = list(parts["dev"])
        note(
            f"no utterance is for test: the {len(parts['dev'])} utterances of dev are decoded as "
            "test; their error rates are too good, since dev also chooses the weights"
        )
    elif empty:
        options = {"train": "--from (--data)", "dev": "--dev", "test": "--test"}
        files = " and ".join(options[part] for part in empty)
        raise ListError(
            f"no utterance is for {' and '.join(empty)}: set the field {PART_COLUMNS}, or give "
            f"{files}"
        )

    return parts


def _require_part(line: RawLine, lines: Sequence[RawLine]) -> str:
    """Return the part of an utterance; raise ListError if it states none, or an unknown one."""
    name = known_field(line, "part")
    if name is None:
        with_part = next(other for other in lines if known_field(other, "part"))
        raise ListError(
            f"{line.key}: no part, but {with_part.key} has one; name the part of all utterances, "
            "or of none"
        )

    if name.lower() not in PARTS:
        raise ListError(f"{line.key}: {PART_COLUMNS} says {name!r}; known: {', '.join(PARTS)}")

    return PARTS[name.lower()]


def _split_by_speaker(
    lines: Sequence[RawLine], shares: Mapping[str, float]
) -> dict[str, list[RawLine]]:
    """Divide utterances into train and the parts of `shares`, with all of a speaker in one part.

    Each part gets at least one group: a speaker, or an utterance if speakers are few.

    Args:
        shares: {part: percent of the groups}.
    """
    group_of = _speaker_groups(lines)
    # In the order of a hash, so that the same groups are chosen in every run.
    groups = sorted(set(group_of.values()), key=lambda group: (crc32(group.encode()), group))
    if len(groups) <= len(shares):
        parts = ", ".join(["train", *shares])
        raise ListError(
            f"{len(groups)} utterances cannot be divided into {parts}: add utterances, or name the "
            "part of each"
        )

    parts = split_by(lambda line: group_of[line.key], lines, shares)
    if all(parts.values()):
        return parts

    # A small corpus may leave a part empty by chance: give each part its share of the groups.
    part_of_group = dict.fromkeys(groups, "train")
    first = 0
    for part, share in shares.items():
        count = max(1, round(len(groups) * share / 100))
        part_of_group |= dict.fromkeys(groups[first : first + count], part)
        first += count

    parts = {part: [] for part in parts}
    for line in lines:
        parts[part_of_group[group_of[line.key]]].append(line)

    return parts


def _speaker_groups(lines: Sequence[RawLine]) -> dict[str, str]:
    """Return the group of each key that stays in one part.

    This is the speaker, or the key itself if there are few speakers.
    """
    group_of = {line.key: known_field(line, "speaker") or line.key for line in lines}
    speakers = len(set(group_of.values()))
    if speakers >= min(FEW_SPEAKERS, len(lines)):
        return group_of

    counted = "1 speaker" if speakers == 1 else f"{speakers} speakers"
    print(
        f"only {counted}: utterances are divided, and speakers occur in several parts",
        file=sys.stderr,
    )
    return {key: key for key in group_of}
