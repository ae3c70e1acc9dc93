"""Build corpus preparations: find audio, pair it with texts, divide, write Kaldi directories.

A recipe's `local/prepare_data.py` reads the layout of its corpus and gives the `Recording`s of each
part (train, dev, test) to `write_parts`, which checks all of them before it writes `wav.scp`,
`text` and `segments`.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

from wenet_uio.audio.features import place_of
from wenet_uio.base.options import SuggestingParser
from wenet_uio.prepare.kaldi_tables import TO_THE_END, by_key, write_audio_tables, write_table

Value = TypeVar("Value")

NAMED = 3
"""A message names this many keys; it gives the number of all."""


class Recording(NamedTuple):
    """One utterance of a corpus: a recording, or the part of a recording between two times."""

    key: str
    wav: Path
    text: str
    start: float = 0.0
    """Seconds."""
    end: float | None = None
    """Seconds; None is the end of the recording."""


def preparation_parser(description: str | None, corpus: str) -> ArgumentParser:
    """Return a parser with the arguments of every preparation: corpus, and folder to write to.

    Args:
        corpus: help text that says what the folder of the corpus holds.
    """
    parser = SuggestingParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help=corpus)
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    return parser


def require_in(corpus: Path, *names: str) -> None:
    """Check that files or folders of a corpus exist.

    Raises:
        ValueError: one is missing; the message names it and says what to do.
    """
    for name in names:
        if not (corpus / name).exists():
            raise ValueError(
                f"{corpus} has no {name}: name the corpus with --data, or run stage -1 if the "
                "recipe has one"
            )


def files_below(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield files below a folder whose name matches a glob such as `fe_*.txt`, in a fixed order.

    Links to folders are followed; a folder that is reached twice is searched once. Files such as
    `._a.wav`, which macOS adds to archives, are left out.
    """
    visited = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        folders.sort()  # os.walk enters them in this order
        real_path = os.path.realpath(root)
        if real_path in visited:
            folders.clear()
            continue

        visited.add(real_path)
        for name in sorted(names):
            if fnmatchcase(name, pattern) and not name.startswith("._"):
                yield Path(root, name)


def audio_files(
    folder: Path,
    *suffixes: str,
    stem: str = "*",
    key: Callable[[Path], str] = lambda path: path.stem,
) -> dict[str, Path]:
    """Return audio files below a folder, as {key: path} ordered by path.

    Args:
        suffixes: such as ".wav"; upper and lower case are the same.
        stem: glob that names without suffix must match.
        key: gives the key of a file.

    Raises:
        ValueError: two files have the same key, or no file is found.
    """
    path_of: dict[str, Path] = {}
    for path in files_below(folder, f"{stem}.*"):
        if path.suffix.lower() not in suffixes:
            continue

        name = key(path)
        if name in path_of:
            raise ValueError(
                f"{name}: two recordings, {path_of[name]} and {path}; name a folder with one of "
                "them with --data"
            )
        path_of[name] = path

    if not path_of:
        raise ValueError(
            f"no {' or '.join(stem + suffix for suffix in suffixes)} below {folder}: "
            "name the corpus with --data, or run stage -1 if the recipe has one"
        )

    return path_of


def with_texts(wavs: Mapping[str, Path], texts: Mapping[str, str], where: str) -> list[Recording]:
    """Return recordings of the keys with both audio and text.

    Stderr says how many others are left out.

    This is for corpora that are known to have such gaps. Other preparations let `write_parts` raise
    an error.

    Args:
        where: name of the part in the message.
    """
    tell_left_out(f"{where}: audio without text", [key for key in wavs if key not in texts])
    tell_left_out(f"{where}: text without audio", [key for key in texts if key not in wavs])
    return [Recording(key, wav, texts[key]) for key, wav in wavs.items() if key in texts]


def tell_left_out(description: str, keys: Sequence[str]) -> None:
    """Print on stderr how many utterances a preparation leaves out, and name some.

    Print nothing if `keys` is empty.
    """
    if keys:
        more = ", …" if len(keys) > NAMED else ""
        named = ", ".join(keys[:NAMED])
        print(f"{description}: {len(keys)} left out ({named}{more})", file=sys.stderr)


def split_by(
    group_of: Callable[[Value], str], items: Iterable[Value], shares: Mapping[str, float]
) -> dict[str, list[Value]]:
    """Divide items into parts so that all items of a group (a speaker, a call) are in one part.

    A hash of the group's name selects the part, so that a group is in the same part in every run.

    Args:
        group_of: gives the name of the group of an item.
        shares: part -> its share of the groups in percent; "train" gets the rest.
    """
    parts: dict[str, list[Value]] = {part: [] for part in ("train", *shares)}
    for item in items:
        # A number from 0 to 100, which the parts divide in their order
        remaining = crc32(group_of(item).encode()) % 10_000 / 100
        part_of_item = "train"
        for part, share in shares.items():
            if remaining < share:
                part_of_item = part
                break
            remaining -= share

        parts[part_of_item].append(item)

    return parts


def write_parts(out: Path, parts: Mapping[str, Collection[Recording]]) -> None:
    """Write the Kaldi directory of each part, after the recordings of all parts are checked.

    A directory has `wav.scp` with absolute paths, `text`, and `segments` if an utterance is a part
    of its recording.

    Raises:
        ValueError: the errors of `check_part`; nothing is written.
    """
    checked = {out / part: check_part(out / part, recordings) for part, recordings in parts.items()}
    for folder, ordered in checked.items():
        has_parts = any(recording.start or recording.end is not None for recording in ordered)
        write_audio_tables(
            folder,
            ordered,
            lambda recording: str(recording.wav.absolute()),
            _format_span if has_parts else None,
        )
        write_table(folder / "text", ((recording.key, recording.text) for recording in ordered))
        print(f"{folder}: {len(ordered)} utterances")


def check_part(part: str | Path, recordings: Iterable[Recording]) -> list[Recording]:
    """Check the utterances of a part and order them by key.

    Raises:
        ValueError: the part is empty, or an utterance comes twice, has a space in its key, no text,
            a text of several lines, no audio file, or times out of order. The message names the
            utterance.
    """
    ordered = sorted(recordings, key=lambda recording: by_key(recording.key))
    if not ordered:
        raise ValueError(f"{part}: no utterance was found for this part; is the corpus complete?")

    existing: set[Path] = set()
    for recording, following in zip(ordered, [*ordered[1:], None], strict=True):
        key, wav = recording.key, recording.wav
        if following and key == following.key:
            raise ValueError(f"{key}: two recordings, {wav} and {following.wav}")

        _check_fields(recording)
        if wav not in existing and not Path(place_of(str(wav)).path).is_file():
            raise ValueError(f"{key}: has text, but its audio {wav} is missing")

        existing.add(wav)

    return ordered


def _check_fields(recording: Recording) -> None:
    """Raise ValueError if a key, a text or the times do not fit into tables."""
    key, wav, text, start, end = recording
    if key.split() != [key]:
        raise ValueError(
            f"{key!r}: the key of {wav} is empty or has spaces, which tables cannot have; rename it"
        )

    if not text.strip():
        raise ValueError(f"{key}: {wav} has no text")
    if "\n" in text:
        raise ValueError(f"{key}: the text of {wav} has a line break, {text!r}; make it one line")

    if start < 0 or (end is not None and start >= end):
        raise ValueError(
            f"{key}: from {start} s to {end} s of {wav}: start must be 0 or later, and before end"
        )


def _format_span(recording: Recording) -> str:
    """Format start and end as in `segments`."""
    end = TO_THE_END if recording.end is None else f"{recording.end:.3f}"
    return f"{recording.start:.3f} {end}"
