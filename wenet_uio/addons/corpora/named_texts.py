"""Read texts by the names of audio: LJSpeech's metadata.csv, and transcripts.txt in folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.audio_search import find_audio, named_audio_key
from wenet_uio.prepare.columns import named_columns
from wenet_uio.prepare.corpus_parts import files_below, tell_left_out
from wenet_uio.prepare.looking import NAMES, is_transcripts
from wenet_uio.prepare.separated import BY_LOOKING, TableOptions, read_table
from wenet_uio.prepare.table_rows import BAR, parse_table, table_lines, tell_guess

TEXT_COLUMNS = {"raw": 1, "normalized": 2}
"""Columns of texts in LJSpeech's metadata.csv, as --text_field names them."""
NamedText = tuple[str, str]
"""Name of the audio, and the text."""


def read_bars(
    path: str, text_field: str | None = None, options: TableOptions = BY_LOOKING
) -> list[RawLine]:
    """Read `name|text` or `name|text|normalized text`, as in LJSpeech.

    If the first row names columns, it is read as a table of these columns.

    Rows without a text are left out, and counted and named.

    Args:
        text_field: raw or normalized; default is the last column.

    Raises:
        ListError: a row has more columns than the others, no row has a text, or there is no such
            column.
    """
    rows = [(number, line.split(BAR)) for number, line in table_lines(path) if line.strip()]
    if not rows:
        raise ListError(f"{path}: empty")
    if named_columns(rows[0][1]).keys() >= {"wav", "text"}:
        return read_table(path, parse_table(path, BAR), text_field, options)

    tell_guess(path)
    return _locate_audio(_row_texts(path, rows, text_field), Path(path).parent)


def _row_texts(
    path: str, rows: Sequence[tuple[int, list[str]]], text_field: str | None
) -> list[NamedText]:
    """Return names and texts of numbered rows; those without a text are counted and named."""
    # A text may hold a bar: the usual number of columns is that of the table.
    [(count, _)] = Counter(len(row) for _, row in rows).most_common(1)
    column = _text_column(path, count, text_field)
    texts: dict[int, str] = {}
    for number, row in rows:
        if len(row) > count:
            raise ListError(
                f"{path}:{number}: expected {count} columns separated by |, found {len(row)}"
            )
        texts[number] = row[column].strip() if column < len(row) else ""

    without = [f"{path}:{number}" for number, text in texts.items() if not text]
    if len(without) == len(rows):
        raise ListError(f"{without[0]}: no text in column {column + 1}")

    tell_left_out(f"{path}: rows without a text in column {column + 1}", without)
    return [(row[0].strip(), texts[number]) for number, row in rows if texts[number]]


def _text_column(path: str, count: int, text_field: str | None) -> int:
    """Return the column of the text in rows of `count` columns."""
    if count not in (2, 3):
        raise ListError(
            f"{path}: expected name|text or name|text|normalized text, found {count} columns"
        )

    column = TEXT_COLUMNS.get(text_field, count) if text_field else count - 1
    if column == 2 and not text_field:
        print(f"{path}: the texts are the third column; --text_field raw takes the second")
    if column >= count:
        names = ", ".join(name for name, place in TEXT_COLUMNS.items() if place < count)
        raise ListError(f"{path}: no column {text_field}; --text_field can be {names}")

    return column


def read_transcripts_txt(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a file of lines `name text`, or those below a folder whose names are of NAMES.

    A tab or else a bar separates name and text if every line has one; otherwise the first blank
    does. The audio is below the folder of the file.

    Raises:
        ListError: there is no such file, a line has no text, or a `text_field` is given.
    """
    if text_field:
        raise ListError(f"{path}: has one text for each name; leave --text_field out")

    files = [Path(path)]
    if Path(path).is_dir():
        files = [file for file in files_below(Path(path)) if is_transcripts(file)]
    if not files:
        raise ListError(f"{path}: no file {' or '.join(NAMES)} in it")

    lines: list[RawLine] = []
    for file in files:
        lines += _locate_audio(_read_named_texts(file), file.parent)
    if Path(path).is_file() or any(Path(line.wav).is_absolute() for line in lines):
        return lines

    # No file of transcripts has audio below its own folder: AISHELL has texts and audio in two.
    return _locate_audio([(line.wav, line.text) for line in lines], Path(path))


def _read_named_texts(path: Path) -> list[NamedText]:
    """Read the lines of a file of transcripts, see `read_transcripts_txt`."""
    rows = [(number, line.strip()) for number, line in table_lines(path) if line.strip()]
    tell_guess(path)
    separator: str | None = None  # splits at blanks
    for mark in ("\t", BAR):
        if all(mark in line for _, line in rows):
            separator = mark
            break

    named_texts: list[NamedText] = []

    for number, line in rows:
        name_and_text = line.split(separator, 1)
        if len(name_and_text) < 2 or not name_and_text[1].strip():
            raise ListError(f"{path}:{number}: expected a name and a text, found {line[:40]!r}")

        name, text = map(str.strip, name_and_text)
        named_texts.append((name, text))

    return named_texts


def _locate_audio(texts: Sequence[NamedText], folder: Path) -> list[RawLine]:
    """Return the utterances of a file; a name becomes a path if one file below `folder` fits."""
    files_of = find_audio(dict.fromkeys(name for name, _ in texts), [folder], folder)
    wavs: dict[str, str] = {}
    for name, files in files_of.items():
        wavs[name] = str(files[0]) if len(files) == 1 else name

    return [
        RawLine(named_audio_key(wavs[name]), wavs[name], text, is_named_by_audio=True)
        for name, text in texts
    ]
