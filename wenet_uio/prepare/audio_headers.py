"""Read headers of many audio files, and compare parts of recordings with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects
from wenet_uio.prepare.corpus_parts import tell_left_out
from wenet_uio.prepare.embedded import parquet_cell

FILES_PER_JOB = 256
"""A worker reads the headers of this many files in one job."""
LATE = 0.5
"""Seconds by which an utterance may end after its audio: times of subtitles are rounded, and codecs
add silence."""


def read_headers(wavs: Sequence[str], executor: Executor) -> list[AudioInfo | str]:
    """Read the headers of audio files; a string says why a header cannot be read."""
    jobs = chunks(list(wavs), FILES_PER_JOB)
    infos: list[AudioInfo | str] = []
    for chunk in executor.map(_read_chunk, jobs, "headers", len(wavs), len, "file"):
        infos += chunk

    return infos


def _read_chunk(wavs: Sequence[str]) -> list[AudioInfo | str]:
    """Read the headers of audio files; a string says why a header cannot be read."""
    results: list[AudioInfo | str] = []
    for wav in wavs:
        try:
            results.append(audio_info(wav))
        except AudioError as error:
            results.append(str(error))

    return results


def inside_audio(lines: Sequence[RawLine], where: str, executor: Executor) -> list[RawLine]:
    """Return the utterances that last some time and are inside their audio.

    The texts of the others belong to other audio.

    An end up to LATE seconds after the audio becomes the end of the audio, unless half of the
    utterance would be lost. Audio that is remote, that is inside other files, or that cannot be
    read is not compared; lists of it say so when they are made.

    Args:
        where: the origin of the utterances, for the message that counts and names those that are
            left out.

    Raises:
        ListError: no utterance is inside its audio.
    """
    wavs = list(dict.fromkeys(line.wav for line in lines if _is_part(line)))
    infos = dict(zip(wavs, read_headers(wavs, executor), strict=True)) if wavs else {}
    inside: list[RawLine] = []
    outside: list[str] = []

    for line in lines:
        info = infos.get(line.wav) if _is_part(line) else None
        length = math.inf
        if isinstance(info, AudioInfo):  # neither unread nor unreadable
            length = info.num_samples / info.sample_rate

        cut = _cut_to_audio(line, length)
        if isinstance(cut, RawLine):
            inside.append(cut)
        else:
            outside.append(cut)

    if outside and not inside:
        raise ListError(
            f"{where}: no utterance is inside its audio: {outside[0]}; do the texts belong to this "
            "audio?"
        )

    tell_left_out(f"{where}: utterances that are not inside their audio", outside)
    return inside


def _cut_to_audio(line: RawLine, length: float) -> RawLine | str:
    """Return the line with an end inside its audio of `length` seconds.

    A string says why the line is left out.
    """
    start, end = line.start, line.end
    if end is None:
        if start < length:
            return line
        return f"{line.key} from {start:g} s to the end of {line.wav}, which has {length:g} s"

    if end <= start:
        return f"{line.key} from {start:g} s to {end:g} s of {line.wav}, which is no time"
    if end <= length:
        return line

    if end - length > min(LATE, (end - start) / 2):
        return f"{line.key} from {start:g} s to {end:g} s of {line.wav}, which has {length:g} s"

    extra = dict(line.extra)
    if "duration" in extra:
        extra["duration"] = length - start
    return replace(line, end=length, extra=extra)


def _is_part(line: RawLine) -> bool:
    """Tell whether a line is a part of a local recording."""
    has_times = line.start > 0 or line.end is not None
    return has_times and not objects.is_remote(line.wav) and parquet_cell(line.wav) is None
