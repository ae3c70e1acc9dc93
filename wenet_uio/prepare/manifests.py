"""Conversion between NeMo manifests, Lhotse cuts, Kaldi directories and raw lists; TSV and CSV can be read.

Every reader gives `RawLine`s and every writer takes them. To add a form, write a reader and a writer and add them to
READERS and WRITERS.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info
from wenet_uio.cli import listed
from wenet_uio.dataset.formats.data_list import ListError, RawLine, locate, parse_raw_line, with_distinct_keys
from wenet_uio.dataset.formats.lhotse_cuts import read_cuts, utterance_of
from wenet_uio.dataset.storage import objects
from wenet_uio.executor import Executor, chunks
from wenet_uio.files import written_aside
from wenet_uio.prepare.kaldi_tables import (
    NAMED,
    by_key,
    check_row,
    read_filled_table,
    read_utterances,
    recording_names,
    write_audio_tables,
    write_table,
)
from wenet_uio.prepare.separated import read_csv, read_tsv
from wenet_uio.text.table import numbered_lines

KALDI_TABLES = {"utt2dur": "duration", "utt2spk": "speaker", "utt2lang": "language"}
"""Kaldi tables with one field of each utterance, by the name of the field in `RawLine.extra`."""
FILES_PER_JOB = 256
"""A worker reads the headers of this many files in one job."""
DIGITS = 6
"""Seconds are written with at most this many decimal places."""


def convert_manifest(source: str, read_as: str, target: str, write_as: str, executor: Executor) -> int:
    """Read one form and write another; audio headers are read where the target needs lengths.

    The keys are those of training: `formats/keys.py` describes them.

    Args:
        read_as: a key of READERS.
        write_as: a key of WRITERS.

    Returns:
        the number of utterances.

    Raises:
        ListError: the source is empty, has a key twice or is not in its form, or audio is missing or cannot be read.
    """
    lines = with_distinct_keys([replace(line, wav=_absolute(line.wav)) for line in READERS[read_as](source)])
    if not lines:
        raise ListError(f"{source}: no utterance in it")
    keys: dict[str, str] = {}
    for line in lines:
        if line.key in keys:
            raise ListError(f"{source}: key {line.key} comes twice, for {keys[line.key]} and {line.wav}")
        keys[line.key] = line.wav
    missing = [wav for wav in dict.fromkeys(line.wav for line in lines) if _is_missing(wav)]
    if missing:
        raise ListError(f"{source}: {len(missing)} audio file(s) not found: {listed(missing, NAMED)}")
    WRITERS[write_as](lines, target, executor)
    return len(lines)


def read_list(path: str) -> list[RawLine]:
    """Read a raw list or a NeMo manifest.

    Raises:
        ListError: a line is not valid; the message names file and line.
    """
    lines = []
    for number, text in numbered_lines(path):
        if text.strip():
            try:
                line = parse_raw_line(text)
            except ListError as error:
                raise ListError(f"{path}:{number}: {error}") from None
            lines.append(replace(line, wav=locate(line.wav, path)))
    return lines


def read_kaldi(folder: str) -> list[RawLine]:
    """Read a Kaldi directory: `wav.scp`, `text`, and those of `segments`, `utt2dur`, `utt2spk`, `utt2lang` that exist.

    Raises:
        ListError: there is no such folder, or the tables do not fit together.
    """
    if not Path(folder).is_dir():
        raise ListError(f"{folder}: no such folder; expected a Kaldi directory with wav.scp and text")
    segments = Path(folder, "segments")
    lines = read_utterances(
        str(Path(folder, "wav.scp")), str(Path(folder, "text")), str(segments) if segments.exists() else None
    )
    for table, field in KALDI_TABLES.items():
        path = Path(folder, table)
        if path.exists():
            values = read_filled_table(str(path))
            kind = float if field == "duration" else str
            lines = [
                replace(line, extra={**line.extra, field: kind(values[line.key])}) if line.key in values else line
                for line in lines
            ]
    return lines


def read_lhotse(path: str) -> list[RawLine]:
    """Read Lhotse cuts, each of which is a part of one recording.

    Raises:
        ListError: lhotse is not installed, the file is damaged, or a cut has no form as a RawLine.
    """
    lines: list[RawLine] = []
    bad: list[tuple[str, str]] = []
    for cut in read_cuts(path, bad):
        try:
            lines.append(utterance_of(cut))
        except ListError as error:
            raise ListError(f"{path}: cut {cut.id}: {error}") from None
    if bad:
        raise ListError(": ".join(bad[0]))
    return lines


def write_raw(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write a raw list without an index; the index is made when the list is first opened."""
    with written_aside(path, "w") as file:
        file.writelines(line.to_json() + "\n" for line in lines)


def write_nemo(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write a NeMo manifest, with `key` and all other fields of the lines."""
    infos = _infos([line.wav for line in lines if _needs_length(line)], executor)
    with written_aside(path, "w") as file:
        for line in lines:
            values = {"audio_filepath": line.wav, "duration": _duration(line, infos), "text": line.text}
            if line.start or line.end is not None:
                values["offset"] = round(line.start, DIGITS)
            values["key"] = line.key
            file.write(json.dumps(line.extra | values, ensure_ascii=False) + "\n")


def write_kaldi(lines: Sequence[RawLine], folder: str, executor: Executor) -> None:
    """Write a Kaldi directory, with `segments` where utterances are parts of recordings.

    `utt2dur`, `utt2spk` and `utt2lang` are written where every utterance has the field; otherwise they are removed.

    Raises:
        ListError: a key or a value does not fit into a table, or audio cannot be read.
    """
    into = Path(folder)
    _tell_lost_fields(lines, folder)
    fields = _fields_of_all(lines)
    _check_rows(lines, into, fields)
    ordered = sorted(lines, key=lambda line: by_key(line.key))
    has_parts = any(line.start or line.end is not None for line in ordered)
    span_of = _kaldi_span(ordered, executor) if has_parts else None
    for stale in KALDI_TABLES.keys() - fields:
        (into / stale).unlink(missing_ok=True)
    write_table(into / "text", ((line.key, line.text) for line in ordered))
    write_audio_tables(into, ordered, lambda line: line.wav, span_of)
    for table, field in fields.items():
        write_table(into / table, ((line.key, line.extra[field]) for line in ordered))


def _tell_lost_fields(lines: Sequence[RawLine], folder: str) -> None:
    lost = {name for line in lines for name in line.extra} - set(KALDI_TABLES.values())
    if lost:
        print(f"{folder}: Kaldi has no table for {', '.join(sorted(lost))}; left out", file=sys.stderr)


def _fields_of_all(lines: Sequence[RawLine]) -> dict[str, str]:
    """Tables that can be written, with their fields: those whose field every utterance has."""
    return {table: field for table, field in KALDI_TABLES.items() if all(field in line.extra for line in lines)}


def _check_rows(lines: Sequence[RawLine], folder: Path, fields: Mapping[str, str]) -> None:
    for line in lines:
        check_row(folder / "text", line.key, line.text)
        check_row(folder / "wav.scp", line.key, line.wav)
        for table, field in fields.items():
            check_row(folder / table, line.key, line.extra[field])


def _kaldi_span(lines: Sequence[RawLine], executor: Executor) -> Callable[[RawLine], str]:
    """A function that returns `start end` of an utterance in seconds. Headers are read for lines without an end."""
    infos = _infos([line.wav for line in lines if line.end is None], executor)

    def span(line: RawLine) -> str:
        end = line.end if line.end is not None else infos[line.wav].num_samples / infos[line.wav].sample_rate
        return f"{round(line.start, DIGITS)} {round(end, DIGITS)}"

    return span


def write_lhotse(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write cuts (`.jsonl` or `.jsonl.gz`), each with one supervision.

    Raises:
        ListError: the name has another suffix, lhotse is not installed, or audio cannot be read.
    """
    if not path.endswith((".jsonl", ".jsonl.gz")):
        raise ListError(f"{path}: the name of a file of Lhotse cuts must end in .jsonl or .jsonl.gz")
    try:
        from lhotse import MonoCut, Recording, SupervisionSegment
        from lhotse.audio import AudioSource
    except ModuleNotFoundError:
        raise ListError(f"{path}: writing cuts needs lhotse; pip install lhotse") from None
    infos = _infos([line.wav for line in lines], executor)
    names = recording_names([line.wav for line in lines])

    def cut(line: RawLine) -> MonoCut:
        info, name, extra = infos[line.wav], names[line.wav], dict(line.extra)
        source = AudioSource("url" if "://" in line.wav else "file", list(range(info.channels)), line.wav)
        length = info.num_samples / info.sample_rate
        recording = Recording(name, [source], info.sample_rate, info.num_samples, length)
        channel, duration = extra.pop("channel", 0), _duration(line, infos)
        known = {field: extra.pop(field, None) for field in ("speaker", "language", "gender")}
        custom = {field: value for field, value in extra.items() if field not in ("duration", "sampling_rate")}
        said = SupervisionSegment(line.key, name, 0.0, duration, channel, line.text, custom=custom or None, **known)
        return MonoCut(line.key, round(line.start, DIGITS), duration, channel, [said], recording=recording)

    with written_aside(path) as file:
        plain = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.endswith(".gz") else file
        for line in lines:
            plain.write(json.dumps(cut(line).to_dict(), ensure_ascii=False).encode() + b"\n")
        if plain is not file:
            plain.close()


READERS = {
    "raw": read_list,
    "nemo": read_list,
    "kaldi": read_kaldi,
    "lhotse": read_lhotse,
    "tsv": read_tsv,
    "csv": read_csv,
}
WRITERS = {"raw": write_raw, "nemo": write_nemo, "kaldi": write_kaldi, "lhotse": write_lhotse}


def headers(wavs: Sequence[str]) -> list[AudioInfo | str]:
    """Read the headers of audio files; a string says why a header cannot be read."""
    found: list[AudioInfo | str] = []
    for wav in wavs:
        try:
            found.append(audio_info(wav))
        except AudioError as error:
            found.append(str(error))
    return found


def _infos(wavs: Sequence[str], executor: Executor) -> dict[str, AudioInfo]:
    distinct = list(dict.fromkeys(wavs))
    results = executor.map(headers, chunks(distinct, FILES_PER_JOB), "headers", len(distinct), len, "file")
    infos: dict[str, AudioInfo] = {}
    bad: list[str] = []
    for wav, info in zip(distinct, (info for chunk in results for info in chunk), strict=True):
        if isinstance(info, str):
            bad.append(f"{wav}: {info}")
        else:
            infos[wav] = info
    if bad:
        raise ListError("\n  ".join([f"{len(bad)} of {len(distinct)} audio files cannot be read:", *bad]))
    return infos


def _needs_length(line: RawLine) -> bool:
    return line.end is None and "duration" not in line.extra


def _duration(line: RawLine, infos: dict[str, AudioInfo]) -> float:
    if line.wav in infos:
        info = infos[line.wav]
        try:
            return round(info.samples_between(line.start, line.end) / info.sample_rate, DIGITS)
        except AudioError as error:
            raise ListError(f"{line.key}: {line.wav}: {error}") from None
    if line.end is not None:
        return round(line.end - line.start, DIGITS)
    return float(line.extra["duration"])


def _is_missing(wav: str) -> bool:
    return not objects.is_remote(wav) and not os.path.isfile(objects.without_scheme(wav))  # noqa: PTH113 - the name may be too long


def _absolute(wav: str) -> str:
    return wav if "://" in wav else os.path.abspath(wav)  # noqa: PTH100 - resolve() would follow links
