"""The forms of transcripts and manifests: one record for each, found by the name that `--form` gives.

A form of an add-on is loaded when it is asked for. To add a form, write a reader, and add a record to
FORMS; `looking.py` finds out a form that no suffix says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wenet_uio.config.named_code import Loaded

_HERE = "wenet_uio.prepare"
_CORPORA = "wenet_uio.addons.corpora"


@dataclass(frozen=True)
class Form:
    """What the package knows about a form of transcripts."""

    meaning: str
    """What it is, in words."""
    read: Loaded
    """`read(path, text_field)` returns RawLines."""
    audio: Literal["paths", "tables", "names", "inside"] = "paths"
    """How transcripts give their audio. paths: as paths. tables: as paths, or names that are searched
    in their folder if no file is at the path. names: as names, which are searched in their folder.
    inside: the files hold the audio."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of files that have this form alone."""
    is_beside_audio: bool = False
    """Whether files of these suffixes stand beside audio of their names."""
    has_columns: bool = False
    """Whether `read` takes TableOptions too."""
    is_relative_to_file: bool = False
    """Whether relative paths of audio may be relative to the file."""
    describes_folder: bool = False
    """Whether a file of this form may describe the audio of its folder, as metadata.csv."""
    names_all_audio: bool = False
    """Whether one file has the texts of all audio of a folder."""


FORMS: dict[str, Form] = {
    "raw": Form("a raw list", Loaded(f"{_HERE}.readers:read_list"), is_relative_to_file=True),
    "nemo": Form(
        "a NeMo manifest",
        Loaded(f"{_HERE}.readers:read_list"),
        is_relative_to_file=True,
        describes_folder=True,
    ),
    "kaldi": Form("a Kaldi directory", Loaded(f"{_HERE}.readers:read_kaldi")),
    "funasr": Form(
        "a list of FunASR", Loaded(f"{_CORPORA}.funasr:read_funasr"), is_relative_to_file=True
    ),
    "labelstudio": Form(
        "an export of Label Studio",
        Loaded(f"{_CORPORA}.label_studio:read_label_studio"),
        audio="tables",
    ),
    "lhotse": Form("Lhotse cuts", Loaded(f"{_HERE}.readers:read_lhotse")),
    "tsv": Form(
        "a table with tabs",
        Loaded(f"{_HERE}.separated:read_tsv"),
        audio="tables",
        suffixes=("tsv",),
        has_columns=True,
        is_relative_to_file=True,
        describes_folder=True,
    ),
    "csv": Form(
        "a table with commas or semicolons",
        Loaded(f"{_HERE}.separated:read_csv"),
        audio="tables",
        has_columns=True,
        is_relative_to_file=True,
        describes_folder=True,
    ),
    "xlsx": Form(
        "a table of Excel",
        Loaded(f"{_CORPORA}.spreadsheets:read_spreadsheet"),
        audio="tables",
        suffixes=("xlsx", "xlsm"),
        has_columns=True,
        describes_folder=True,
    ),
    "ods": Form(
        "a table of LibreOffice",
        Loaded(f"{_CORPORA}.spreadsheets:read_spreadsheet"),
        audio="tables",
        suffixes=("ods",),
        has_columns=True,
        describes_folder=True,
    ),
    "ljspeech": Form(
        "a table with bars, as metadata.csv of LJSpeech",
        Loaded(f"{_CORPORA}.named_texts:read_bars"),
        audio="names",
        has_columns=True,
        describes_folder=True,
        names_all_audio=True,
    ),
    "transcripts": Form(
        "a file of names and texts in a folder of audio",
        Loaded(f"{_CORPORA}.named_texts:read_transcripts_txt"),
        audio="names",
        names_all_audio=True,
    ),
    "pairs": Form(
        "a file with the text beside each audio file",
        Loaded(f"{_HERE}.beside:read_pairs"),
        audio="names",
    ),
    "srt": Form(
        "SRT subtitles of recordings",
        Loaded(f"{_CORPORA}.recordings:read_srt"),
        audio="names",
        suffixes=("srt",),
        is_beside_audio=True,
    ),
    "vtt": Form(
        "WebVTT subtitles of recordings",
        Loaded(f"{_CORPORA}.recordings:read_vtt"),
        audio="names",
        suffixes=("vtt",),
        is_beside_audio=True,
    ),
    "textgrid": Form(
        "TextGrids of recordings",
        Loaded(f"{_CORPORA}.recordings:read_textgrid"),
        audio="names",
        suffixes=("textgrid",),
        is_beside_audio=True,
    ),
    "ctm": Form(
        "CTM, words with times in recordings",
        Loaded(f"{_CORPORA}.recordings:read_ctm_files"),
        audio="names",
        suffixes=("ctm",),
        is_beside_audio=True,
        names_all_audio=True,
    ),
    "stm": Form(
        "STM, segments with times in recordings",
        Loaded(f"{_CORPORA}.recordings:read_stm_files"),
        audio="names",
        suffixes=("stm",),
        is_beside_audio=True,
        names_all_audio=True,
    ),
    "audacity": Form(
        "label tracks of Audacity",
        Loaded(f"{_CORPORA}.recordings:read_audacity"),
        audio="names",
    ),
    "elan": Form(
        "annotations of ELAN",
        Loaded(f"{_CORPORA}.recordings:read_elan"),
        audio="names",
        suffixes=("eaf",),
        is_beside_audio=True,
    ),
    "parquet": Form(
        "parquet with audio, as Hugging Face's sets have it",
        Loaded(f"{_HERE}.embedded:read_parquet"),
        audio="inside",
        suffixes=("parquet",),
    ),
}
"""{name: form}. Nothing else in the package lists the forms."""
FORM_OF_SUFFIX = {suffix: name for name, form in FORMS.items() for suffix in form.suffixes}
"""Suffixes of one form each, without the dot."""
