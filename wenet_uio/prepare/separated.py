"""Read transcripts in TSV and CSV, one utterance per row, as in Common Voice and spreadsheets.

The first row names the columns (COLUMNS); without such a row, every row is audio and text.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from wenet_uio.dataset.formats.data_list import RawLine, locate
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import key_of_audio, one_word
from wenet_uio.dataset.formats.rows import AUDIO_COLUMNS, KEY_COLUMNS, TEXT_COLUMNS
from wenet_uio.text.table import numbered_lines

COLUMNS = {
    "wav": AUDIO_COLUMNS,
    "text": TEXT_COLUMNS,
    "key": KEY_COLUMNS,
    "start": ("start", "offset"),
    "end": ("end",),
    "duration": ("duration",),
    "speaker": ("speaker", "spk", "client_id", "speaker_id"),
    "part": ("part", "split", "subset"),
    "channel": ("channel",),
}
"""Our name of a column -> names of it that are recognised in any case, preferred ones first. Other
columns are kept as fields of the line."""
KNOWN_COLUMNS = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in COLUMNS.items())
TAB, COMMA, BAR = "\t", ",", "|"
NAME_OF = {TAB: "a tab", COMMA: "a comma", BAR: "a bar"}


def read_tsv(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a TSV, see `read_separated`; quotes have no special meaning."""
    return read_separated(path, TAB, text_field)


def read_csv(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a CSV, see `read_separated`; a field may be in quotes."""
    return read_separated(path, COMMA, text_field)


def read_separated(path: str, delimiter: str, text_field: str | None = None) -> list[RawLine]:
    """Read utterances, one per row.

    The first row names the columns (COLUMNS), or every row is `audio, text`.

    Relative paths start at the folder of the file. An utterance without a key gets the file name as
    key; `key_of_part` names parts of recordings. Empty rows are skipped.

    Args:
        text_field: name of the column with the text; default is the first of COLUMNS that the file
            has.

    Raises:
        ListError: there is no such column, a column comes twice, or a row has no audio, no text,
            another number of fields, or times out of order; the message names its line.
    """
    rows = list(_rows(path, delimiter))
    if not rows:
        raise ListError(f"{path}: empty")

    first_number, first_row = rows[0]
    names = names_of_columns(first_row, text_field)
    if names is None:
        _check_first_row(f"{path}:{first_number}", first_row, delimiter, text_field)
        names = ["wav", "text"]
    else:
        tell_text_column(path, [name.strip().lower() for name in first_row], text_field)
        repeated = [name for name in COLUMNS if names.count(name) > 1]
        if repeated:
            raise ListError(
                f"{path}:{first_number}: two columns are named as {repeated[0]}; remove one of them"
            )
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


def _check_first_row(
    place: str, row: Sequence[str], delimiter: str, text_field: str | None
) -> None:
    """Raise ListError if a first row without names of columns is not one of audio and text."""
    if text_field:
        raise ListError(f"{place}: the first row names no column {text_field} beside one of audio")

    if len(row) == 1:
        raise ListError(
            f"{place}: one field, {row[0]!r}; fields are separated by {NAME_OF[delimiter]}"
        )

    if len(row) != 2:
        raise ListError(
            f"{place}: expected names of columns ({KNOWN_COLUMNS}), or rows of audio and text"
        )


def _rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and fields of each row that is not empty."""
    lines = (line for _, line in lines_of_table(path))
    quoting = csv.QUOTE_MINIMAL if delimiter == COMMA else csv.QUOTE_NONE
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
            raise ListError(
                f"{path}:{number}: a field continues in the next line; make it one line, or close "
                "its quote"
            )

        if any(field.strip() for field in row):
            yield number, row


def lines_of_table(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line of a table.

    Raises:
        ListError: line ends are those of the old Mac.
        ValueError: a line is not UTF-8.
    """
    for number, line in numbered_lines(path):
        if "\r" in line:
            raise ListError(
                f"{path}:{number}: a carriage return inside a line; make the line ends \\n: tr "
                "'\\r' '\\n'"
            )
        yield number, line


def names_of_columns(header: list[str], text_field: str | None = None) -> list[str] | None:
    """Return our names of the columns, or their own names where we have none.

    None if the row is not a header.
    """
    columns = [name.strip().lower() for name in header]
    our_name_of = {}
    chosen_text = {"text": (text_field.lower(),)} if text_field else {}
    for our_name, spellings in (COLUMNS | chosen_text).items():
        spelling = next((candidate for candidate in spellings if candidate in columns), None)
        if spelling is not None:
            our_name_of[spelling] = our_name

    our_names = set(our_name_of.values())
    if not {"wav", "text"} <= our_names:
        return None

    # A column that has one of our names, but is not the one that was taken for it
    other_name_of = {name: f"other_{name}" for name in columns if name in our_names}
    return [our_name_of.get(name) or other_name_of.get(name, name) for name in columns]


def tell_text_column(path: str, columns: Collection[str], text_field: str | None) -> None:
    """Print which of several columns of texts is taken, unless the user has chosen one."""
    texts = [name for name in TEXT_COLUMNS if name in columns]
    if len(texts) > 1 and not text_field:
        others = " or ".join(f"--text_field {name}" for name in texts[1:])
        print(f"{path}: the column {texts[0]} has the texts; {others} takes another column")


def field_of(line: RawLine, name: str) -> str | None:
    """Return the value of a line's field under any name that COLUMNS has for it.

    None if the field is missing or empty.
    """
    for alias in COLUMNS[name]:
        value = line.extra.get(alias)
        text = "" if value is None else str(value).strip()
        if text:
            return text

    return None


def key_of_part(wav: str, start: float) -> str:
    """Return the key of a part of a recording in a row without a key.

    It has the file name, and the start in milliseconds.
    """
    return f"{Path(wav).stem}_{round(start * 1000):07d}"


def _line(fields: dict[str, str], path: str) -> RawLine:
    """Return the utterance of a row, with fields by our names of the columns."""
    wav, text = fields.pop("wav").strip(), fields.pop("text").strip()
    if not wav:
        raise ListError("no audio")
    if not text:
        raise ListError("no text")

    start, end, duration = _times(fields)
    channel = _number(fields, "channel")
    stated = fields.pop("key", "").strip()
    key = one_word(stated or _default_key(wav, start, end))
    extra: dict[str, Any] = {name: value for name, value in fields.items() if value}
    if duration is not None and end is None:
        extra["duration"] = duration
    if channel is not None:
        extra["channel"] = int(channel)

    wav = locate(os.path.expanduser(wav), path)  # noqa: PTH111 - a Path would spoil URIs
    return RawLine(key, wav, text, start, end, extra, is_named_by_audio=not stated)


def _default_key(wav: str, start: float, end: float | None) -> str:
    return key_of_part(wav, start) if start or end is not None else key_of_audio(wav)


def _times(fields: dict[str, str]) -> tuple[float, float | None, float | None]:
    """Take start, end and duration of an utterance, in seconds, out of the fields.

    A duration with a start gives the end.
    """
    stated_start = _number(fields, "start")
    end = _number(fields, "end")
    duration = _number(fields, "duration")
    start = stated_start or 0.0
    # Without a start, the duration is that of the file, which need not be cut.
    if end is None and stated_start is not None and duration is not None:
        end = start + duration
    if start < 0 or (end is not None and start >= end):
        raise ListError(f"starts at {start} s and ends at {end} s")

    return start, end, duration


def _number(fields: dict[str, str], name: str) -> float | None:
    """Take a number out of the fields; None if it is missing or empty."""
    value = fields.pop(name, "").strip()
    try:
        number = float(value) if value else None
    except ValueError:
        number = math.nan

    if number is not None and not math.isfinite(number):
        raise ListError(f"{name}: expected a number, found {value!r}")

    return number
