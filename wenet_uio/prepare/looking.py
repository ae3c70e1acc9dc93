"""Find out the form of a corpus by names and first lines.

Two possible forms are an error.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from wenet_uio.base.files import naming
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.nemo_tarred import SUB
from wenet_uio.prepare.audio_search import ensure_audio_suffix
from wenet_uio.prepare.beside import FilesOfFolder, corpus_files
from wenet_uio.prepare.columns import named_columns
from wenet_uio.prepare.corpus_parts import files_below
from wenet_uio.prepare.division import PARTS, names_divide_corpus, stated_part
from wenet_uio.prepare.embedded import parquet_files
from wenet_uio.prepare.forms import FORM_OF_SUFFIX, FORMS
from wenet_uio.prepare.table_rows import BAR, STATED_SEPARATOR, TAB, table_lines

TABLES = (
    *("metadata.csv", "metadata.txt", "metadata.tsv", "metadata.jsonl"),
    *("metadata.xlsx", "metadata.ods"),
)
"""Names of tables that describe the audio of their folder."""
TABLE_SUFFIXES = (".tsv", ".csv", ".xlsx", ".ods", ".json", ".jsonl", ".list")
"""Suffixes of files that may have the texts of a folder of no known form."""
NEMO_TARS = "audio_*.tar"
"""Names of the tars of NeMo's converter."""
SHARD_ID = "shard_id"
"""Field of NeMo's entries that names the tar of the audio."""
OF_OTHERS = {".xls": "Excel before 2007 wrote it: save it as .xlsx or CSV UTF-8"}
"""Suffixes of forms that are not read, and what to do."""
FIELDS = {"lhotse": ("recording", "supervisions"), "funasr": ("source", "target")}
"""Form of JSON lines -> fields that tell it."""
CHAT_OF_FUNASR = "<|startofspeech|>"
"""In a message of FunASR's lists of chats."""
NAMES = (
    *("transcripts.txt", "transcript.txt", "*.trans.txt", "*_transcript_*.txt"),
    *("prompts", "prompts.txt"),
)
"""Names, in any case, of the files of transcripts in folders of audio."""

AUDACITY_LABEL = re.compile(r"(\d+[.,]\d+|\d+)\t(\d+[.,]\d+|\d+)(?:\t(.*))?$", re.DOTALL)
"""A label of Audacity; older versions write decimal commas in some languages."""
LINES_LOOKED_AT = 1000
SHOWN = 3
"""This many utterances are shown as they were understood."""
SHARE_OF_BARS = 0.9
"""More than this share of the rows of a table with bars have one."""


def detect_form(path: Path) -> str:
    """Return the form of a file or folder of transcripts.

    Raises:
        ListError: nothing says the form, or two forms are possible; the message has the options
            that tell.
    """
    if path.is_dir():
        return _detect_folder_form(path)

    suffix = path.suffix.lower()
    if suffix == ".gz" and path.stem.lower().endswith(".jsonl"):
        return "lhotse"
    if suffix == ".txt" or is_transcripts(path):
        return _detect_text_form(path)

    if suffix[1:] in FORM_OF_SUFFIX:
        return FORM_OF_SUFFIX[suffix[1:]]
    if suffix == ".csv":
        return _detect_csv_form(path)
    if suffix in (".json", ".jsonl", ".list"):
        return _detect_json_form(path)

    hint = OF_OTHERS.get(suffix, f"give --form {', '.join(FORMS)}")
    raise ListError(f"{path}: the name does not say the form of the file; {hint}")


def is_transcripts(path: Path) -> bool:
    """Tell whether a file has a name of NAMES."""
    return any(fnmatchcase(path.name.lower(), name) for name in NAMES)


def is_labels(path: str | Path) -> bool:
    """Tell whether a text file has labels of Audacity: its first line has two times and a tab."""
    with open(path, encoding="utf-8-sig", errors="replace") as file, naming(path):
        return AUDACITY_LABEL.match(file.readline()) is not None


def _detect_text_form(path: Path) -> str:
    """Return the form of a .txt: Excel's Unicode text has tabs and names of columns."""
    first_line = next((line for _, line in table_lines(path) if line.strip()), "")
    columns = named_columns(first_line.replace('"', "").split(TAB))
    if "text" in columns and ("wav" in columns or "start" in columns):
        return "tsv"
    if is_labels(path):
        return "audacity"
    if is_transcripts(path) or not _has_bars(path):
        return "transcripts"
    return "ljspeech"


def _detect_json_form(path: Path) -> str:
    """Return the form of a file of JSON, by its first line; `nemo` for lists of any other kind."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first_line = file.readline().lstrip()
    if first_line.startswith("["):
        return "labelstudio"

    if CHAT_OF_FUNASR in first_line:
        return "funasr"

    for form, fields in FIELDS.items():
        if all(f'"{name}"' in first_line for name in fields):
            return form

    return "nemo"


def _detect_csv_form(path: Path) -> str:
    """Return `ljspeech` if nearly all rows have a bar, and commas separate no header or audio.

    Otherwise `csv`.
    """
    first_line = next((line for _, line in table_lines(path)), "")
    if STATED_SEPARATOR.fullmatch(first_line) or not _has_bars(path):
        return "csv"

    # The first row as it would be if commas separated the cells
    first_row = next(csv.reader([first_line]), [""])
    is_header = named_columns(first_row).keys() >= {"wav", "text"}
    begins_with_audio = ensure_audio_suffix(first_row[0]) == first_row[0]
    if len(first_row) > 1 and (is_header or begins_with_audio):
        return "csv"
    return "ljspeech"


def _has_bars(path: Path) -> bool:
    """Tell whether nearly all rows have a bar; the reader names the others."""
    rows = (line for _, line in table_lines(path) if line.strip())
    has_bar = [BAR in row for row in itertools.islice(rows, LINES_LOOKED_AT)]
    return sum(has_bar) > SHARE_OF_BARS * len(has_bar)


def _detect_folder_form(folder: Path) -> str:
    """Return the form of a folder, by its files.

    Raises:
        ListError: the files may be of no known form, or of several.
    """
    if (folder / "wav.scp").exists():
        return "kaldi"

    examples: dict[str, str] = {}  # form -> name of a file of this form
    table = metadata_table(folder)
    if table:
        examples[detect_form(table)] = table.name

    files = list(files_below(folder))
    transcripts = [file for file in files if is_transcripts(file)]
    parquet = parquet_files(files)
    if transcripts:
        examples["transcripts"] = str(transcripts[0].relative_to(folder))
    if parquet:
        examples["parquet"] = str(parquet[0].relative_to(folder))

    beside = corpus_files(folder)
    examples |= _forms_beside(beside)
    if not examples:
        raise _unknown_form(folder, beside, files)
    if len(examples) > 1:
        raise _ambiguous_form(folder, examples)

    return next(iter(examples))


def metadata_table(folder: Path) -> Path | None:
    """Return the table that describes the audio of a folder, if there is one."""
    return next((folder / name for name in TABLES if (folder / name).is_file()), None)


def _forms_beside(files: FilesOfFolder) -> dict[str, str]:
    """Return {form: name of a file} of the files of text that stand beside audio.

    Files of some forms count without audio beside them: those of many recordings, those that name
    their audio, and all files with times if the folder has no audio.
    """
    example_of: dict[str, str] = {}
    for file in files.texts:
        if is_transcripts(file.path) or file.path.name in TABLES:
            continue

        needs_no_audio = file.form in ("ctm", "stm", "elan")
        has_times = file.form != "pairs"
        if not (file.audio or needs_no_audio or (has_times and not files.audio)):
            continue

        form = file.form
        # Files are opened until one is plain text: a folder may have many.
        if form == "pairs" and form not in example_of and is_labels(file.path):
            form = "audacity"
        example_of[form] = file.path.name

    return example_of


def _unknown_form(folder: Path, beside: FilesOfFolder, files: Sequence[Path]) -> ListError:
    """Return an error that says what is in a folder of no known form, and what to do."""
    contents = "it has no file"
    if files:
        suffixes = Counter(path.suffix or path.name for path in files).most_common(4)
        counts = ", ".join(f"{count} {suffix}" for suffix, count in suffixes)
        contents = (
            f"{len(beside.audio)} audio files, and none has a file of text of the same name "
            f"({counts})"
        )

    tables = [path for path in files if path.suffix.lower() in TABLE_SUFFIXES]
    # A release has small tables too, of durations or reports, beside the large ones of texts.
    largest = max(tables, key=lambda path: path.stat().st_size, default=None)
    example = f", such as {largest.name}" if largest else ""
    return ListError(
        f"{folder}: no form of corpus is recognised: {contents}; name a file of "
        f"transcripts{example}, or give --form {', '.join(FORMS)}"
    )


def _ambiguous_form(path: Path, example_of: dict[str, str]) -> ListError:
    """Return an error that names each form that a folder may have, with an example."""
    readings = []
    for form, example in sorted(example_of.items()):
        shown_example = f" ({example})" if example else ""
        readings.append(f"{FORMS[form].meaning}{shown_example}: --form {form}")

    return ListError(f"{path}: may be {', or '.join(readings)}")


def add_folder_parts(lines: Sequence[RawLine], folder: Path) -> list[RawLine]:
    """Return the lines with the parts that the folders of their audio name.

    They stay as they are unless the folders divide the corpus.

    `folder/train/a.wav` is of the part train.
    """
    parts = [_top_folder_part(line.wav, folder) for line in lines]
    if not names_divide_corpus(parts) or any(map(stated_part, lines)):
        return list(lines)

    return [
        replace(line, extra=line.extra | {"part": part})
        for line, part in zip(lines, parts, strict=True)
    ]


def _top_folder_part(wav: str, folder: Path) -> str | None:
    """Return the part that the first folder of a path below `folder` names; None if there is none."""
    if not Path(wav).is_relative_to(folder):
        return None
    names = Path(wav).relative_to(folder).parts
    return PARTS.get(names[0].lower()) if len(names) > 1 else None


def tarred_audio_hint(source: Path, lines: Sequence[RawLine]) -> str:
    """Return what to do with a manifest of NeMo whose audio is in tars; empty for other files.

    Args:
        lines: of the manifest, some of whose audio is missing.
    """
    if any(os.path.isfile(line.wav) for line in lines):  # noqa: PTH113 - the name may be too long
        return ""

    folder = containing_folder(source)
    names_tars = any(SHARD_ID in line.extra for line in lines)
    # NeMo writes the manifest of each tar to a folder beside the tars.
    has_tars = any(folder.glob(NEMO_TARS)) or any(folder.parent.glob(NEMO_TARS))
    if not names_tars and not has_tars:
        return ""

    hint = (
        "; the audio seems to be in NeMo's tars, which are read without conversion: write a list "
        f"of the line `{folder}/audio_{{0..511}}.tar`, a tab and `{source}`, with the numbers of "
        "your tars, and give --data_type shard"
    )
    if any(SUB.search(line.wav) for line in lines):
        return hint  # the file of such a name is a part of a member

    return f"{hint}; to convert it, first unpack each tar: tools/extract_shard.py TAR --to {folder}"


def containing_folder(path: Path) -> Path:
    """Return the folder of a file; a folder is its own."""
    return path if path.is_dir() else path.parent


def describe_corpus(path: Path, form: str, lines: Sequence[RawLine]) -> str:
    """Describe what was understood of a corpus, for the user to check before files are written.

    The first SHOWN utterances are part of it.
    """
    count_of_part = Counter(stated_part(line) for line in lines if stated_part(line))
    counts = ", ".join(f"{part} {count}" for part, count in count_of_part.items())
    parts_shown = f"; parts: {counts}" if count_of_part else ""
    recordings = len({line.wav for line in lines})

    examples: list[str] = []
    for line in lines[:SHOWN]:
        span = f", {line.start:g} s to {line.end:g} s" if line.end is not None else ""
        examples.append(f'  {line.wav}{span}: "{line.text}"')

    return (
        f"{path}: {FORMS[form].meaning} (--form {form}); {len(lines)} utterances in {recordings} audio "
        f"files{parts_shown}\n" + "\n".join(examples)
    )
