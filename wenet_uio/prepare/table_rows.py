"""Read the rows of a table as text: TSV and CSV of any program.

Spreadsheets save CSV with the separator and the code page of the system, and put cells in quotes.
What is found out by looking is told: the encoding, a separator that the name does not say, quotes
in a table with tabs, and line breaks in cells.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.encodings import decode_file

TAB, COMMA, SEMICOLON, BAR = "\t", ",", ";", "|"
NAME_OF = {TAB: "a tab", COMMA: "a comma", SEMICOLON: "a semicolon", BAR: "a bar"}
SEPARATORS = (TAB, SEMICOLON, COMMA)
"""Separators that are found out by looking, if the usual one of a table does not divide its rows."""
LOOKED_AT = 200
"""The separator is found out from this many rows."""
STATED_SEPARATOR = re.compile(r'"?sep=(.)"?')
"""First line by which Excel knows the separator of a CSV."""
LINE_BREAK = re.compile(r"\s*[\n\r\v\f\x85\u2028\u2029]\s*")
CARRIAGE_RETURN = "a carriage return inside a line; make the line ends \\n: tr '\\r' '\\n'"
NAMED = 3
"""A message names this many lines or sheets."""
Rows = list[tuple[int, list[str]]]
"""Number and cells of each row that is not empty."""


class Table(NamedTuple):
    """The rows of a table that are not empty."""

    rows: Rows
    """Number of the line or row, from 1, and cells, without line breaks."""
    separator: str
    """Of a table as text; empty for a spreadsheet."""
    notes: list[str]
    """What was found out by looking, for the user."""


def parse_table(path: str | Path, usual: str) -> Table:
    """Read a table as text.

    Args:
        usual: the separator that the name of the table says; another one is taken if it divides
            all rows equally and the usual one does not.

    Raises:
        ListError: a quote is left open, a cell is too long, or the file is no text.
    """
    text, guessed = decode_file(path)
    text = _mend_line_ends(text)
    notes = [guess_note(guessed)] if guessed else []

    # The first line may state the separator, and is then no row.
    first_line, _, other_lines = text.partition("\n")
    stated = STATED_SEPARATOR.fullmatch(first_line.rstrip("\r"))
    skipped = 0
    if stated:
        separator, text, skipped = stated[1], other_lines, 1
    elif usual == BAR:
        separator = BAR
    else:
        separator = _choose_separator(text, usual)
    if separator != usual:
        notes.append(f"fields are separated by {NAME_OF.get(separator, repr(separator))}")

    # Quotes of a table with tabs or bars are characters of its texts, unless a spreadsheet wrote it.
    quoted = stated is not None or separator not in (TAB, BAR)
    if separator == TAB and not quoted and _has_quoted_cells(text):
        quoted = True
        notes.append("cells are in quotes, which are not part of the texts")

    parsed = _parse_csv(path, text, separator, quoted, skipped)
    return Table(without_line_breaks(parsed, notes), separator, notes)


def table_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line of a table, without line ends.

    Raises:
        ListError: a line has a carriage return inside, or the file is no text.
    """
    for number, line in enumerate(_mend_line_ends(decode_file(path).text).split("\n"), 1):
        content = line.rstrip("\r")
        if "\r" in content:
            raise ListError(f"{path}:{number}: {CARRIAGE_RETURN}")
        yield number, content


def tell_guess(path: str | Path) -> None:
    """Print the encoding of a file of text if it is a guess."""
    guessed = decode_file(path).guessed
    if guessed:
        print(f"{path}: {guess_note(guessed)}")


def guess_note(encoding: str) -> str:
    """Say that an encoding is a guess, and what to do if it is wrong."""
    return (
        f"not UTF-8, read as {encoding}, which is a guess; if letters are wrong, convert the file "
        "with iconv -f ENCODING -t UTF-8"
    )


def _mend_line_ends(text: str) -> str:
    """Return a text with the line ends of today, if all are those of the old Mac."""
    return text.replace("\r", "\n") if "\n" not in text else text


def _choose_separator(text: str, usual: str) -> str:
    """Return the usual separator, or another one if only that one divides all rows equally."""
    share_of = {mark: _equal_row_share(text, mark) for mark in SEPARATORS}
    usual_share = share_of[usual]
    best = max(share_of, key=lambda mark: (share_of[mark], mark == usual))
    divides_better = share_of[best] == 1.0 and usual_share < 1.0
    return best if divides_better or usual_share == 0.0 else usual


def _equal_row_share(text: str, separator: str) -> float:
    """Return how many of the first LOOKED_AT rows have the most frequent number of cells, as a
    share of them; 0 if that number is 1.
    """
    quoting = csv.QUOTE_NONE if separator == TAB else csv.QUOTE_MINIMAL
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting)
    counts: Counter[int] = Counter()
    try:
        for row in rows:
            if any(cell.strip() for cell in row):
                counts[len(row)] += 1
            if counts.total() == LOOKED_AT:
                break
    except csv.Error:
        return 0.0  # the reader names the line

    if not counts.total():
        return 0.0

    [(cells, rows_with_them)] = counts.most_common(1)
    return rows_with_them / counts.total() if cells > 1 else 0.0


def _has_quoted_cells(text: str) -> bool:
    """Tell whether a table with tabs has cells in quotes, as spreadsheets write it.

    In other tables with tabs a quote is a character like others, and some texts begin with one. So
    all quotes must be paired as in CSV, and those of one cell at least be needed: the cell has a
    quote, a separator or a line break, or is a name of a column.
    """
    is_needed = False
    for row, line in enumerate(text.split("\n")):
        for cell in line.split(TAB):
            if cell.startswith('"'):
                is_needed |= row == 0 or _needs_quotes(cell.rstrip("\r"))

    if not is_needed:
        return False

    try:
        for _ in csv.reader(io.StringIO(text, newline=""), delimiter=TAB, strict=True):
            pass
    except csv.Error:
        return False
    return True


def _needs_quotes(cell: str) -> bool:
    """Tell whether a cell that begins with a quote would be another cell without its quotes."""
    if len(cell) < 2 or not cell.endswith('"'):
        return True  # a tab or line break is part of the cell
    inner = cell[1:-1]
    return '""' in inner or COMMA in inner or SEMICOLON in inner


def _parse_csv(
    path: str | Path, text: str, separator: str, quoted: bool, skipped: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each row that is not empty.

    Args:
        skipped: number of lines of the file before the text.
    """
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    lines = io.StringIO(text, newline="\n")
    rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    while True:
        number = rows.line_num + 1 + skipped
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = f"{error}; is a quote left open?"
            if "new-line" in str(error):
                reason = CARRIAGE_RETURN
            raise ListError(f"{path}:{number}: {reason}") from None

        if row is None:
            return
        if any(map(str.strip, row)):
            yield number, row


def without_line_breaks(rows: Iterator[tuple[int, list[str]]] | Rows, notes: list[str]) -> Rows:
    """Return rows whose cells have a blank in place of line breaks, which `notes` counts."""
    joined, broken = [], []
    for number, row in rows:
        cells = [LINE_BREAK.sub(" ", cell.strip()) for cell in row]
        if any(LINE_BREAK.search(cell.strip()) for cell in row):
            broken.append(str(number))
        joined.append((number, cells))

    if broken:
        lines = listed(broken, NAMED)
        notes.append(f"line breaks in cells are blanks in {len(broken)} rows (lines {lines})")
    return joined
