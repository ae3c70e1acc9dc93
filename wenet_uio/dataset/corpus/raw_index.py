"""Index the lines of a raw list from the headers of their audio; a line that states a duration
needs no audio.
"""

from __future__ import annotations

import itertools
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wenet_uio.audio.decoders import FRAME_RATE, MOST_SAMPLES, AudioError, AudioInfo
from wenet_uio.audio.features import place_of
from wenet_uio.audio.read import SAMPLE_RATES, audio_info
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.columns import GrowingColumns
from wenet_uio.dataset.corpus.index import (
    COLUMNS,
    NOMINAL_RATE,
    Entry,
    Problem,
    Rows,
    hash_key,
    rows_of,
    shard_table,
)
from wenet_uio.dataset.corpus.remote_audio import stored_info, stored_infos
from wenet_uio.dataset.corpus.repeats import repeats_in_lines
from wenet_uio.dataset.corpus.unread_audio import Unread, measured
from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line, reason_to_skip
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import Audio, distinct_keys
from wenet_uio.dataset.formats.list_file import DataList
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.ranged_object import REQUESTS
from wenet_uio.dataset.storage.settings import SettingError
from wenet_uio.dataset.storage.transfer import version_of

UTTERANCES_PER_RUN = 1000
"""Lines of a raw list that count as one shard; `make_shard_list.py` puts as many utterances into a
tar by default."""

LINES_PER_JOB = 64
"""Lines of a raw list in one job of a thread or a process."""
LINES_AT_ONCE = 1 << 13
"""Lines of a raw list whose rows are made together."""

BLANK = b" \t\v\f\r\n" + BOM_UTF8
"""Bytes of a line without content; the first line may begin with a byte order mark."""
RATE_LINES = 10
"""Lines at the beginning of a list that are searched for a sample rate."""
RATE_SECONDS = 20.0
"""Seconds that the search waits for a store; the list may be indexed where its audio is not."""

Columns = dict[str, np.ndarray]
NumberedLine = tuple[int, tuple[int, bytes]]
"""Number of a line in its list from 1, its offset in bytes, and its bytes."""


def entry_of(
    line: RawLine,
    data_list: str | Path,
    offset: int,
    size: int,
    nominal_rate: int = NOMINAL_RATE,
    info_in_store: Callable[[str], AudioInfo] = stored_info,
) -> Entry:
    """Return the index entry of a line; reads the header of its audio unless the line states a
    duration.

    Args:
        offset: byte of the list at which the line starts.
        size: bytes of the line.
        nominal_rate: Hz, for a line that states a duration and no sampling_rate.
        info_in_store: `stored_info`, for audio that is packed or in a store.

    Raises:
        AudioError: the audio cannot be read or is cut short, or the segment is empty.
        ListError: the line states an impossible sampling_rate or duration.
    """
    duration = line.extra.get("duration")
    if duration is not None:
        is_stored_features = place_of(line.wav).offset is not None
        rate = FRAME_RATE if is_stored_features else _stated_rate(line) or nominal_rate
        count = round(float(duration) * rate)
        if count > MOST_SAMPLES:
            raise ListError(
                f"duration: {duration} s are more than {MOST_SAMPLES} samples; split the audio"
            )
    else:
        info = info_of(locate(line.wav, data_list), info_in_store)
        rate, count = info.sample_rate, info.samples_between(line.start, line.end)

    if count <= 0:
        raise AudioError(f"{line.wav}: no audio between {line.start} s and {line.end} s")

    return Entry(line.key, count, rate, len(line.text.strip()), offset, size)


def _stated_rate(line: RawLine) -> int | None:
    """Return the sampling_rate of a line in Hz; None if the line states none."""
    stated = line.extra.get("sampling_rate")
    if not stated:
        return None

    try:
        rate = int(stated)
    except (TypeError, ValueError, OverflowError):
        rate = 0

    if not SAMPLE_RATES[0] <= rate <= SAMPLE_RATES[1]:
        raise ListError(
            f"sampling_rate must be {SAMPLE_RATES[0]} to {SAMPLE_RATES[1]} Hz, found {stated!r}"
        )

    return rate


def nominal_rate_of(
    data_list: str, first_lines: Sequence[bytes], layout: Layout, unread: Unread
) -> int:
    """Return Hz of the lines that state a duration and no sampling_rate: that of the first such
    line that tells a rate.

    A line tells a rate by its sampling_rate or by its audio. NOMINAL_RATE if none of `first_lines`
    does. Audio that cannot be read is noted in `unread`.

    Raises:
        OSError: the system does not give a local file.
    """
    for text in first_lines:
        try:
            line = parse_raw_line(text, layout.text_field)
            if line.extra.get("duration") is None:
                continue
            if rate := _stated_rate(line):
                return rate
        except ListError:  # will be among the bad lines
            continue

        path = locate(line.wav, data_list)

        def info(path: str = path) -> AudioInfo:
            if objects.is_remote(path):
                _check_answer(path)
            return info_of(path, stored_info)

        try:
            return measured(line.wav, data_list, info, unread).sample_rate
        except (AudioError, ListError):  # the list may be indexed where its audio is not
            if not objects.is_plain(path):
                break  # each attempt may wait for a store
    return NOMINAL_RATE


def _check_answer(uri: str) -> None:
    """Raise an AudioError unless a store answers soon. The cache does not remember that the store
    was absent.
    """
    try:
        version_of(uri, RATE_SECONDS)
    except SettingError:
        raise
    except (OSError, ValueError) as error:
        raise AudioError(str(error)) from error


def info_of(path: str, info_in_store: Callable[[str], AudioInfo]) -> AudioInfo:
    """Return the length and format of audio at a local path or in a store.

    Raises:
        AudioError: the audio cannot be read.
        ListError: a store cannot give such features.
    """
    if objects.is_plain(path):
        return audio_info(path)

    if place_of(path).offset is not None:
        raise ListError(
            f"{path}: archives of features in a store are not read by byte; pack them into shards"
        )

    try:
        return info_in_store(path)
    except SettingError:  # the index would remember every utterance as bad
        raise
    except (OSError, ValueError) as error:  # ValueError: no such transport, or not a URI
        raise AudioError(str(error)) from error


def table_of_runs(rows: Rows, first: np.ndarray, ends: np.ndarray) -> Columns:
    """Return columns of the index of a file whose lines are samples.

    Args:
        rows: all samples of the file.
        first: (shards,) the first row of each run of lines that counts as a shard.
        ends: (shards,) one past the last row of each run.
    """
    runs = (rows.slice(int(start), int(end)) for start, end in zip(first, ends, strict=True))
    return {**rows.columns(), **shard_table(runs), "first_row": first}


class ListContents(NamedTuple):
    """What the index of a list holds."""

    columns: Columns
    bad: list[Problem]
    """(key, reason) of each sample that cannot be used."""
    unread: Unread
    """The files that could not be read, or not as a whole."""
    is_remote: bool
    """Whether any audio is in a remote store."""
    warnings: list[str]
    """Sentences about what is odd in the list as a whole."""


def raw_index(
    data_list: DataList, per_run: int, executor: Executor, layout: Layout
) -> ListContents:
    """Return what the index of a raw list holds.

    Every `per_run` lines count as one shard; a run without a usable line is left out. Lines are
    read and columns are written as indexing goes on: memory holds neither the list nor the index.

    Threads ask stores for REQUESTS files at a time; each process or job of Ray for one.

    Raises:
        ListError: the list has changed since its first reading.
        OSError: the system does not give a local audio file.
    """
    requests = ThreadPoolExecutor(REQUESTS)
    requests_of_jobs = requests if executor.kind == "threads" else None
    unread: Unread = {}
    jobs = _jobs(data_list, layout, requests_of_jobs, unread)
    answers = executor.map(_index_lines, jobs, "index", data_list.file.size, _bytes_of, unit="B")
    is_remote = False

    def outcomes() -> Iterator[Entry | Problem]:
        nonlocal is_remote
        for answer in answers:
            is_remote |= answer.has_remote_audio
            unread.update(answer.unread)
            yield from answer.outcomes

    try:
        rows, bad, used = _gather(outcomes(), per_run)
    finally:
        requests.shutdown(cancel_futures=True)

    if _are_keys_repeated(rows, bad):
        rows = _with_distinct_keys(rows, data_list, layout)

    samples_of_runs = np.asarray([count for count in used if count], np.int64)
    ends = np.cumsum(samples_of_runs)
    columns = table_of_runs(rows, ends - samples_of_runs, ends)
    return ListContents(columns, bad, unread, is_remote, repeats_in_lines(rows))


def _gather(
    outcomes: Iterator[Entry | Problem], per_run: int
) -> tuple[Rows, list[Problem], list[int]]:
    """Return rows of all entries, all problems, and the number of entries of each run of lines."""
    columns = GrowingColumns({**COLUMNS, "keys": np.uint8})
    bad: list[Problem] = []
    used: list[int] = []
    keys_end = 0
    numbered = enumerate(outcomes)
    while block := list(itertools.islice(numbered, LINES_AT_ONCE)):
        rows = rows_of([outcome for _, outcome in block if isinstance(outcome, Entry)])
        # The ends of keys count from the start of the block; in the index, from that of the file.
        columns.append(replace(rows, key_end=rows.key_end + np.uint64(keys_end)))
        keys_end += len(rows.keys)

        for number, outcome in block:
            is_first_of_run = number // per_run == len(used)
            if is_first_of_run:
                used.append(0)
            if isinstance(outcome, Entry):
                used[-1] += 1
            else:
                bad.append(outcome)

    return Rows(**columns.arrays(), key_start=0, tar_pages=""), bad, used


def _are_keys_repeated(rows: Rows, bad: Sequence[Problem]) -> bool:
    """Tell whether two lines of a list have one key; lines that cannot be used count too."""
    hashes = np.append(
        rows.key_hash, np.asarray([hash_key(key.encode()) for key, _ in bad], np.uint64)
    )
    return len(np.unique(hashes)) < len(hashes)


def _with_distinct_keys(rows: Rows, data_list: DataList, layout: Layout) -> Rows:
    """Return rows of a list in which a key occurs twice; lines that state no key may get folders in
    front of their keys.

    The list is read a second time: few lists repeat a key, and keeping the audio of every line
    would cost all others the memory.

    Raises:
        ListError: the list has changed since the first reading.
    """
    parsed: dict[int, tuple[str, Audio | None]] = {}
    again = DataList(data_list.file, "raw")
    for offset, text in again.lines():
        try:
            line = parse_raw_line(text, layout.text_field)
            parsed[offset] = line.key, line.audio_of_key
        except ListError:
            continue  # blank, or already among the bad lines

    if again.state() != data_list.state():
        raise ListError(f"{data_list.path}: changed while it was indexed; start again")

    keys = distinct_keys(
        [key for key, _ in parsed.values()], [audio for _, audio in parsed.values()]
    )
    key_at = dict(zip(parsed, keys, strict=True))
    return rows.with_keys([key_at[offset] for offset in rows.audio_offset.tolist()])


def _jobs(
    data_list: DataList, layout: Layout, requests: ThreadPoolExecutor | None, unread: Unread
) -> Iterator[_Job]:
    """Yield the lines of a list that are not blank, LINES_PER_JOB at a time."""
    rate = nominal_rate_of(data_list.path, data_list.head[:RATE_LINES], layout, unread)
    numbered = enumerate(data_list.lines(), 1)
    filled = (line for line in numbered if line[1][1].strip(BLANK))
    while lines := list(itertools.islice(filled, LINES_PER_JOB)):
        yield _Job(data_list.path, layout, rate, lines, requests)


class _Job(NamedTuple):
    """Lines of a list that one worker indexes."""

    data_list: str
    layout: Layout
    nominal_rate: int
    lines: Sequence[NumberedLine]
    requests: ThreadPoolExecutor | None
    """Reads from stores; None: the worker reads one file at a time."""


def _bytes_of(job: _Job) -> int:
    return sum(len(text) for _, (_, text) in job.lines)


class _Answer(NamedTuple):
    """What a worker says of the lines of a job."""

    outcomes: list[Entry | Problem]
    """For each line its index entry, or (key, reason) if the line cannot be used."""
    has_remote_audio: bool
    """A line names audio in a remote store; lines with a reason count too, if they parse."""
    unread: Unread
    """The audio that could not be read."""


def _index_lines(job: _Job) -> _Answer:
    """Index the lines of a job."""
    has_remote_audio = False

    def parsed(number: int, text: bytes) -> RawLine | Problem:
        """Return a line, or its key and why it is left out."""
        nonlocal has_remote_audio
        key = f"{job.data_list}:{number}"
        try:
            line = parse_raw_line(text, job.layout.text_field)
            key = line.key
            has_remote_audio |= objects.is_remote(line.wav)
            skip = reason_to_skip(line.extra)
        except ListError as error:
            return key, str(error)
        return (key, skip) if skip else line

    lines = [parsed(number, text) for number, (_, text) in job.lines]
    unread: Unread = {}
    info_in_store = stored_info
    if job.requests is not None:
        info_in_store = stored_infos(_asked_of_stores(lines), job.requests)

    def outcome(line: RawLine | Problem, offset: int, size: int) -> Entry | Problem:
        """Return the entry of a line: audio is read only if no duration is stated."""
        if not isinstance(line, RawLine):
            return line

        def entry() -> Entry:
            return entry_of(line, job.data_list, offset, size, job.nominal_rate, info_in_store)

        try:
            if line.extra.get("duration") is not None:
                return entry()
            return measured(line.wav, job.data_list, entry, unread)
        except (ListError, AudioError) as error:
            return line.key, str(error)

    outcomes = [
        outcome(line, offset, len(text))
        for line, (_, (offset, text)) in zip(lines, job.lines, strict=True)
    ]
    return _Answer(outcomes, has_remote_audio, unread)


def _asked_of_stores(lines: Sequence[RawLine | Problem]) -> list[str]:
    """Return the files in stores that tell the lengths of these lines."""
    return [
        line.wav
        for line in lines
        if isinstance(line, RawLine)
        and line.extra.get("duration") is None
        and objects.is_remote(line.wav)
        and place_of(line.wav).offset is None
    ]
