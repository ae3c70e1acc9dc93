"""Samples of tables that hold audio, such as Hugging Face's parquet. `storage/containers.py` makes
tars of the rows.

| of a sample | comes from |
|---|---|
| audio | the binary column that `audio_field` names, or the only one, or the first of AUDIO_COLUMNS |
| text | the column that `text_field` names, or the first of TEXT_COLUMNS |
| key | a column `key`, `id`, `utt_id` or `utterance` with strings; or the path of the audio: `d1-a` for `d1/a.wav` |
| other fields | the other columns |

The folders of a relative path are part of the key, as in tars: a row is indexed without the rows of
other files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from wenet_uio.base.messages import warn_once
from wenet_uio.dataset.formats.data_list import RawLine, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import key_of_audio, one_word, without_query
from wenet_uio.dataset.formats.sample_layout import FoundSample, Layout, ReadMember
from wenet_uio.dataset.formats.tar_members import Member

AUDIO_COLUMNS = (
    *("wav", "path", "audio", "audio_filepath", "audio_path"),
    *("file", "file_name", "filename", "wav_filename"),
)
"""Names of a column of audio, or of the path of the audio, preferred ones first."""
TEXT_COLUMNS = ("text", "txt", "sentence", "transcript", "transcription")
"""Names of a column of text, preferred ones first."""
STARTS = ("start", "offset", "begin", "start_time")
"""Names of a column that may be the start of a segment."""
ENDS = ("end", "end_time")
"""Names of a column that may be the end of a segment."""
KEY_COLUMNS = ("key", "id", "utt_id", "utterance")

Columns = dict[str, Member]


def find_rows(
    members: Sequence[Member], layout: Layout, read: ReadMember, part: str
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Return the samples of a part of a container, as the docstring of this module describes.

    Args:
        read: reads the bytes of a member.
        part: name of the part, such as `x.parquet/3.tar`.

    Returns:
        the samples, and (place, reason) of rows that are not a sample.
    """
    rows: dict[str, Columns] = {}
    # Row 12 has a member `000012.COLUMN` for each binary value; `000012.json` has the other values.
    for member in members:
        number, _, column = member.name.partition(".")
        rows.setdefault(number, {})[column] = member

    samples, bad = [], []
    time_columns: dict[str, None] = {}  # an ordered set
    for number, columns in rows.items():
        name = f"{_name_of(part)}_{int(number):06d}"
        try:
            values = json.loads(read(columns.pop("json")))
            samples.append(_sample(name, values, columns, layout))
            time_columns.update(dict.fromkeys(times_of(values)))
        except (ListError, ValueError, KeyError) as error:
            bad.append((name, str(error)))

    if time_columns:
        warn_once(uncut_note(str(PurePosixPath(without_query(part)).parent), time_columns))

    lines = with_distinct_keys([sample.line for sample in samples])
    return [sample._replace(line=line) for sample, line in zip(samples, lines, strict=True)], bad


def _name_of(part: str) -> str:
    """Name of a part in keys: `train_3` for `data/train.parquet/3.tar`."""
    path = PurePosixPath(without_query(part))
    return f"{path.parent.stem}_{path.stem}"


def _sample(name: str, values: dict[str, Any], columns: Columns, layout: Layout) -> FoundSample:
    audio = audio_column(list(columns), layout.audio_field)
    if audio not in columns:
        raise ListError(f"no audio in its row (columns: {', '.join([*columns, *values])})")
    line = line_of_row(name, audio, values, layout.text_field)
    return FoundSample(line, columns[audio], None)


def times_of(values: Mapping[str, Any]) -> list[str]:
    """Return the columns of a row that state times of a segment, in the order of the row."""
    columns = [name for name in values if name in STARTS + ENDS and _is_time(values[name])]
    if any(name in STARTS for name in columns) and _is_time(values.get("duration")):
        columns.append("duration")
    return columns


def uncut_note(file: str, columns: Collection[str], are_fields: bool = True) -> str:
    """Say that columns of times cut nothing.

    Whether they are times in the audio of a row, or in a recording that it was cut from, is not
    known.

    Args:
        are_fields: the samples keep them as fields.
    """
    *first_columns, last = columns
    if first_columns:
        subject = f"columns {', '.join(first_columns)} and {last}"
        verb = "are fields of the samples and cut" if are_fields else "cut"
    else:
        subject = f"column {last}"
        verb = "is a field of the samples and cuts" if are_fields else "cuts"

    return f"{file}: the {subject} {verb} nothing: the audio of a row is taken whole"


def _is_time(value: Any) -> bool:
    """Tell whether a value is a number. Tables of pandas have NaN where there is none."""
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        return False

    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def audio_column(columns: Sequence[str], audio_field: str | None) -> str | None:
    """Return the column of audio among binary columns; None if it is missing or not known.

    Args:
        columns: names of the binary columns.
        audio_field: names that may be that of the column, preferred ones first, divided by `;`.
            None or empty: the only column, or the first of AUDIO_COLUMNS that is there.
    """
    if not audio_field and len(columns) == 1:
        return columns[0]

    names = audio_field.split(";") if audio_field else AUDIO_COLUMNS
    return next((name for name in names if name in columns), None)


def line_of_row(
    name: str, audio: str | None, values: Mapping[str, Any], text_field: str | None
) -> RawLine:
    """Return the line of a row; `wav` is the path of its audio as the row states it, or else
    `name`.

    Args:
        name: name of the row.
        audio: column of the audio.
        values: values that are not binary, by column.

    Raises:
        ListError: there is no text.
    """
    wanted = text_field.split(";") if text_field else TEXT_COLUMNS
    text_column = next((column for column in wanted if column in values), None)
    if text_column is None or not isinstance(values[text_column], str):
        raise ListError(f"no text in a column {' or '.join(wanted)} (columns: {', '.join(values)})")

    key_column = next((column for column in KEY_COLUMNS if _is_filled(values.get(column))), None)
    wav = _path_of_audio(values, audio) or name
    extra = _other_values(values, {audio, text_column, key_column})
    key = one_word(values[key_column]) if key_column else _key_of_path(wav)

    return RawLine(key, wav, values[text_column], extra=extra, is_named_by_audio=key_column is None)


def _other_values(values: Mapping[str, Any], used: Container[str | None]) -> dict[str, Any]:
    return {
        column: value
        for column, value in values.items()
        if column not in used and value is not None
    }


def _path_of_audio(values: Mapping[str, Any], audio: str | None) -> str | None:
    """Return the path of the audio of a row, from any column of AUDIO_COLUMNS: a relative path with
    folders comes first.
    """
    inside = values.get(audio or "")
    candidates = [
        inside.get("path") if isinstance(inside, dict) else inside,
        *map(values.get, AUDIO_COLUMNS),
    ]
    paths = [path for path in candidates if _is_filled(path)]
    first = paths[0] if paths else None
    return next(filter(_folders_of, paths), first)


def _folders_of(path: str) -> list[str]:
    """Return the folders of a relative path. Those of an absolute path or a URI tell nothing about
    the utterance.
    """
    if path.startswith("/") or "://" in path:
        return []
    return [folder for folder in path.split("/")[:-1] if folder != "."]


def _key_of_path(path: str) -> str:
    """Return the key by the path of the audio. Folders are part of it, as in tars: rows are read
    without the others.
    """
    return one_word("-".join([*_folders_of(path), key_of_audio(path)]))


def _is_filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
