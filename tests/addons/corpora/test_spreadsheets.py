from __future__ import annotations

import datetime
import zipfile

import pytest

from wenet_uio.addons.corpora.spreadsheets import read_ods, read_xlsx
from wenet_uio.dataset.formats.errors import ListError


def cells_of_xlsx(tmp_path, *values, formats=()):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(values)
    for column, code in formats:
        book.active.cell(1, column).number_format = code
    book.save(tmp_path / "a.xlsx")
    [sheet] = read_xlsx(tmp_path / "a.xlsx")
    return sheet.rows[0][1]


def test_times_of_excel_are_seconds(tmp_path):
    times = (datetime.time(0, 1, 2, 500_000), datetime.timedelta(hours=25), 0.5 / 86_400)
    assert cells_of_xlsx(tmp_path, *times, formats=[(3, "mm:ss.0")]) == ["62.5", "90000", "0.5"]


def test_numbers_are_as_they_are_shown(tmp_path):
    values = (7, 1.5, 0.1 + 0.2, 12, True)
    formats = [(1, "000"), (4, '#,##0 "s"')]
    assert cells_of_xlsx(tmp_path, *values, formats=formats) == ["007", "1.5", "0.3", "12", "1"]


def test_cells_keep_their_columns_and_characters(tmp_path):
    cells = cells_of_xlsx(tmp_path, None, "a_x000D_b", None, " <&> ü 你")
    assert cells == ["", "a\rb", "", " <&> ü 你"]


def test_times_and_leading_zeros_of_libreoffice(tmp_path):
    pytest.importorskip("odf")
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow
    from odf.text import P

    document = OpenDocumentSpreadsheet()
    sheet, row = Table(name="a"), TableRow(numberrowsrepeated=2)
    for shown, how in (
        ("00:01:02,50", {"valuetype": "time", "timevalue": "PT00H01M02.5S"}),
        ("007", {"valuetype": "float", "value": "7"}),
        ("1,5", {"valuetype": "float", "value": "1.5"}),
        ("x", {"valuetype": "string", "numbercolumnsrepeated": 2}),
    ):
        cell = TableCell(**how)
        cell.addElement(P(text=shown))
        row.addElement(cell)
    sheet.addElement(row)
    document.spreadsheet.addElement(sheet)
    document.save(str(tmp_path / "a.ods"))
    [sheet] = read_ods(tmp_path / "a.ods")
    assert sheet.rows == [(number, ["62.5", "007", "1.5", "x", "x"]) for number in (1, 2)]


@pytest.mark.parametrize("content", [b"", b"PK", b"path,text\n"])
@pytest.mark.parametrize(("read", "name"), [(read_xlsx, "a.xlsx"), (read_ods, "a.ods")])
def test_a_damaged_spreadsheet_is_named_with_what_to_do(tmp_path, content, read, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ListError, match=f"{name}: damaged, encrypted or no spreadsheet .*; save"):
        read(tmp_path / name)
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook>")
    with pytest.raises(ListError, match=f"{name}: damaged"):
        read(tmp_path / name)
