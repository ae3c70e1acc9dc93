"""Kaldi's tables: wav.scp, text and segments, checked against one another before any work starts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from wenet_uio.dataset.formats.data_list import ListError, RawLine
from wenet_uio.files import written_aside
from wenet_uio.text.table import read_table

NAMED = 3
"""Keys that an error names before it only counts."""
TO_THE_END = -1
"""What `segments` has, as Kaldi does, for the end of a part that goes on to the end of its recording."""


def read_filled_table(path: str) -> dict[str, str]:
    """A table that has at least one line.

    Raises:
        ListError: it is empty. ValueError: a key comes twice.
    """
    table = read_table(path)
    if not table:
        raise ListError(f"{path}: empty")
    return table


def read_audio_lines(wav_scp: str, segments: str | None = None) -> list[RawLine]:
    """Utterances of `wav_scp`, or the parts of its recordings that `segments` names, without text.

    Raises:
        ListError: a segment out of order or without a recording, a pipe in wav.scp.
    """
    wavs = read_filled_table(wav_scp)
    piped = [key for key, wav in wavs.items() if wav.endswith("|")]
    if piped:
        raise ListError(
            f"{wav_scp}: commands are not run ({_some(piped)} end in '|'); convert the audio to files first"
        )
    if segments is None:
        return [RawLine(key, wav, "") for key, wav in wavs.items()]
    spans = {key: _span(segments, key, value) for key, value in read_filled_table(segments).items()}
    lost = [key for key, (recording, _, _) in spans.items() if recording not in wavs]
    if lost:
        raise ListError(f"{segments}: {_some(lost)} without a recording in {wav_scp}")
    return [RawLine(key, wavs[recording], "", start, end) for key, (recording, start, end) in spans.items()]


def read_utterances(wav_scp: str, text: str, segments: str | None = None) -> list[RawLine]:
    """Utterances in the order of `text`, each with its audio; what has audio and no text is left out and counted.

    Raises:
        ListError: a text without audio, and what `read_audio_lines` finds.
    """
    lines = {line.key: line for line in read_audio_lines(wav_scp, segments)}
    texts = read_filled_table(text)
    source = segments or wav_scp
    missing = [key for key in texts if key not in lines]
    if missing:
        raise ListError(
            f"{text}: {_some(missing)} without audio in {source}; take them out of the text or add the audio"
        )
    silent = len(lines) - len(texts)
    if silent:
        print(f"{source}: {silent} utterance(s) without text in {text} are left out", file=sys.stderr)
    return [replace(lines[key], text=line) for key, line in texts.items()]


def write_table(path: str | Path, table: Mapping[str, object]) -> None:
    """Write `key value` lines, ordered by key in bytes, as Kaldi wants them.

    Raises:
        ListError: a key that has a space or is empty, or a value that has a line break.
    """
    for key, value in table.items():
        if key.split() != [key] or len(str(value).splitlines()) > 1:
            raise ListError(f"{path}: {key!r} {value!r} is not a key without spaces and one line")
    with written_aside(path, "w") as file:
        for key in sorted(table, key=str.encode):
            print(key, table[key], file=file)


def without_spaces(name: str) -> str:
    """A name as tables can have it for a key."""
    return "_".join(name.split())


def recording_names(wavs: Iterable[str]) -> dict[str, str]:
    """A name for each recording: of its file, with a number where another one has it, and without spaces."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for wav in dict.fromkeys(wavs):
        stem = without_spaces(Path(wav).stem)
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        names[wav] = name
    return names


def _span(segments: str, key: str, value: str) -> tuple[str, float, float | None]:
    try:
        recording, start, end = value.split()
        first, last = float(start), float(end)
    except ValueError:
        raise ListError(f"{segments}: {key}: expected `recording start end`, found {value!r}") from None
    if first >= 0 and last == TO_THE_END:
        return recording, first, None
    if not 0 <= first < last:
        raise ListError(f"{segments}: {key}: starts at {start} s and ends at {end} s")
    return recording, first, last


def _some(keys: Collection[str]) -> str:
    first = ", ".join(list(keys)[:NAMED])
    return first if len(keys) <= NAMED else f"{first} and {len(keys) - NAMED} more"
