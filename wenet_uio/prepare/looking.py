"""The form of a corpus, found out by looking at names and first lines; two possible forms are an
error.
"""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from wenet_uio.dataset.formats.data_list import ListError, RawLine
from wenet_uio.prepare.audio_search import with_suffix_of_audio
from wenet_uio.prepare.beside import FORM_OF, FilesOfFolder, TextFile, files_of_corpus
from wenet_uio.prepare.corpus_parts import files_below
from wenet_uio.prepare.division import PARTS, part_of
from wenet_uio.prepare.embedded import parquet_files
from wenet_uio.prepare.named_texts import BAR, is_transcripts
from wenet_uio.prepare.separated import lines_of_table, names_of_columns

MEANINGS = {
    "raw": "a raw list",
    "nemo": "a NeMo manifest",
    "kaldi": "a Kaldi directory",
    "lhotse": "Lhotse cuts",
    "tsv": "a table with tabs",
    "csv": "a table with commas",
    "ljspeech": "a table with bars, as metadata.csv of LJSpeech",
    "transcripts": "a file of names and texts in a folder of audio",
    "pairs": "a file with the text beside each audio file",
    "srt": "SRT subtitles of recordings",
    "vtt": "WebVTT subtitles of recordings",
    "textgrid": "TextGrids of recordings",
    "ctm": "CTM, words with times in recordings",
    "parquet": "parquet with audio, as Hugging Face's sets have it",
}
"""What each form is, in words."""
TABLES = ("metadata.csv", "metadata.txt", "metadata.tsv", "metadata.jsonl")
"""Names of tables that describe the audio of their folder."""
TABLE_FORMS = frozenset({"tsv", "csv", "ljspeech", "nemo"})
"""Forms of such a table."""
LHOTSE_FIELDS = frozenset({"recording", "supervisions"})
LINES_LOOKED_AT = 1000
SHARE_OF_BARS = 0.9
"""More than this share of the rows of a table with bars have one."""


def form_of(path: Path) -> str:
    """Return the form of a file or folder of transcripts.

    Raises:
        ListError: nothing says the form, or two forms are possible; the message has the options
            that tell.
    """
    if path.is_dir():
        return _form_of_folder(path)

    suffix = path.suffix.lower()
    if suffix == ".gz" and path.stem.lower().endswith(".jsonl"):
        return "lhotse"
    if is_transcripts(path):
        return "transcripts"

    by_suffix: dict[str, Callable[[Path], str]] = {
        ".tsv": lambda path: "tsv",
        ".csv": _form_of_table,
        ".parquet": lambda path: "parquet",
        ".txt": lambda path: "ljspeech" if _has_bars(path) else "transcripts",
        **dict.fromkeys((".json", ".jsonl", ".list"), _form_of_lines),
        **{
            f".{suffix}": lambda path: FORM_OF[path.suffix[1:].lower()]
            for suffix in ("srt", "vtt", "textgrid", "ctm")
        },
    }
    if suffix not in by_suffix:
        raise ListError(
            f"{path}: the name does not say the form of the file; give --form {', '.join(MEANINGS)}"
        )

    return by_suffix[suffix](path)


def _form_of_lines(path: Path) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return "lhotse" if all(f'"{name}"' in first for name in LHOTSE_FIELDS) else "nemo"


def _form_of_table(path: Path) -> str:
    """Return a table with bars, as in LJSpeech, if nearly all rows have one, and commas do not
    separate a header or audio.
    """
    if not _has_bars(path):
        return "csv"
    first = next(csv.reader(line for _, line in lines_of_table(path)), [""])
    has_commas = names_of_columns(first) is not None or with_suffix_of_audio(first[0]) == first[0]
    return "csv" if len(first) > 1 and has_commas else "ljspeech"


def _has_bars(path: Path) -> bool:
    """Tell whether nearly all rows have a bar; the reader names the others."""
    lines = itertools.islice(
        (line for _, line in lines_of_table(path) if line.strip()), LINES_LOOKED_AT
    )
    has_bar = [BAR in line for line in lines]
    return sum(has_bar) > SHARE_OF_BARS * len(has_bar)


def _form_of_folder(folder: Path) -> str:
    if (folder / "wav.scp").exists():
        return "kaldi"

    form_files: dict[str, str] = {}
    table = table_of(folder)
    if table:
        form_files[form_of(table)] = table.name

    files = list(files_below(folder))
    if transcripts := next(filter(is_transcripts, files), None):
        form_files["transcripts"] = str(transcripts.relative_to(folder))
    if parquet := next(iter(parquet_files(files)), None):
        form_files["parquet"] = str(parquet.relative_to(folder))

    beside = files_of_corpus(folder)
    form_files |= _forms_beside(beside)
    if len(form_files) > 1:
        raise _two_readings(folder, form_files)

    if not form_files:
        raise ListError(
            f"{folder}: no form of corpus is recognised: {_contents(beside, files)}; "
            f"{_forms(files)}"
        )

    return next(iter(form_files))


def table_of(folder: Path) -> Path | None:
    """Return the table that describes the audio of a folder, if there is one."""
    return next((folder / name for name in TABLES if (folder / name).is_file()), None)


def _forms_beside(files: FilesOfFolder) -> dict[str, str]:
    """Return forms of the files of text that audio has beside it, with an example; of all if no
    file has audio beside it.
    """
    texts = [
        file
        for file in files.texts
        if not is_transcripts(file.path) and file.path.name not in TABLES
    ]
    return {file.form: file.path.name for file in texts if file.audio or _may_be_apart(file, files)}


def _may_be_apart(file: TextFile, files: FilesOfFolder) -> bool:
    """Tell whether the audio of a file may be elsewhere: words of many recordings, or times where
    no audio is near.
    """
    return file.form == "ctm" or (not files.audio and file.form != "pairs")


def _contents(files: FilesOfFolder, all_files: Sequence[Path]) -> str:
    if not all_files:
        return "it has no file"

    suffixes = Counter(path.suffix or path.name for path in all_files).most_common(4)
    listed = ", ".join(f"{count} {suffix}" for suffix, count in suffixes)
    return (
        f"{len(files.audio)} audio files, and none has a file of text of the same name ({listed})"
    )


def _forms(files: Sequence[Path]) -> str:
    tables = [
        path.name
        for path in files
        if path.suffix.lower() in (".tsv", ".csv", ".json", ".jsonl", ".list")
    ]
    such = f", such as {tables[0]}" if tables else ""
    return f"name a file of transcripts{such}, or give --form {', '.join(MEANINGS)}"


def _two_readings(path: Path, forms: dict[str, str]) -> ListError:
    examples = {form: f" ({example})" if example else "" for form, example in sorted(forms.items())}
    readings = ", or ".join(
        f"{MEANINGS[form]}{example}: --form {form}" for form, example in examples.items()
    )
    return ListError(f"{path}: may be {readings}")


def with_parts_of_folders(lines: Sequence[RawLine], folder: Path) -> list[RawLine]:
    """Return the lines with the parts that the folders of their audio name, if all of them do, and
    train and test are there.

    `folder/train/a.wav` is of the part train.
    """
    parts = [_part_of_folder(line.wav, folder) for line in lines]
    if None in parts or not {"train", "test"} <= set(parts) or any(map(part_of, lines)):
        return list(lines)

    return [
        replace(line, extra=line.extra | {"part": part})
        for line, part in zip(lines, parts, strict=True)
    ]


def _part_of_folder(wav: str, folder: Path) -> str | None:
    try:
        top_name, *inner_names = Path(wav).relative_to(folder).parts
    except ValueError:
        return None
    return PARTS.get(top_name.lower()) if inner_names else None


def description(path: Path, form: str, lines: Sequence[RawLine]) -> str:
    """Return what was understood of a corpus, for the user to check before anything is written."""
    first = lines[0]
    span = f", {first.start:g} s to {first.end:g} s" if first.end is not None else ""
    parts = Counter(filter(None, map(part_of, lines)))
    parts_shown = (
        f"; parts: {', '.join(f'{part} {count}' for part, count in parts.items())}" if parts else ""
    )
    recordings = len({line.wav for line in lines})

    return (
        f"{path}: {MEANINGS[form]} (--form {form}); {len(lines)} utterances in {recordings} audio "
        f"files{parts_shown}\n"
        f'  the first is {first.wav}{span}: "{first.text}"'
    )
