from __future__ import annotations

import datetime
import zipfile

import pytest

from tests.support.data.little_memory import outcome_of_reading
from tests.support.fuzz import damaged
from wenet_uio.addons.corpora import bounded_xml, spreadsheets
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


def archive_at(path, **members):
    """A zip with members of XML, each of parts (bytes, times); `xl__workbook` is xl/workbook.xml."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, parts in members.items():
            name = f"{name.replace('__', '/')}.xml"
            if name == "rels.xml":
                name = "xl/_rels/workbook.xml.rels"
            with archive.open(name, "w") as member:
                for part, times in parts:
                    for _ in range(times // 1000):
                        member.write(part * 1000)
                    member.write(part * (times % 1000))
    return path


def xlsx_at(path, *rows, **members):
    """An .xlsx with these parts as the rows of its sheet."""
    workbook = b'<workbook xmlns:r="r"><sheet name="a" r:id="r1"/></workbook>'
    rels = b'<r><Relationship Id="r1" Target="sheet.xml"/></r>'
    sheet = [(b"<worksheet><sheetData>", 1), *rows, (b"</sheetData></worksheet>", 1)]
    workbook, rels = [(workbook, 1)], [(rels, 1)]
    return archive_at(path, xl__workbook=workbook, rels=rels, xl__sheet=sheet, **members)


def ods_at(path, *rows):
    """An .ods with these parts as the rows of its sheet."""
    start, end = b'<d xmlns:t="t"><t:table t:name="a">', b"</t:table></d>"
    return archive_at(path, content=[(start, 1), *rows, (end, 1)])


def ods_row(rows, columns, text=b"x"):
    """A row of one cell that stands for several."""
    return (
        b'<t:table-row t:number-rows-repeated="%d"><t:c t:number-columns-repeated="%d"><t:p>%s</t:p>'
        b"</t:c></t:table-row>" % (rows, columns, text)
    )


ODS_BOMBS = {
    "rows and columns": [(ods_row(1_000_000, 16_000), 1)],
    "rows": [(ods_row(10**12, 1), 1)],
    "columns": [(ods_row(1, 10**12), 1)],
    "empty columns": [
        (b"<t:table-row>", 1),
        (b'<t:c t:number-columns-repeated="9999"/>', 99),
        (b"<t:c><t:p>x</t:p></t:c></t:table-row>", 1),
    ],
    "wide rows": [(ods_row(1, 16_000), 1000)],
    "blanks": [(ods_row(1, 1, b'<t:s t:c="%d"/>' % 10**12), 1)],
    "characters": [(ods_row(16_000, 600, b"x" * 300), 1)],
    "depth": [(b"<t:table-row>", 1), (b"<t:p>", 100_000)],
    "elements of a row": [(b"<t:table-row>", 1), (b"<t:c a='1'/>", 500_000)],
    "names": [(b"".join(b"<a%d/>" % number for number in range(20_000)), 1)],
    "text outside of cells": [(b"x" * 1000, 20_000)],
}
XLSX_BOMBS = {
    "columns": [(b"<row>", 1), (b"<c><v>1</v></c>", 20_000), (b"</row>", 1)],
    "wide rows": [(b'<row><c r="XFC1"><v>1</v></c></row>', 1000)],
    "characters": [(b'<row><c t="s"><v>0</v></c></row>', 10_000)],
}
LONG_BOMBS = {
    "MOST_ROWS": (spreadsheets, 10_000, [(b"<row><c><v>1</v></c></row>", 11_000)]),
    "MOST_ELEMENTS": (bounded_xml, 10_000, [(b"<row/>", 50_000)]),
    "MOST_BYTES": (bounded_xml, 1 << 20, [(b"<row><a>%s</a></row>" % (b"x" * 1000), 1200)]),
}
"""{bound: its module, a smaller value, rows that exceed that}; with the true bounds this takes a minute."""
SHARED_SHORT = {"xl__sharedStrings": [(b"<sst><si><t>x</t></si></sst>", 1)]}
MOST_MEMORY = 1 << 30
"""Bytes that reading may take above what the process has."""
SHARED = {"xl__sharedStrings": [(b"<sst><si><t>", 1), (b"x" * 100, 1000), (b"</t></si></sst>", 1)]}


def check_bomb(path, read):
    """Read a bomb in a process with little memory."""
    outcome = outcome_of_reading(path, read, MOST_MEMORY)
    assert outcome.startswith(f"ListError: {path}: too large ("), outcome
    assert "\n" not in outcome


@pytest.mark.parametrize("name", ODS_BOMBS)
def test_a_bomb_of_libreoffice_is_refused_with_one_line(name, tmp_path):
    path = ods_at(tmp_path / "a.ods", *ODS_BOMBS[name])
    assert path.stat().st_size < 1_000_000
    check_bomb(path, read_ods)


@pytest.mark.parametrize("name", XLSX_BOMBS)
def test_a_bomb_of_excel_is_refused_with_one_line(name, tmp_path):
    path = xlsx_at(tmp_path / "a.xlsx", *XLSX_BOMBS[name], **SHARED)
    assert path.stat().st_size < 1_000_000
    check_bomb(path, read_xlsx)


@pytest.mark.parametrize("bound", LONG_BOMBS)
def test_a_spreadsheet_above_a_bound_is_refused_with_one_line(bound, tmp_path, monkeypatch):
    module, most, rows = LONG_BOMBS[bound]
    path = xlsx_at(tmp_path / "a.xlsx", *rows)
    read_xlsx(path)
    monkeypatch.setattr(module, bound, most)
    check_bomb(path, read_xlsx)


def test_entities_and_other_compressions_are_refused(tmp_path):
    entities = b'<!DOCTYPE d [<!ENTITY a "%s">]><d>&a;</d>' % (b"x" * 1000)
    path = archive_at(tmp_path / "a.ods", content=[(entities, 1)])
    with pytest.raises(ListError, match="DOCTYPE"):
        read_ods(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("content.xml", "<d/>")
    with pytest.raises(ListError, match="compress"):
        read_ods(path)


def check_million_cells(read, path, first):
    [sheet] = read(path)
    assert len(sheet.rows) == 250_000
    assert sheet.rows[-1] == (250_000, first)


@pytest.mark.all
def test_a_million_cells_are_read(tmp_path):
    cells = b"".join(
        b"<t:c><t:p>%s</t:p></t:c>" % text for text in (b"a.wav", b"text " * 20, b"1", b"2")
    )
    path = ods_at(tmp_path / "a.ods", (b"<t:table-row>%s</t:table-row>" % cells, 250_000))
    check_million_cells(read_ods, path, ["a.wav", "text " * 20, "1", "2"])
    row = b'<row><c t="s"><v>0</v></c><c t="inlineStr"><is><t>b</t></is></c><c><v>1</v></c><c><v>2</v></c></row>'
    path = xlsx_at(tmp_path / "a.xlsx", (row, 250_000), **SHARED_SHORT)
    check_million_cells(read_xlsx, path, ["x", "b", "1", "2"])


def test_damaged_spreadsheets_are_read_or_refused_by_name(tmp_path):
    """Each member is damaged inside of a sound zip, and the zip as a whole."""
    rows = b'<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" s="0"><v>0.5</v></c></row>'
    styles = b'<s><numFmts><numFmt numFmtId="1" formatCode="hh:mm"/></numFmts><cellXfs><xf numFmtId="1"/></cellXfs></s>'
    xlsx = xlsx_at(tmp_path / "sound.xlsx", (rows, 1), xl__styles=[(styles, 1)], **SHARED_SHORT)
    ods = ods_at(tmp_path / "sound.ods", (ods_row(2, 3, b'a<t:s t:c="2"/>b'), 2))
    for sound, read in ((xlsx, read_xlsx), (ods, read_ods)):
        with zipfile.ZipFile(sound) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        path = tmp_path / f"a{sound.suffix}"
        for case, data in damaged(members | {"zip": sound.read_bytes()}, 40):
            name = case.partition(",")[0]
            path.write_bytes(data)
            if name != "zip":
                with zipfile.ZipFile(path, "w") as archive:
                    for member, content in members.items():
                        archive.writestr(member, data if member == name else content)
            try:
                read(path)
            except ListError as error:
                assert str(error).startswith(f"{path}: "), case
                assert "\n" not in str(error), case
            except Exception as error:
                raise AssertionError(f"{case}: {error!r}") from error
