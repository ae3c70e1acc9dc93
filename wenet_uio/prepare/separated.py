"""Transcripts in TSV and CSV: a recording and its text a row, as Common Voice and many a spreadsheet have them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wenet_uio.dataset.formats.data_list import ListError, RawLine, locate
from wenet_uio.prepare.kaldi_tables import without_spaces
from wenet_uio.text.table import numbered_lines

COLUMNS = {
    "wav": ("wav", "path", "audio", "audio_filepath", "audio_path", "file", "file_name", "filename", "wav_filename"),
    "text": ("text", "txt", "sentence", "transcript", "transcription"),
    "key": ("key", "id", "utt_id", "utterance"),
    "start": ("start", "offset"),
    "end": ("end",),
    "duration": ("duration",),
    "speaker": ("speaker", "spk", "client_id", "speaker_id"),
    "part": ("part", "split", "subset"),
    "channel": ("channel",),
}
"""What a column is, by its name in any case, in the order of preference; the columns of others are kept as fields."""
KNOWN_COLUMNS = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in COLUMNS.items())
TAB, COMMA = "\t", ","
NAME_OF = {TAB: "a tab", COMMA: "a comma"}


def read_tsv(path: str) -> list[RawLine]:
    """Rows of a TSV, as `read_separated` takes them; quotes in it are characters like others."""
    return read_separated(path, TAB)


def read_csv(path: str) -> list[RawLine]:
    """Rows of a CSV, as `read_separated` takes them."""
    return read_separated(path, COMMA)


def read_separated(path: str, delimiter: str) -> list[RawLine]:
    """Utterances, a row each; the first row names the columns (COLUMNS), or every row is `audio, text`.

    Relative paths are from the folder of the file. A key that is not given is the name of the audio, with the start in
    milliseconds where a row is a part of it. Rows without anything in them are passed over.

    Raises:
        ListError: naming the line that has no audio, no text, another number of fields, or times out of order.
    """
    rows = list(_rows(path, delimiter))
    if not rows:
        raise ListError(f"{path}: empty")
    names = _names(rows[0][1])
    if names is None:
        number, first = rows[0]
        if len(first) == 1:
            raise ListError(f"{path}:{number}: one field, {first[0]!r}; fields are separated by {NAME_OF[delimiter]}")
        if len(first) != 2:
            raise ListError(f"{path}:{number}: expected names of columns ({KNOWN_COLUMNS}), or rows of audio and text")
        names = ["wav", "text"]
    else:
        rows = rows[1:]
    lines = []
    for number, row in rows:
        if len(row) != len(names):
            raise ListError(f"{path}:{number}: expected {len(names)} fields, found {len(row)}")
        try:
            lines.append(_line(dict(zip(names, row, strict=True)), path))
        except ValueError as error:
            raise ListError(f"{path}:{number}: {error}") from None
    return lines


def _rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line that has any, with its number."""
    lines = (line for _, line in numbered_lines(path))
    quoting = csv.QUOTE_NONE if delimiter == TAB else csv.QUOTE_MINIMAL
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise ListError(f"{path}:{number}: {error}; is a quote left open?") from None
        if row is None:
            return
        if rows.line_num > number:
            raise ListError(f"{path}:{number}: a field goes on in the next line; make it one line, or close its quote")
        if any(field.strip() for field in row):
            yield number, row


def _names(header: list[str]) -> list[str] | None:
    """Our names of the columns, theirs where we have none; None where it is no header."""
    lowered = [name.strip().lower() for name in header]
    ours = {}
    for name, known in COLUMNS.items():
        found = next((candidate for candidate in known if candidate in lowered), None)
        if found is not None:
            ours[found] = name
    if not {"wav", "text"} <= set(ours.values()):
        return None
    return [ours.get(name, name) for name in lowered]


def _line(fields: dict[str, Any], path: str) -> RawLine:
    wav, text = fields.pop("wav").strip(), fields.pop("text").strip()
    if not wav or not text:
        raise ListError("no " + ("audio" if not wav else "text"))
    given, end, duration, channel = (_number(fields, name) for name in ("start", "end", "duration", "channel"))
    start = given or 0.0
    if end is None and given is not None and duration is not None:
        end = start + duration
    if start < 0 or (end is not None and start >= end):
        raise ListError(f"starts at {start} s and ends at {end} s")
    key = fields.pop("key", "").strip()
    if not key:
        key = Path(wav).stem + (f"_{round(start * 1000):07d}" if start or end is not None else "")
    extra: dict[str, Any] = {name: value for name, value in fields.items() if value}
    if duration is not None and end is None:
        extra["duration"] = duration
    if channel is not None:
        extra["channel"] = int(channel)
    return RawLine(without_spaces(key), locate(os.path.expanduser(wav), path), text, start, end, extra)


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.pop(name, "").strip()
    try:
        return float(value) if value else None
    except ValueError:
        raise ListError(f"{name}: expected a number, found {value!r}") from None
