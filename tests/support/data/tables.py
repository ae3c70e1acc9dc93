"""One table of transcripts in the forms in which programs write it."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

GERMAN = {
    "001.wav": "Das ist schön, sagt er",
    "002.wav": 'Sie heißt "Ölmühle"; nicht Mühle',
    "003.wav": "Straße 5, zweiter Stock",
    "clips/004.wav": "ja",
    "clips/Müller 5.wav": "„Guten Tag“ – so grüßt man",
    "clips/006.wav": "Äpfel und Birnen",
}
"""Path of the audio -> text; in cp1252."""
CHINESE = {
    "001.wav": "今天天气很好",
    "002.wav": '他说,"我们去公园"',
    "录音/003.wav": "请问;火车站在哪里",
    "录音/004.wav": "谢谢",
}
"""Path of the audio -> text; in gb18030."""

Texts = dict[str, str]
Write = Callable[[Path, Texts], Path]


def _csv(rows: Sequence[Sequence[str]], separator: str = ",", end: str = "\r\n", **how) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator=end, **how).writerows(rows)
    return file.getvalue()


def _rows(texts: Texts, *header: str) -> list[tuple[str, ...]]:
    return [header, *texts.items()]


def _written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def as_plain_tsv(folder: Path, texts: Texts) -> Path:
    lines = ["path\ttext", *("\t".join(row) for row in texts.items())]
    return _written(folder / "table.tsv", "\n".join(lines) + "\n")


def as_csv_utf8_of_excel(folder: Path, texts: Texts) -> Path:
    return _written(folder / "table.csv", _csv(_rows(texts, "wav", "text"), ";"), "utf-8-sig")


def as_csv_of_excel(encoding: str) -> Write:
    def write(folder: Path, texts: Texts) -> Path:
        rows = (
            _rows(texts, "Dateiname", "Satz") if texts is GERMAN else _rows(texts, "音频", "文本")
        )
        separator = ";" if texts is GERMAN else ","
        return _written(folder / "table.csv", _csv(rows, separator), encoding)

    return write


def as_unicode_text_of_excel(folder: Path, texts: Texts) -> Path:
    rows = _rows(texts, "File name", "Transcript")
    return _written(folder / "Tabelle1.txt", _csv(rows, "\t"), "utf-16")


def as_utf16_without_mark(folder: Path, texts: Texts) -> Path:
    return _written(folder / "table.csv", _csv(_rows(texts, "file", "text")), "utf-16-le")


def as_csv_of_google_sheets(folder: Path, texts: Texts) -> Path:
    rows = [(text, wav) for wav, text in texts.items()]
    return _written(folder / "Sheet 1.csv", _csv([("sentence", "audio"), *rows])[:-2])


def as_csv_of_libreoffice(folder: Path, texts: Texts) -> Path:
    rows = _csv(_rows(texts, "Filename", "Sentence"), end="\n", quoting=csv.QUOTE_ALL)
    return _written(folder / "table.csv", rows)


def as_tsv_of_pandas(folder: Path, texts: Texts) -> Path:
    rows = [
        ("", "audio_filepath", "text"),
        *((str(n), *row) for n, row in enumerate(texts.items())),
    ]
    return _written(folder / "table.tsv", _csv(rows, "\t", "\n"))


def as_csv_with_sep_line(folder: Path, texts: Texts) -> Path:
    rows = _csv(_rows(texts, "path", "sentence"), "|")
    return _written(folder / "table.csv", "sep=|\r\n" + rows, "utf-8-sig")


def as_csv_of_old_mac(folder: Path, texts: Texts) -> Path:
    rows = _csv(_rows(texts, "datei", "text"), ";", "\r")
    return _written(folder / "table.csv", rows, "mac_roman")


def as_csv_with_unknown_words(folder: Path, texts: Texts) -> Path:
    rows = [
        ("Nr.", "Wer", "Was gesprochen wurde", "Wo"),
        *((str(n), "Anna", text, wav) for n, (wav, text) in enumerate(texts.items(), 1)),
    ]
    return _written(folder / "table.csv", _csv(rows, ";"), "utf-8-sig")


def as_csv_without_header(folder: Path, texts: Texts) -> Path:
    rows = [(f"{n}", text, wav) for n, (wav, text) in enumerate(texts.items(), 1)]
    return _written(folder / "table.csv", _csv(rows, ";"))


def as_csv_with_title_and_empty_cells(folder: Path, texts: Texts) -> Path:
    rows = [("Aufnahmen im Mai", "", "", ""), ("", "", "", ""), ("Datei", "Text", "", "")]
    rows += [(wav, text, "", "") for wav, text in texts.items()] + [("", "", "", "")] * 3
    return _written(folder / "table.csv", _csv(rows, ";"), "utf-8-sig")


def as_csv_with_windows_paths(folder: Path, texts: Texts) -> Path:
    rows = [(wav.replace("/", "\\"), text) for wav, text in texts.items()]
    return _written(folder / "table.csv", _csv([("path", "text"), *rows]), "utf-8-sig")


def as_csv_with_paths_of_another_machine(folder: Path, texts: Texts) -> Path:
    rows = [
        ("C:\\Users\\anna\\" + wav.replace("/", "\\"), text.replace(" ", "\n", 1))
        for wav, text in texts.items()
    ]
    return _written(folder / "table.csv", _csv([("path", "text"), *rows]), "utf-8-sig")


def as_tsv_with_names_of_audio(folder: Path, texts: Texts) -> Path:
    rows = [(Path(wav).stem, text) for wav, text in texts.items()]
    return _written(folder / "table.tsv", _csv([("Aufnahme", "Text"), *rows], "\t"))


def as_xlsx_of_excel(folder: Path, texts: Texts) -> Path:
    """As Excel writes it: shared strings in runs, readings of characters, numbers with a format."""
    strings: list[str] = []
    rows = []
    for number, (wav, text) in enumerate([("音频文件", "文本"), *texts.items()], 1):
        cells = ""
        for column, value in zip("BC", (wav, text), strict=True):
            cells += f'<c r="{column}{number}" t="s"><v>{len(strings)}</v></c>'
            runs = f"<r><t xml:space='preserve'>{escape(value[:2])}</t></r>"
            runs += f"<r><rPr><b/></rPr><t xml:space='preserve'>{escape(value[2:])}</t></r>"
            strings.append(f"<si>{runs}<rPh sb='0' eb='1'><t>読み</t></rPh></si>")
        rows.append(f'<row r="{number}">{cells}<c r="D{number}" s="0"/></row>')
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    files = {
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{relations}"><sheets>'
        '<sheet name="alt" sheetId="2" state="hidden" r:id="rId2"/>'
        '<sheet name="Tabelle1" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/'
        'package/2006/relationships"><Relationship Id="rId1" Target="worksheets/sheet1.xml"/>'
        '<Relationship Id="rId2" Target="/xl/worksheets/sheet2.xml"/></Relationships>',
        "xl/sharedStrings.xml": f"<sst {main}>{''.join(strings)}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{''.join(rows)}</sheetData>"
        "</worksheet>",
        "xl/worksheets/sheet2.xml": f"<worksheet {main}><sheetData/></worksheet>",
    }
    with zipfile.ZipFile(folder / "table.xlsx", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return folder / "table.xlsx"


def as_xlsx_of_openpyxl(folder: Path, texts: Texts) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("File name", "Text"), (None, None), *texts.items()]:
        book.active.append(row)
    book.create_sheet("Notizen")["A1"] = "nicht lesen"
    book.save(folder / "table.xlsx")
    return folder / "table.xlsx"


def as_ods(folder: Path, texts: Texts) -> Path:
    pytest.importorskip("odf")
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow
    from odf.text import P

    document = OpenDocumentSpreadsheet()
    sheet = Table(name="Tabelle1")
    for wav, text in [("Datei", "Satz"), *texts.items()]:
        row = TableRow()
        row.addElement(TableCell(numbercolumnsrepeated=2))
        for value in (wav, text):
            cell = TableCell(valuetype="string")
            cell.addElement(P(text=value))
            row.addElement(cell)
        row.addElement(TableCell(numbercolumnsrepeated=1000))
        sheet.addElement(row)
    empty = TableRow(numberrowsrepeated=1_000_000)
    empty.addElement(TableCell(numbercolumnsrepeated=16_000))
    sheet.addElement(empty)
    document.spreadsheet.addElement(sheet)
    document.save(str(folder / "table.ods"))
    return folder / "table.ods"


OF_ANY_LANGUAGE: dict[str, Write] = {
    "plain TSV": as_plain_tsv,
    "CSV UTF-8 of Excel with semicolons": as_csv_utf8_of_excel,
    "Unicode text of Excel": as_unicode_text_of_excel,
    "UTF-16 without a mark": as_utf16_without_mark,
    "CSV of Google Sheets": as_csv_of_google_sheets,
    "CSV of LibreOffice, all in quotes": as_csv_of_libreoffice,
    "TSV of pandas": as_tsv_of_pandas,
    "CSV with the line sep=": as_csv_with_sep_line,
    "CSV with unknown words": as_csv_with_unknown_words,
    "CSV without a header": as_csv_without_header,
    "CSV with a title and empty cells": as_csv_with_title_and_empty_cells,
    "CSV with paths of Windows": as_csv_with_windows_paths,
    "CSV with paths of another machine": as_csv_with_paths_of_another_machine,
    "TSV with names of audio": as_tsv_with_names_of_audio,
    "Excel": as_xlsx_of_excel,
    "openpyxl": as_xlsx_of_openpyxl,
    "ODS": as_ods,
}
OF_GERMAN: dict[str, Write] = {
    "CSV of German Excel": as_csv_of_excel("cp1252"),
    "CSV of Excel for old Macs": as_csv_of_old_mac,
}
OF_CHINESE: dict[str, Write] = {"CSV of Chinese Excel": as_csv_of_excel("gb18030")}
