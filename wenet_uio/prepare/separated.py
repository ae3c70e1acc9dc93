"""Read transcripts in TSV and CSV, one utterance per row, as in Common Voice.

The first row names the columns (COLUMNS); without such a row, what the columns hold is guessed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wenet_uio.base.messages import listed
from wenet_uio.config.named_code import named_object
from wenet_uio.dataset.formats.data_list import RawLine, locate
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import key_of_audio, one_word
from wenet_uio.dataset.storage import objects
from wenet_uio.prepare.audio_search import (
    audio_below,
    compose_accents,
    file_at,
    slash_separated,
    without_upload,
)
from wenet_uio.prepare.columns import (
    COLUMNS,
    KNOWN_COLUMNS,
    Choice,
    Columns,
    columns_by_name,
    has_audio_suffix,
    named_columns,
    parse_seconds,
)
from wenet_uio.prepare.corpus_parts import tell_left_out
from wenet_uio.prepare.table_rows import (
    COMMA,
    NAME_OF,
    TAB,
    Rows,
    Table,
    parse_table,
)

GUESS = "wenet_uio.addons.corpora.guessed_columns:guess_columns"
"""Finds out what the columns hold where their names do not say it."""
MOST_NAMED = 50
"""An error names this many bad rows or missing files; it gives the number of all."""
ERRORS_OF_CELLS = frozenset(
    {
        *("#NAME?", "#REF!", "#N/A", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!"),
        *("#NV", "#WERT!", "#BEZUG!", "#ZAHL!", "#NOM?", "#¿NOMBRE?"),
    }
)
"""What spreadsheets write for a formula that fails, such as a text that begins with `=` or `-`."""


@dataclass(frozen=True)
class TableOptions:
    """How a table of transcripts is read."""

    audio_field: str | None = None
    """Name or number of the column of audio; None finds it out."""
    folders: tuple[Path, ...] = ()
    """Folders of relative paths, besides that of the table."""
    searched: Path | None = None
    """Folder that is searched for audio by name; None is that of the table."""
    allow_bad: bool = False
    """Rows that cannot be used are left out instead of an error."""


BY_LOOKING = TableOptions()


def read_tsv(
    path: str, text_field: str | None = None, options: TableOptions = BY_LOOKING
) -> list[RawLine]:
    """Read a TSV, see `read_table`; quotes have no special meaning, except as spreadsheets use
    them.
    """
    return read_table(path, parse_table(path, TAB), text_field, options)


def read_csv(
    path: str, text_field: str | None = None, options: TableOptions = BY_LOOKING
) -> list[RawLine]:
    """Read a CSV, see `read_table`; a field may be in quotes."""
    return read_table(path, parse_table(path, COMMA), text_field, options)


def read_table(
    path: str, table: Table, text_field: str | None, options: TableOptions
) -> list[RawLine]:
    """Read utterances, one per row, and print what was found out by looking.

    Relative paths start at the folder of the file. An utterance without a key gets the file name as
    key; `part_key` names parts of recordings. Empty rows are skipped. A table of times and texts
    without a column of audio describes one recording, which has the name of the table.

    Args:
        text_field: name or number of the column with the text; default is the first of COLUMNS that
            the file has, or else a guess.

    Raises:
        ListError: there is no such column, a column comes twice, or rows have no audio, no text,
            another number of fields, or times out of order; the message names their lines.
    """
    rows, titles = _trim_rows(table.rows)
    if not rows:
        raise ListError(f"{path}: empty")

    columns = _find_columns(path, rows, table, Choice(options.audio_field, text_field), options)
    for note in (*table.notes, *titles, *columns.notes):
        print(f"{path}: {note}")

    if columns.has_header:
        repeated = [name for name in COLUMNS if columns.names.count(name) > 1]
        if repeated:
            raise ListError(
                f"{path}:{rows[0][0]}: two columns are named as {repeated[0]}; remove one of them"
            )
        rows = rows[1:]

    is_padded = not table.separator  # a spreadsheet does not store empty cells at the end
    return _parse_rows(path, rows, columns, is_padded, options.allow_bad)


def _trim_rows(rows: Rows) -> tuple[Rows, list[str]]:
    """Return the rows without empty columns at their end and without titles, and a note of these.

    A title is a row of one cell above the names of the columns, as spreadsheets often have it.
    """
    width = 0
    for _, cells in rows:
        for column, cell in enumerate(cells, 1):
            if cell:
                width = max(width, column)

    rows = [(number, cells[:width]) for number, cells in rows]
    titles: list[str] = []
    for _, cells in rows:
        filled_cells = [cell for cell in cells if cell]
        if len(filled_cells) > 1:
            is_header = not {"wav", "text"}.isdisjoint(named_columns(cells))
            break
        titles += filled_cells
    else:
        is_header = False

    if not titles or not is_header:
        return rows, []
    note = f"rows above the names of the columns are no utterances: {titles}"
    return rows[len(titles) :], [note]


def _find_columns(
    path: str, rows: Rows, table: Table, choice: Choice, options: TableOptions
) -> Columns:
    """Return what the columns are: by their names and files at their paths, or by names of files.

    Raises:
        ListError: nothing says what they are.
    """
    first_number, first_row = rows[0]
    first_line = f"{path}:{first_number}"
    cells = [row for _, row in rows]
    audio = _AudioOfTable(Path(path), options)
    try:
        columns = columns_by_name(cells, choice, audio.has_path)
        if columns is None:
            guess_columns = named_object(GUESS, f"{first_line}: the guess of its columns")
            columns = guess_columns(cells, choice, audio.has_path)
            if not _has_audio(columns):
                columns = guess_columns(cells, choice, audio.has_name)
    except ListError as error:
        raise ListError(f"{first_line}: {error}") from None

    if columns is not None and _has_audio(columns):
        return columns

    _check_first_row(first_line, first_row, table.separator)
    return Columns(["wav", "text"], has_header=False, notes=[])


def _has_audio(columns: Columns | None) -> bool:
    """Tell whether a table is understood and has a column of audio, or of times in one recording."""
    return columns is not None and ("wav" in columns.names or "start" in columns.names)


@dataclass(frozen=True)
class _AudioOfTable:
    """The audio files that the cells of a table may name."""

    table: Path
    options: TableOptions

    def has_path(self, cell: str) -> bool:
        """Tell whether a cell looks like a path of audio, or is one of a file."""
        if not cell:
            return False
        folders = (self.table.parent, *self.options.folders)
        return has_audio_suffix(cell) or objects.is_remote(cell) or bool(file_at(cell, folders))

    def has_name(self, cell: str) -> bool:
        """Tell whether a cell is a path of audio, or the name of a file, maybe without suffix."""
        name = Path(slash_separated(cell)).name
        return self.has_path(cell) or compose_accents(name) in self.names

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all audio files below the folder that is searched, without suffix."""
        folder = self.options.searched or self.table.parent
        return frozenset(compose_accents(wav.stem) for wav in audio_below(folder))


def _check_first_row(place: str, row: Sequence[str], separator: str) -> None:
    """Raise ListError if a first row without names of columns is not one of audio and text."""
    if len(row) == 1:
        fields = f"fields are separated by {NAME_OF[separator]}" if separator else "one column"
        raise ListError(f"{place}: one field, {row[0]!r}; {fields}")

    if len(row) != 2:
        raise ListError(
            f"{place}: expected names of columns ({KNOWN_COLUMNS}), or rows of audio and text; or "
            "name the columns: --audio_field NAME --text_field NAME"
        )


def _parse_rows(
    path: str, rows: Rows, columns: Columns, is_padded: bool, allow_bad: bool
) -> list[RawLine]:
    """Return the utterances of the rows.

    Raises:
        ListError: rows cannot be used, and `allow_bad` does not leave them out; the message names
            all of them.
    """
    lines: list[RawLine] = []
    bad: list[str] = []
    width = len(columns.names)
    for number, cells in rows:
        if is_padded:
            cells = cells + [""] * (width - len(cells))
        try:
            if len(cells) != width:
                raise ListError(f"expected {width} fields, found {len(cells)}")
            fields = dict(zip(columns.names, cells, strict=True))
            lines.append(_parse_row(fields, path, columns.milliseconds))
        except ValueError as error:
            bad.append(f"{path}:{number}: {error}")

    if len(bad) == 1 and not allow_bad:
        raise ListError(bad[0])
    if bad and not allow_bad:
        named = listed(bad, MOST_NAMED, "\n  ")
        raise ListError(
            f"{path}: {len(bad)} of {len(rows)} rows cannot be used; correct them, or leave them "
            f"out with --allow_bad:\n  {named}"
        )

    tell_left_out(f"{path}: rows that cannot be used", bad)
    return lines


def known_field(line: RawLine, name: str) -> str | None:
    """Return the value of a line's field under any name that COLUMNS has for it.

    None if the field is missing or empty.
    """
    for alias in COLUMNS[name]:
        value = line.extra.get(alias)
        text = "" if value is None else str(value).strip()
        if text:
            return text

    return None


def part_key(wav: str, start: float) -> str:
    """Return the key of a part of a recording in a row without a key.

    It has the file name, and the start in milliseconds.
    """
    return f"{Path(wav).stem}_{round(start * 1000):07d}"


def _parse_row(fields: dict[str, str], path: str, milliseconds: frozenset[str]) -> RawLine:
    """Return the utterance of a row, with fields by our names of the columns."""
    # Without a column of audio, the table describes the recording of its own name.
    wav = fields.pop("wav", Path(path).stem).strip()
    text = fields.pop("text").strip()
    if not wav:
        raise ListError("no audio")
    if not text:
        raise ListError("no text")
    if text in ERRORS_OF_CELLS:
        raise ListError(f"the text is {text}, the error of a formula; format the cell as text")

    start, end, duration = _pop_times(fields, milliseconds)
    channel = _pop_number(fields, "channel")
    stated_key = fields.pop("key", "").strip()
    if stated_key:
        key = one_word(stated_key)
    else:
        name = without_upload(slash_separated(wav))
        is_part = start or end is not None
        key = one_word(part_key(name, start) if is_part else key_of_audio(name))

    extra: dict[str, Any] = {name: value for name, value in fields.items() if value}
    if duration is not None and end is None:
        extra["duration"] = duration
    if channel is not None:
        extra["channel"] = int(channel)

    wav = locate(os.path.expanduser(wav), path)  # noqa: PTH111 - a Path would spoil URIs
    return RawLine(key, wav, text, start, end, extra, is_named_by_audio=not stated_key)


def _pop_times(
    fields: dict[str, str], milliseconds: frozenset[str]
) -> tuple[float, float | None, float | None]:
    """Take start, end and duration of an utterance, in seconds, out of the fields.

    A duration with a start gives the end.
    """
    seconds: dict[str, float | None] = {}
    for name in ("start", "end", "duration"):
        number = _pop_number(fields, name)
        if number is not None and name in milliseconds:
            number /= 1000
        seconds[name] = number

    stated_start, end, duration = seconds["start"], seconds["end"], seconds["duration"]
    start = stated_start or 0.0
    # Without a start, the duration is that of the file, which need not be cut.
    if end is None and stated_start is not None and duration is not None:
        end = start + duration
    if start < 0 or (end is not None and start >= end):
        raise ListError(f"starts at {start} s and ends at {end} s")

    return start, end, duration


def _pop_number(fields: dict[str, str], name: str) -> float | None:
    """Take a number or a time out of the fields; None if it is missing or empty."""
    value = fields.pop(name, "").strip()
    if not value:
        return None

    number = parse_seconds(value)
    if number is None or not math.isfinite(number):
        raise ListError(f"{name}: expected a number, found {value!r}")

    return number
