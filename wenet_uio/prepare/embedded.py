"""Read texts of files with audio inside, such as Hugging Face's parquet; write audio to files.

Until its audio is written, the `wav` of a line names a cell: `x.parquet/3.tar/000012.audio.flac`
is the column `audio` of row 12 in row group 3.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.files import naming, written_aside
from wenet_uio.dataset.formats.data_list import RawLine, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.rows import audio_column, line_of_row, times_of, uncut_note
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.dataset.storage import parquet_file
from wenet_uio.dataset.storage.versions import StorageError
from wenet_uio.prepare.columns import tell_text_column
from wenet_uio.prepare.corpus_parts import Recording, files_below, tell_left_out
from wenet_uio.prepare.division import PARTS, names_divide_corpus

SUFFIX = ".parquet"
CELL = re.compile(rf"(.*(?i:{re.escape(SUFFIX)}))/(\d+)\.tar/(\d+)\.(.*)\.(\w+)")
"""The `wav` of a line whose audio is in a cell; the parts are those of `Cell`."""
CUTTING = frozenset({"start", "end", "offset"})
"""Fields with which a line of a list is a segment."""
UNKNOWN = "wav"
"""Suffix of audio whose row states no path."""


class Cell(NamedTuple):
    """Where a parquet file holds the audio of a line."""

    file: str
    group: int
    """Number of the row group in the file."""
    row: int
    """Number of the row in its group."""
    column: str
    suffix: str
    """Of the audio."""


@dataclass
class _Findings:
    """What the rows of parquet files have, over all files."""

    columns: set[str] = field(default_factory=set)
    times: dict[str, None] = field(default_factory=dict)
    """Columns that state times of segments, in their order."""
    without_text: list[str] = field(default_factory=list)
    """Cell and reason of each row without a text."""

    def tell(self, path: str) -> None:
        """Print on stderr what is left out."""
        if self.times:
            print(uncut_note(path, self.times, are_fields=False), file=sys.stderr)
        tell_left_out(f"{path}: rows without a text", self.without_text)


def parquet_cell(wav: str | Path) -> Cell | None:
    """Return the cell that the `wav` of a line names; None if it names a file."""
    match = CELL.fullmatch(str(wav))
    if match is None:
        return None
    return Cell(match[1], int(match[2]), int(match[3]), match[4], match[5])


def parquet_files(files: Iterable[Path]) -> list[Path]:
    """Return those files that are parquet by their names."""
    return [file for file in files if file.suffix.lower() == SUFFIX]


def read_parquet(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read the texts of a parquet file, or of all parquet files below a folder. Audio is not read.

    The names of the files, such as `train-00000-of-00002.parquet`, or of their folders give the
    parts if all names do.

    Raises:
        ListError: there is no such file, or no row has a text.
        DriverError: pyarrow is not installed.
        StorageError: a file is damaged, or has no audio.
    """
    files = parquet_files(files_below(Path(path))) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise ListError(f"{path}: no {SUFFIX} in it")

    parts = [_named_part(file, Path(path)) for file in files]
    names_divide = names_divide_corpus(parts)
    rows_with_audio: list[tuple[str, RawLine]] = []
    findings = _Findings()

    for file, part in zip(files, parts, strict=True):
        extra = {"part": part} if names_divide else {}
        rows = _read_file(file, text_field, findings)
        rows_with_audio += [(wav, replace(line, extra=line.extra | extra)) for wav, line in rows]

    if findings.without_text and not rows_with_audio:
        raise ListError(findings.without_text[0])

    findings.tell(path)
    tell_text_column(path, findings.columns, text_field)
    lines = with_distinct_keys([line for _, line in rows_with_audio])
    return [
        replace(line, wav=wav, is_named_by_audio=False)
        for line, (wav, _) in zip(lines, rows_with_audio, strict=True)
    ]


def _named_part(file: Path, folder: Path) -> str | None:
    """Return the part by which the name of a file, or of a folder of it below `folder`, begins."""
    folders_below = [place for place in file.parents if folder in place.parents]
    for place in (file, *folders_below):
        first_word = re.match(r"[a-z]*", place.name.lower())
        if first_word and first_word[0] in PARTS:
            return PARTS[first_word[0]]

    return None


def _read_file(
    file: Path, text_field: str | None, findings: _Findings
) -> list[tuple[str, RawLine]]:
    """Return (cell of the audio, line) of each row with a text; add to the findings."""
    lines = []
    with file.open("rb") as opened, naming(file):
        try:
            binary_columns, groups = parquet_file.texts_of(opened)
        except ValueError as error:
            raise StorageError(f"{file}: {error}") from None

        audio = audio_column(binary_columns, None)
        if audio is None:
            raise ListError(
                f"{file}: several columns hold audio ({', '.join(binary_columns)}); keep one of them"
            )

        for group, rows in enumerate(groups):
            findings.columns.update(*rows[:1])  # all rows have the columns of the first
            for row, values in enumerate(rows):
                name = f"{file.stem}_{group}_{row:06d}"
                try:
                    line = line_of_row(name, audio, values, text_field)
                    if not line.text.strip():
                        raise ListError("its text is empty")
                except ListError as error:
                    findings.without_text.append(f"{file}: {name}: {error}")
                    continue

                # As `Cell` reads it
                suffix = line.wav.rpartition(".")[2].lower()
                if suffix not in AUDIO_SUFFIXES:
                    suffix = UNKNOWN
                cell = f"{file.absolute()}/{group}.tar/{row:06d}.{audio}.{suffix}"

                times = times_of(values)
                findings.times.update(dict.fromkeys(times))
                lines.append((cell, _drop_times(line, times)))

    return lines


def _drop_times(line: RawLine, times: Sequence[str]) -> RawLine:
    """Return the line without fields that would cut its audio in a list.

    A duration after a start is that of a segment, and need not be that of the audio.
    """
    extra = {
        name: value
        for name, value in line.extra.items()
        if name not in CUTTING and not (name == "duration" and name in times)
    }
    return replace(line, extra=extra)


def write_audio(wavs: Sequence[tuple[str, str]], folder: Path) -> dict[str, str]:
    """Write audio that is inside other files to `folder/KEY.SUFFIX`.

    Rows without audio are counted and named.

    Args:
        wavs: `wav` and key of each line.

    Returns:
        the path of each `wav` that has audio; a `wav` that is a file already is its own path.

    Raises:
        ListError: no row has audio.
    """
    paths: dict[str, str] = {}
    # The lines of each row group by their rows, so that each group of a file is read once.
    groups: dict[tuple[str, int], dict[int, tuple[str, str, Cell]]] = defaultdict(dict)
    for wav, key in wavs:
        cell = parquet_cell(wav)
        if cell is None:
            paths[wav] = wav
        else:
            groups[cell.file, cell.group][cell.row] = (wav, key, cell)

    without_audio: list[str] = []
    for (file, group), lines_by_row in groups.items():
        with open(file, "rb") as opened:
            for number, row in enumerate(parquet_file.rows_of(opened, group)):
                if number not in lines_by_row:
                    continue

                wav, key, cell = lines_by_row[number]
                data = _audio_bytes(row[cell.column])
                if not data:
                    without_audio.append(f"{file}: {key}")
                    continue

                path = folder / f"{_file_name(key)}.{cell.suffix}"
                with written_aside(path) as audio_file:
                    audio_file.write(data)
                paths[wav] = str(path)

    if without_audio and not paths:
        raise ListError(
            f"{without_audio[0]}: no audio in its row, only a path; save the set with its audio"
        )

    tell_left_out(f"{folder}: rows without audio", without_audio)
    return paths


def _file_name(key: str) -> str:
    """Return the key as the name of a file in a folder; keys that differ have names that differ."""
    return key.replace("%", "%25").replace("/", "%2F")


def with_audio(
    parts: Mapping[str, Sequence[Recording]], folder: Path
) -> dict[str, list[Recording]]:
    """Return the parts of a corpus with audio files.

    Audio that is inside other files is written to `folder/PART`.

    Raises:
        ListError: no row of a part has audio.
    """
    parts_with_audio = {}
    for part, recordings in parts.items():
        wavs = [(str(recording.wav), recording.key) for recording in recordings]
        paths = write_audio(wavs, (folder / part).absolute())
        parts_with_audio[part] = [
            recording._replace(wav=Path(paths[str(recording.wav)]))
            for recording in recordings
            if str(recording.wav) in paths
        ]

    return parts_with_audio


def with_containers(recordings: Iterable[Recording]) -> list[Recording]:
    """Return the recordings with the file around their audio as `wav`, not a cell of that file.

    So these files can be checked before audio is written.
    """
    replaced: list[Recording] = []
    for recording in recordings:
        cell = parquet_cell(recording.wav)
        replaced.append(recording._replace(wav=Path(cell.file)) if cell else recording)

    return replaced


def _audio_bytes(value: object) -> bytes | None:
    """Return the audio of a column; None if the row has none."""
    data = value["bytes"] if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None
