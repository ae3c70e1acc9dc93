"""Read transcripts in spreadsheets: .xlsx of Excel, .ods of LibreOffice.

Both are zip archives of XML, so the standard library reads them, and no package has to be
installed before the first table is read. Whatever a file states, its table has bounds.

Sources: ECMA-376 part 1, chapter 18 (SpreadsheetML); OASIS OpenDocument 1.3 part 3, chapter 9.
"""

from __future__ import annotations

import errno
import itertools
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.etree.ElementTree import Element

from wenet_uio.addons.corpora.bounded_xml import (
    DAMAGE,
    Found,
    TooLargeError,
    XmlArchive,
    local_name,
)
from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.separated import BY_LOOKING, TableOptions, read_table
from wenet_uio.prepare.table_rows import NAMED, Rows, Table, without_line_breaks

SECONDS_OF_DAY = 86_400
TIMES = frozenset({18, 19, 20, 21, 45, 46, 47})
"""Formats of times that every workbook has, by number (ECMA-376, 18.8.30)."""
TIME_FORMAT = re.compile(r"(?i)h|s")
NOT_OF_A_FORMAT = re.compile(r'"[^"]*"|\\.|\[\$[^\]]*\]|(?i:\[(?:red|black|white|blue|cyan)\])')
"""Texts, colours and currencies inside the format of a number."""
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""Excel's escape of a character that XML cannot hold, such as `_x000D_`."""
LENGTH = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d+)?)S)?")
"""A time in OpenDocument: `PT00H01M02.5S`."""
MOST_ROWS, MOST_COLUMNS = 1_048_576, 16_384
"""Rows and columns of a sheet in Excel and LibreOffice."""
MOST_CELLS = 10_000_000
"""Rows times columns of all sheets, and texts that cells share."""
MOST_CHARACTERS = 1 << 28
"""Of all cells, and of texts that cells share."""
MOST_BLANKS = 1000
"""Blanks one after the other in a cell of OpenDocument, which stores their number."""
DAMAGE_OF_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    ArithmeticError,  # of a number in a cell
    RuntimeError,  # of zipfile: encrypted
    EOFError,
)
"""Errors of reading a damaged spreadsheet, besides those of its XML."""


class Sheet(NamedTuple):
    """A sheet that has cells."""

    name: str
    rows: Rows


class _Workbook:
    """An open spreadsheet, with the size of what was read of it."""

    def __init__(self, archive: XmlArchive) -> None:
        self.archive = archive
        self._cells = 0
        self._characters = 0

    def sheet(self, name: str, rows: Iterable[tuple[int, list[str]]]) -> Sheet:
        """Return a sheet of these rows.

        Raises:
            TooLargeError: it has too many, or the workbook has.
        """
        checked: Rows = []
        width = 0
        for number, cells in rows:
            width = max(width, len(cells))
            if len(checked) == MOST_ROWS or width > MOST_COLUMNS:
                raise TooLargeError(
                    f"sheet {name} has more than {MOST_ROWS} rows or {MOST_COLUMNS} columns"
                )

            checked.append((number, cells))
            self._check_size(len(checked) * width, cells)

        self._cells += len(checked) * width
        return Sheet(name, checked)

    def texts(self, items: Iterable[str]) -> list[str]:
        """Return texts that cells share.

        Raises:
            TooLargeError: the workbook has too many.
        """
        texts: list[str] = []
        for text in items:
            texts.append(text)
            self._check_size(len(texts), [text])

        self._cells += len(texts)
        return texts

    def _check_size(self, further_cells: int, texts: list[str]) -> None:
        """Count the characters of new texts, and refuse a workbook that is too large."""
        self._characters += sum(map(len, texts))
        if self._cells + further_cells > MOST_CELLS or self._characters > MOST_CHARACTERS:
            raise TooLargeError(
                f"more than {MOST_CELLS} cells (rows times columns) or {MOST_CHARACTERS} characters"
            )


def read_spreadsheet(
    path: str, text_field: str | None = None, options: TableOptions = BY_LOOKING
) -> list[RawLine]:
    """Read the first sheet of an .xlsx or .ods, see `read_table`."""
    return read_table(path, spreadsheet_table(path), text_field, options)


def spreadsheet_table(path: str | Path) -> Table:
    """Read the first sheet with cells of a spreadsheet.

    Raises:
        ListError: the file is damaged, or no spreadsheet.
    """
    read = read_ods if Path(path).suffix.lower() == ".ods" else read_xlsx
    sheets = read(path)
    if not sheets:
        return Table([], "", [])

    first, *unread = sheets
    notes: list[str] = []
    if unread:
        names = listed([sheet.name for sheet in unread], NAMED)
        notes.append(
            f"sheet {first.name} is read, and not {names}: save those as files of their own"
        )

    return Table(without_line_breaks(first.rows, notes), "", notes)


def read_xlsx(path: str | Path) -> list[Sheet]:
    """Read the visible sheets of an .xlsx that have cells, in their order.

    Times, such as `0:01:30`, become seconds; formulas have the value that Excel saved with them.

    Raises:
        ListError: the file is damaged or no .xlsx.
    """
    return _read_sheets(path, _xlsx_sheets)


def read_ods(path: str | Path) -> list[Sheet]:
    """Read the sheets of an .ods that have cells, in their order; times become seconds.

    Raises:
        ListError: the file is damaged or no .ods.
    """
    return _read_sheets(path, _ods_sheets)


def _read_sheets(path: str | Path, read: Callable[[_Workbook], Iterator[Sheet]]) -> list[Sheet]:
    """Return the sheets with cells; what the archive or its XML lacks becomes a ListError."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [sheet for sheet in read(_Workbook(XmlArchive(archive))) if sheet.rows]
    except TooLargeError as error:
        raise ListError(
            f"{path}: too large ({error}); save the table alone, in parts or as CSV UTF-8"
        ) from None
    except (*DAMAGE, *DAMAGE_OF_ZIP, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise  # EINVAL is that of a seek to a place that a damaged zip names
        raise ListError(
            f"{path}: damaged, encrypted or no spreadsheet ({error}); save it again as "
            f"{Path(path).suffix}, or as CSV UTF-8"
        ) from None


def _xlsx_sheets(book: _Workbook) -> Iterator[Sheet]:
    """Yield the visible sheets of a workbook of Excel."""
    archive = book.archive
    strings: list[str] = []
    if "xl/sharedStrings.xml" in archive.members:
        items = archive.elements("xl/sharedStrings.xml", "si")
        strings = book.texts(_string_text(item.element) for item in items)

    formats = _cell_formats(archive) if "xl/styles.xml" in archive.members else []
    relations = [
        found.element.attrib
        for found in archive.elements("xl/_rels/workbook.xml.rels", "Relationship")
    ]
    targets = {relation["Id"]: relation["Target"] for relation in relations}

    for found in archive.elements("xl/workbook.xml", "sheet"):
        sheet = found.element
        if sheet.get("state", "visible") != "visible":
            continue

        # A target is absolute, or relative to the folder of the workbook.
        target = targets[_find_attribute(sheet, "id")]
        path = str(PurePosixPath("/xl", target)).removeprefix("/")
        rows = (row.element for row in archive.elements(path, "row"))
        yield book.sheet(sheet.attrib["name"], _xlsx_rows(rows, strings, formats))


def _string_text(item: Element) -> str:
    """Return a text of any number of runs, without the readings of Chinese characters (`rPh`)."""
    runs = [*item.findall("{*}t"), *item.findall("{*}r/{*}t")]
    text = "".join(run.text or "" for run in runs)
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _cell_formats(archive: XmlArchive) -> list[str]:
    """Return the number format of each style of cells; `h` stands for the built-in formats of
    times.
    """
    codes = dict.fromkeys(map(str, TIMES), "h")
    for found in archive.elements("xl/styles.xml", "numFmt"):
        codes[found.element.attrib["numFmtId"]] = found.element.attrib["formatCode"]

    return [
        codes.get(found.element.get("numFmtId", ""), "")
        for found in archive.elements("xl/styles.xml", "xf")
        if local_name(found.ancestors[-1]) == "cellXfs"
    ]


def _xlsx_rows(
    rows: Iterable[Element], strings: list[str], formats: list[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, cells) of the rows of a sheet that are not empty."""
    number = 0
    for row in rows:
        number = int(row.get("r", number + 1))
        cells: list[str] = []
        column = -1
        for cell in row.iterfind("{*}c"):
            column = _column_number(cell.get("r", ""), column + 1)
            text = _xlsx_cell(cell, strings, formats)
            if text:  # empty cells count only if another cell follows
                cells += [""] * (column - len(cells))
                cells.append(text)

        if any(map(str.strip, cells)):
            yield number, cells


def _column_number(place: str, following: int) -> int:
    """Return the column, from 0, of a place such as `AB12`; `following` if there is no place."""
    letters = place.rstrip("0123456789")
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - ord("A") + 1

    if not 0 <= column <= MOST_COLUMNS or (letters and column <= following):
        raise ValueError(f"no cell is at {place!r}")
    return column - 1 if letters else following


def _xlsx_cell(cell: Element, strings: list[str], formats: list[str]) -> str:
    """Return the text of a cell as a user sees it.

    Args:
        strings: texts that cells name by number.
        formats: format code of each style of cells.
    """
    cell_type = cell.get("t", "n")
    if cell_type == "inlineStr":
        inline = cell.find("{*}is")
        return "" if inline is None else _string_text(inline)

    value = cell.findtext("{*}v") or ""
    if cell_type == "s" and value:
        return strings[int(value)]
    if cell_type != "n" or not value:
        return ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)

    style = int(cell.get("s", 0))
    code = formats[style] if style < len(formats) else ""
    return _shown_number(float(value), code)


def _shown_number(value: float, code: str) -> str:
    """Return a number as its format shows it, where that matters: leading zeros, and seconds."""
    plain = NOT_OF_A_FORMAT.sub("", code.split(";")[0])
    if TIME_FORMAT.search(plain) and "General" not in code and not re.search("(?i)[dy]", plain):
        value = round(value * SECONDS_OF_DAY, 6)

    shown = f"{value:.15g}"
    return shown.zfill(len(plain)) if re.fullmatch("0+", plain) else shown


def _ods_sheets(book: _Workbook) -> Iterator[Sheet]:
    """Yield the sheets of a workbook of LibreOffice."""
    rows = book.archive.elements("content.xml", "table-row")
    for table, its_rows in itertools.groupby(rows, _table_of):
        name = _find_attribute(table, "name")
        yield book.sheet(name, _ods_rows(row.element for row in its_rows))


def _table_of(row: Found) -> Element:
    """Return the sheet that a row is in."""
    return next(element for element in reversed(row.ancestors) if local_name(element) == "table")


def _find_attribute(element: Element, name: str) -> str:
    """Return an attribute of any namespace; empty if there is none."""
    return next((value for key, value in element.items() if key.endswith(f"}}{name}")), "")


def _ods_rows(rows: Iterable[Element]) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, cells) of the rows of a sheet that are not empty; a stored row or cell may
    stand for several.
    """
    number = 1
    for row in rows:
        cells: list[str] = []
        empty_before = 0  # empty cells that count only if another cell follows
        for cell in row:
            text = _ods_cell(cell)
            count = int(_find_attribute(cell, "number-columns-repeated") or 1)
            if not text:
                empty_before += count
                continue

            if len(cells) + empty_before + count > MOST_COLUMNS:
                raise TooLargeError(f"row {number} has more than {MOST_COLUMNS} columns")
            cells += [""] * empty_before + [text] * count
            empty_before = 0

        repeats = int(_find_attribute(row, "number-rows-repeated") or 1)
        if repeats * len(cells) > MOST_CELLS:
            raise TooLargeError(f"row {number} stands for {repeats} rows of {len(cells)} cells")
        if cells:
            yield from ((number + repeat, cells) for repeat in range(repeats))
        number += repeats


def _ods_cell(cell: Element) -> str:
    """Return the text of a cell as a user sees it; a time in seconds, and a number in full."""
    shown = "\n".join(_paragraph_text(child) for child in cell if child.tag.endswith("}p"))
    value_type = _find_attribute(cell, "value-type")
    if value_type == "time":
        match = LENGTH.fullmatch(_find_attribute(cell, "time-value"))
        if match:
            hours, minutes, seconds = (
                float((number or "0").replace(",", ".")) for number in match.groups()
            )
            return f"{round(hours * 3600 + minutes * 60 + seconds, 6):.15g}"

    is_padded = re.fullmatch(r"0\d+", shown)
    if value_type == "float" and not is_padded:
        return f"{float(_find_attribute(cell, 'value')):.15g}"

    return shown


def _paragraph_text(element: Element) -> str:
    """Return the text of a paragraph with its blanks, and without comments."""
    name = element.tag.rpartition("}")[2]
    if name == "annotation":
        return ""
    if name == "s":
        blanks = int(_find_attribute(element, "c") or 1)
        if blanks > MOST_BLANKS:
            raise TooLargeError(f"a cell has {blanks} blanks")
        return " " * blanks
    if name in ("tab", "line-break"):
        return " "

    inner = "".join(_paragraph_text(child) + (child.tail or "") for child in element)
    return (element.text or "") + inner
