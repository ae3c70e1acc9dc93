"""Index the lines of a raw list from the headers of their audio; a line that states a duration needs no audio."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wenet_uio.audio.read import AudioError, audio_info
from wenet_uio.dataset.corpus.index import NOMINAL_RATE, Entry, Problem, Rows, rows_of, shard_table
from wenet_uio.dataset.formats.data_list import ListError, RawLine, lines_of, locate, parse_raw_line, reason_to_skip
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.executor import Executor, chunks

UTTERANCES_PER_RUN = 1000
"""Lines of a raw list that count as one shard; `make_shard_list.py` puts as many utterances into a tar by default."""

LINES_PER_JOB = 64
"""Lines of a raw list in one job of a thread or a process."""

Columns = dict[str, np.ndarray]


def entry_of(line: RawLine, data_list: str | Path, offset: int, size: int) -> Entry:
    """Index entry of a line; reads the header of its audio unless the line states a duration.

    Args:
        offset: byte of the list at which the line starts.
        size: bytes of the line.

    Raises:
        AudioError: the audio cannot be read, or the segment is empty.
    """
    duration = line.extra.get("duration")
    if duration is not None:
        rate = int(line.extra.get("sampling_rate") or NOMINAL_RATE)
        count = round(float(duration) * rate)
    else:
        info = audio_info(_header_source(locate(line.wav, data_list)))
        rate, count = info.sample_rate, info.samples_between(line.start, line.end)
    if count <= 0:
        raise AudioError(f"{line.wav}: no audio between {line.start} s and {line.end} s")
    return Entry(line.key, count, rate, len(line.text.strip()), offset, size)


def _header_source(path: str) -> str | bytes:
    if objects.is_plain(path):
        return path
    try:
        return objects.read_bytes(path)
    except OSError as error:
        raise AudioError(str(error)) from None


def table_of_runs(rows: Rows, first: np.ndarray, ends: np.ndarray) -> Columns:
    """Columns of the index of a file whose lines are samples.

    Args:
        rows: all samples of the file.
        first: (shards,) the first row of each run of lines that counts as a shard.
        ends: (shards,) one past the last row of each run.
    """
    table = shard_table(rows.slice(int(a), int(b)) for a, b in zip(first, ends, strict=True))
    return {**rows.columns(), **table, "first_row": first}


def raw_columns(data_list: str, per_run: int, executor: Executor, layout: Layout) -> tuple[Columns, list[Problem]]:
    """Columns of the index of a raw list, and (key, reason) of each line that cannot be used.

    Every `per_run` lines count as one shard; a run without a usable line is left out.
    """
    lines = [(offset, line) for offset, line in lines_of(data_list) if line.strip()]
    jobs = [(data_list, layout, part) for part in chunks(list(enumerate(lines, 1)), LINES_PER_JOB)]
    results = executor.map(_index_lines, jobs, "index", len(lines), lambda job: len(job[2]))
    entries: list[Entry] = []
    bad: list[Problem] = []
    used = np.zeros(-(-len(lines) // per_run), np.int64)  # usable lines of each run
    for number, outcome in enumerate(outcome for result in results for outcome in result):
        if isinstance(outcome, Entry):
            entries.append(outcome)
            used[number // per_run] += 1
        else:
            bad.append(outcome)
    used = used[used > 0]
    ends = np.cumsum(used)
    return table_of_runs(rows_of(entries), ends - used, ends), bad


def _index_lines(job: tuple[str, Layout, list[tuple[int, tuple[int, bytes]]]]) -> list[Entry | Problem]:
    """Index entries of numbered lines with their offsets, or (key, reason) of a line that cannot be used."""
    data_list, layout, lines = job

    def index_line(number: int, offset: int, text: bytes) -> Entry | Problem:
        key = f"{data_list}:{number}"
        try:
            line = parse_raw_line(text, layout.text_field)
            key = line.key
            skip = reason_to_skip(line)
            if skip:
                return key, skip
            return entry_of(line, data_list, offset, len(text))
        except (ListError, AudioError) as error:
            return key, str(error)

    return [index_line(number, offset, text) for number, (offset, text) in lines]


def has_remote_audio(data_list: str, layout: Layout) -> bool:
    """Whether any line of a raw list names audio in a remote store."""
    return any(b"://" in text and objects.is_remote(_wav_of(text, layout)) for _, text in lines_of(data_list))


def _wav_of(text: bytes, layout: Layout) -> str:
    try:
        return parse_raw_line(text, layout.text_field).wav
    except ListError:  # already among the bad samples
        return ""
