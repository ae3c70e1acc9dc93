"""Manifests of other tools from and to one another: NeMo's, Lhotse's, Kaldi's, our raw lists; from TSV and CSV too."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info
from wenet_uio.dataset.formats.data_list import ListError, RawLine, locate, parse_raw_line
from wenet_uio.dataset.formats.lhotse_cuts import read_cuts, utterance_of
from wenet_uio.executor import Executor, chunks
from wenet_uio.files import written_aside
from wenet_uio.prepare.kaldi_tables import read_filled_table, read_utterances, recording_names, write_table
from wenet_uio.prepare.separated import read_csv, read_tsv
from wenet_uio.text.table import numbered_lines

KALDI_TABLES = {"utt2dur": "duration", "utt2spk": "speaker", "utt2lang": "language"}
"""Tables of an utterance's fields beside wav.scp, text and segments."""
FILES_PER_JOB = 256
"""Whose headers a worker reads in one go."""
DIGITS = 6
"""Of seconds, as they are written."""


def convert_manifest(source: str, read_as: str, target: str, write_as: str, executor: Executor) -> int:
    """Read one form and write another; headers of audio are read where the target has to know their length.

    Returns:
        the number of utterances.

    Raises:
        ListError: what the source holds that no other form can say, or the audio that cannot be read.
    """
    lines = [replace(line, wav=_absolute(line.wav)) for line in READERS[read_as](source)]
    if not lines:
        raise ListError(f"{source}: no utterance in it")
    keys: dict[str, str] = {}
    for line in lines:
        if line.key in keys:
            raise ListError(f"{source}: key {line.key} is there twice, for {keys[line.key]} and {line.wav}")
        keys[line.key] = line.wav
    WRITERS[write_as](lines, target, executor)
    return len(lines)


def read_list(path: str) -> list[RawLine]:
    """Lines of a raw list or a NeMo manifest."""
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
    """Utterances of a Kaldi directory: `wav.scp`, `text`, and `segments`, `utt2dur`, `utt2spk`, `utt2lang` if there."""
    segments = os.path.join(folder, "segments")
    lines = read_utterances(
        os.path.join(folder, "wav.scp"),
        os.path.join(folder, "text"),
        segments if os.path.exists(segments) else None,
    )
    for table, field in KALDI_TABLES.items():
        path = os.path.join(folder, table)
        if os.path.exists(path):
            values = read_filled_table(path)
            kind = float if field == "duration" else str
            lines = [
                replace(line, extra={**line.extra, field: kind(values[line.key])}) if line.key in values else line
                for line in lines
            ]
    return lines


def read_lhotse(path: str) -> list[RawLine]:
    """Cuts of Lhotse, each a piece of one recording with its text."""
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
    """Write a raw list; make_raw_list.py's index is made when it is first opened."""
    with written_aside(path, "w") as file:
        file.writelines(line.to_json() + "\n" for line in lines)


def write_nemo(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write a NeMo manifest; `key` and every other field are kept in it."""
    infos = _infos([line.wav for line in lines if _needs_length(line)], executor)
    with written_aside(path, "w") as file:
        for line in lines:
            values = {"audio_filepath": line.wav, "duration": _duration(line, infos), "text": line.text}
            if line.start or line.end is not None:
                values["offset"] = round(line.start, DIGITS)
            values["key"] = line.key
            file.write(json.dumps(line.extra | values, ensure_ascii=False) + "\n")


def write_kaldi(lines: Sequence[RawLine], folder: str, executor: Executor) -> None:
    """Write a Kaldi directory, with `segments` where utterances are parts of recordings."""
    lost = sorted({name for line in lines for name in line.extra} - set(KALDI_TABLES.values()))
    if lost:
        print(f"{folder}: Kaldi has no table for {', '.join(lost)}; left out", file=sys.stderr)
    tables: dict[str, dict[str, object]] = {"text": {line.key: line.text for line in lines}}
    if any(line.start or line.end is not None for line in lines):
        infos = _infos([line.wav for line in lines if line.end is None], executor)
        names = recording_names([line.wav for line in lines])
        tables["wav.scp"] = {name: wav for wav, name in names.items()}
        tables["segments"] = {}
        for line in lines:
            end = line.end if line.end is not None else infos[line.wav].num_samples / infos[line.wav].sample_rate
            tables["segments"][line.key] = f"{names[line.wav]} {round(line.start, DIGITS)} {round(end, DIGITS)}"
    else:
        tables["wav.scp"] = {line.key: line.wav for line in lines}
    for table, field in KALDI_TABLES.items():
        if all(field in line.extra for line in lines):
            tables[table] = {line.key: line.extra[field] for line in lines}
    for stale in {"segments", *KALDI_TABLES} - set(tables):
        Path(folder, stale).unlink(missing_ok=True)
    for table, values in tables.items():
        write_table(Path(folder, table), values)


def write_lhotse(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write cuts (`.jsonl` or `.jsonl.gz`), each with one supervision."""
    if not path.endswith((".jsonl", ".jsonl.gz")):
        raise ListError(f"{path}: Lhotse knows cuts by the end of their name, .jsonl or .jsonl.gz")
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
    """What the headers of audio files say, or why they cannot be read."""
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
    infos = dict(zip(distinct, (info for chunk in results for info in chunk), strict=True))
    bad = [f"{wav}: {info}" for wav, info in infos.items() if isinstance(info, str)]
    if bad:
        raise ListError("\n  ".join([f"{len(bad)} of {len(distinct)} audio files cannot be read:", *bad]))
    return infos


def _needs_length(line: RawLine) -> bool:
    return line.end is None and "duration" not in line.extra


def _duration(line: RawLine, infos: dict[str, AudioInfo]) -> float:
    if line.wav in infos:
        info = infos[line.wav]
        return round(info.samples_between(line.start, line.end) / info.sample_rate, DIGITS)
    if line.end is not None:
        return round(line.end - line.start, DIGITS)
    return float(line.extra["duration"])


def _absolute(wav: str) -> str:
    return wav if "://" in wav else os.path.abspath(wav)
