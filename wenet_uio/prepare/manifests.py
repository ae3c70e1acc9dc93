"""Convert manifests and transcripts in any form of `forms.py` to raw lists, NeMo, Kaldi or Lhotse.

Every reader gives `RawLine`s and every writer takes them. To add a form that is written, add its
writer to WRITERS.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.features import place_of
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import written_aside
from wenet_uio.dataset.formats.data_list import RawLine, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects
from wenet_uio.prepare.audio_headers import inside_audio, read_headers
from wenet_uio.prepare.audio_of_lines import missing_audio
from wenet_uio.prepare.corpus_parts import tell_left_out
from wenet_uio.prepare.embedded import parquet_cell, write_audio
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.kaldi_tables import (
    by_key,
    check_row,
    recording_names,
    write_audio_tables,
    write_table,
)
from wenet_uio.prepare.looking import containing_folder, detect_form, tarred_audio_hint
from wenet_uio.prepare.own_corpus import BY_LOOKING, ReadOptions, read_lines, read_transcripts
from wenet_uio.prepare.readers import KALDI_TABLES
from wenet_uio.prepare.texts import normalise_lines

DIGITS = 6
"""Seconds are written with at most this many decimal places."""


def convert_manifest(
    source: str,
    read_as: str | None,
    target: str,
    write_as: str,
    executor: Executor,
    options: ReadOptions = BY_LOOKING,
    text: str = "none",
) -> int:
    """Read one form and write another; audio headers are read where the target needs lengths.

    The keys are those of training: `formats/keys.py` describes them. What was understood is printed
    first, and what is left out is counted and named: see `inside_audio` and `write_audio`. Audio
    that is inside parquet is written to `TARGET.audio/`, or to `TARGET/audio/` of a Kaldi
    directory.

    Args:
        read_as: a key of FORMS; None finds out the form by looking.
        write_as: a key of WRITERS.
        options: where audio is searched, and the field of the text; `form` is ignored.
        text: how texts are normalised, a key of TEXTS; none and keep change nothing.

    Returns:
        the number of utterances.

    Raises:
        ListError: the source is empty, has a key twice or is not in its form, or audio is missing
            or cannot be read.
    """
    source_path = Path(source)
    options = replace(options, form=read_as)
    read = read_transcripts if options.searches(source_path) else read_lines
    lines = read(source_path, options)

    folder = _find_folder_of_paths(source_path, read_as)
    lines = [replace(line, wav=_find_absolute_path(line.wav, folder)) for line in lines]
    lines = with_distinct_keys(lines)
    if text not in ("keep", "none"):
        lines = normalise_lines(lines, text)

    _check_keys(source, lines)
    lines = _keep_existing_audio(source, lines, options.allow_bad)
    lines = inside_audio(lines, source, executor)

    # Only audio inside parquet is written; every other file stays where it is.
    audio_folder = Path(target, "audio") if write_as == "kaldi" else Path(f"{target}.audio")
    path_of = write_audio([(line.wav, line.key) for line in lines], audio_folder.absolute())
    lines = [replace(line, wav=path_of[line.wav]) for line in lines if line.wav in path_of]

    WRITERS[write_as](lines, target, executor)
    return len(lines)


def _check_keys(source: str, lines: Sequence[RawLine]) -> None:
    """Raise ListError if two utterances have one key."""
    wav_of: dict[str, str] = {}
    for line in lines:
        if line.key in wav_of:
            raise ListError(
                f"{source}: key {line.key} comes twice, for {wav_of[line.key]} and {line.wav}"
            )

        wav_of[line.key] = line.wav


def _keep_existing_audio(source: str, lines: Sequence[RawLine], allow_bad: bool) -> list[RawLine]:
    """Return the lines whose audio files exist.

    Raises:
        ListError: files do not exist, and `allow_bad` does not leave their lines out.
    """
    wavs = dict.fromkeys(line.wav for line in lines)  # each file once, in their order
    missing = [wav for wav in wavs if _is_missing(wav)]
    if missing and not allow_bad:
        raise missing_audio(source, missing, tarred_audio_hint(Path(source), lines))

    tell_left_out(f"{source}: audio files not found", missing)
    missing_wavs = set(missing)
    return [line for line in lines if line.wav not in missing_wavs]


def write_raw(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write a raw list without an index; the index is made when the list is first opened."""
    with written_aside(path, "w") as file:
        file.writelines(line.to_json() + "\n" for line in lines)


def write_nemo(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write a NeMo manifest, with `key` and all other fields of the lines."""
    unmeasured = [line for line in lines if line.end is None and "duration" not in line.extra]
    infos = _read_infos([line.wav for line in unmeasured], executor)
    with written_aside(path, "w") as file:
        for line in lines:
            values = {
                "audio_filepath": line.wav,
                "duration": _line_seconds(line, infos.get(line.wav)),
                "text": line.text,
            }
            is_part = line.start or line.end is not None
            if is_part:
                values["offset"] = round(line.start, DIGITS)

            values["key"] = line.key
            file.write(json.dumps(line.extra | values, ensure_ascii=False) + "\n")


def write_kaldi(lines: Sequence[RawLine], folder: str, executor: Executor) -> None:
    """Write a Kaldi directory, with `segments` where utterances are parts of recordings.

    `utt2dur`, `utt2spk` and `utt2lang` are written where every utterance has the field; otherwise
    they are removed.

    Raises:
        ListError: a key or a value does not fit into a table, or audio cannot be read.
    """
    target = Path(folder)
    field_of_table = _choose_tables(lines, folder)
    _check_rows(lines, target, field_of_table)
    ordered = sorted(lines, key=lambda line: by_key(line.key))

    # Without `segments`, the tables can only name whole recordings and their first channel.
    format_span = None
    if any(line.start or line.end is not None or "channel" in line.extra for line in ordered):
        infos = _read_infos([line.wav for line in ordered if line.end is None], executor)
        format_span = partial(_format_span, infos=infos)

    for stale in KALDI_TABLES.keys() - field_of_table:
        (target / stale).unlink(missing_ok=True)

    write_table(target / "text", ((line.key, line.text) for line in ordered))
    write_audio_tables(target, ordered, lambda line: line.wav, format_span)
    for table, field in field_of_table.items():
        write_table(target / table, ((line.key, line.extra[field]) for line in ordered))


def _choose_tables(lines: Sequence[RawLine], folder: str) -> dict[str, str]:
    """Return {table: field} of the optional Kaldi tables whose field every utterance has.

    Stderr names the fields that have no table.
    """
    names: set[str] = set()
    for line in lines:
        names.update(line.extra)

    lost = sorted(names - {*KALDI_TABLES.values(), "channel"})
    if lost:
        print(f"{folder}: Kaldi has no table for {', '.join(lost)}; left out", file=sys.stderr)

    field_of_table: dict[str, str] = {}
    for table, field in KALDI_TABLES.items():
        if all(field in line.extra for line in lines):
            field_of_table[table] = field

    return field_of_table


def _check_rows(lines: Sequence[RawLine], folder: Path, field_of_table: Mapping[str, str]) -> None:
    """Raise ListError if a key or a value of a line does not fit into a table of one row a line."""
    for line in lines:
        check_row(folder / "text", line.key, line.text)
        check_row(folder / "wav.scp", line.key, line.wav)
        for table, field in field_of_table.items():
            check_row(folder / table, line.key, line.extra[field])


def _format_span(line: RawLine, infos: Mapping[str, AudioInfo]) -> str:
    """Return `start end` of an utterance in seconds, and its channel, as in `segments`.

    Args:
        infos: headers of the audio of lines without an end.
    """
    end = line.end
    if end is None:
        info = infos[line.wav]
        end = info.num_samples / info.sample_rate

    channel = f" {line.extra['channel']}" if "channel" in line.extra else ""
    return f"{round(line.start, DIGITS)} {round(end, DIGITS)}{channel}"


def write_lhotse(lines: Sequence[RawLine], path: str, executor: Executor) -> None:
    """Write cuts (`.jsonl` or `.jsonl.gz`), each with one supervision.

    Raises:
        ListError: the name has another suffix, lhotse is not installed, or audio cannot be read.
    """
    if not path.endswith((".jsonl", ".jsonl.gz")):
        raise ListError(
            f"{path}: the name of a file of Lhotse cuts must end in .jsonl or .jsonl.gz"
        )

    if find_spec("lhotse") is None:
        raise ListError(f"{path}: writing cuts needs lhotse; pip install lhotse")

    infos = _read_infos([line.wav for line in lines], executor)
    names = recording_names([line.wav for line in lines])

    with written_aside(path) as file:
        # Without a name and a time in its header, the same cuts give the same bytes.
        plain = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.endswith(".gz") else file
        for line in lines:
            cut = _make_cut(line, infos[line.wav], names[line.wav])
            plain.write(json.dumps(cut, ensure_ascii=False).encode() + b"\n")

        if plain is not file:
            plain.close()


def _make_cut(line: RawLine, info: AudioInfo, recording_name: str) -> dict[str, Any]:
    """Return an utterance as JSON-able values of a Lhotse cut with one supervision."""
    from lhotse import MonoCut, Recording, SupervisionSegment
    from lhotse.audio import AudioSource

    source_type = "url" if "://" in line.wav else "file"
    source = AudioSource(source_type, list(range(info.channels)), line.wav)
    length = info.num_samples / info.sample_rate
    recording = Recording(recording_name, [source], info.sample_rate, info.num_samples, length)

    # Fields that cut, recording or supervision have a place for are not `custom`.
    custom = dict(line.extra)
    for stated in ("duration", "sampling_rate"):
        custom.pop(stated, None)
    channel = custom.pop("channel", 0)
    speaker = custom.pop("speaker", None)
    language = custom.pop("language", None)
    gender = custom.pop("gender", None)

    start = round(line.start, DIGITS)
    duration = _line_seconds(line, info)
    supervision = SupervisionSegment(
        line.key,
        recording_name,
        start=0.0,
        duration=duration,
        channel=channel,
        text=line.text,
        speaker=speaker,
        language=language,
        gender=gender,
        custom=custom or None,
    )
    cut = MonoCut(line.key, start, duration, channel, [supervision], recording=recording)
    return cut.to_dict()


WRITERS = {"raw": write_raw, "nemo": write_nemo, "kaldi": write_kaldi, "lhotse": write_lhotse}


def _read_infos(wavs: Sequence[str], executor: Executor) -> dict[str, AudioInfo]:
    """Read the header of each audio file once.

    Raises:
        ListError: headers cannot be read; the message has all of them.
    """
    distinct = list(dict.fromkeys(wavs))
    infos: dict[str, AudioInfo] = {}
    bad: list[str] = []

    for wav, info in zip(distinct, read_headers(distinct, executor), strict=True):
        if isinstance(info, str):
            bad.append(f"{wav}: {info}")
        else:
            infos[wav] = info

    if bad:
        title = f"{len(bad)} of {len(distinct)} audio files cannot be read:"
        raise ListError("\n  ".join([title, *bad]))

    return infos


def _line_seconds(line: RawLine, info: AudioInfo | None) -> float:
    """Return seconds of an utterance: by the header of its audio, or as the line states if the
    header was not read.
    """
    if info is not None:
        try:
            return round(info.samples_between(line.start, line.end) / info.sample_rate, DIGITS)
        except AudioError as error:
            raise ListError(f"{line.key}: {line.wav}: {error}") from None

    if line.end is not None:
        return round(line.end - line.start, DIGITS)

    return float(line.extra["duration"])


def _is_missing(wav: str) -> bool:
    """Tell whether audio names a local file that does not exist, or a place in such a file."""
    if parquet_cell(wav) or objects.is_remote(wav):
        return False
    file = place_of(objects.without_scheme(wav)).path
    return not os.path.isfile(file)  # noqa: PTH113 - the name may be too long


def _find_folder_of_paths(source: Path, form: str | None) -> Path:
    """Return the folder of relative paths that do not exist relative to the working folder."""
    if form is None and source.exists():
        form = detect_form(source)
    if form is not None and FORMS[form].is_relative_to_file:
        return containing_folder(source)
    return Path()


def _find_absolute_path(wav: str, folder: Path) -> str:
    """Return the path from the working folder if a file is there, else from `folder`; URIs stay."""
    if "://" in wav:
        return wav

    in_working_folder = os.path.abspath(wav)  # noqa: PTH100 - resolve() would follow links
    if os.path.exists(in_working_folder):  # noqa: PTH110 - the name may be too long
        return in_working_folder
    return os.path.abspath(folder / wav)  # noqa: PTH100
