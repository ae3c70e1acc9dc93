"""Transcripts in TSV and CSV: a recording and its text a row, as Common Voice and many a spreadsheet have them."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from wenet_uio.dataset.data_list import ListError, RawLine
from wenet_uio.dataset.indexing import locate

COLUMNS = {
    "wav": ("wav", "path", "audio", "audio_filepath", "audio_path", "file", "file_name", "filename"),
    "text": ("text", "txt", "sentence", "transcript", "transcription"),
    "key": ("key", "id", "utt_id", "utterance"),
    "start": ("start", "offset"),
    "end": ("end",),
    "duration": ("duration",),
    "speaker": ("speaker", "spk", "client_id", "speaker_id"),
    "part": ("part", "split", "subset"),
}
"""What a column is, by its name in any case, in the order of preference; the columns of others are kept as fields."""
DELIMITERS = {"tsv": "\t", "csv": ","}


def read_tsv(path: str) -> list[RawLine]:
    """Rows of a TSV, as `read_separated` takes them."""
    return read_separated(path, DELIMITERS["tsv"])


def read_csv(path: str) -> list[RawLine]:
    """Rows of a CSV, as `read_separated` takes them."""
    return read_separated(path, DELIMITERS["csv"])


def read_separated(path: str, delimiter: str) -> list[RawLine]:
    """Utterances, a row each; the first row names the columns (COLUMNS), or every row is `audio, text`.

    Relative paths are from the folder of the file. A key that is not given is the name of the audio, with the start in
    milliseconds where a row is a part of it.

    Raises:
        ListError: naming the line that has no audio, no text, another number of fields, or times out of order.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [(number, row) for number, row in enumerate(csv.reader(file, delimiter=delimiter), 1) if row]
    if not rows:
        raise ListError(f"{path}: empty")
    names = _names(rows[0][1])
    if names is None:
        if len(rows[0][1]) != 2:
            known = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in COLUMNS.items())
            raise ListError(f"{path}:1: expected names of columns ({known}), or rows of audio and text")
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
    start = float(fields.pop("start", "") or 0.0)
    end, duration = fields.pop("end", "").strip(), fields.pop("duration", "").strip()
    stop = float(end) if end else start + float(duration) if start and duration else None
    if stop is not None and not 0 <= start < stop:
        raise ListError(f"starts at {start} s and ends at {stop} s")
    key = fields.pop("key", "").strip()
    if not key:
        key = Path(wav).stem + (f"_{round(start * 1000):07d}" if stop is not None else "")
    extra = {name: value for name, value in fields.items() if value}
    if duration and stop is None:
        extra["duration"] = float(duration)
    return RawLine("_".join(key.split()), locate(os.path.expanduser(wav), path), text, start, stop, extra)
