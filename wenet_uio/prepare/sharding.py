"""Which utterances go into which shard: shuffled, grouped by duration, bounded in number and in bytes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wenet_uio.audio.read import AudioError, audio_info
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.executor import Executor, chunks
from wenet_uio.prepare.shard_job import Failure, Storing, is_copied, pack
from wenet_uio.prepare.shard_writer import END_BYTES, bytes_of_member

UTTERANCES_PER_JOB = 256
"""Whose headers a worker reads in one go."""
PILOT_UTTERANCES = 64
"""Encoded beforehand, to know how much a codec makes of this corpus."""
MARGIN = 1.05
"""On what a codec is expected to make, so that few shards turn out larger than their bound."""
WAV_HEADER = 44
"""Bytes."""
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


class Group(NamedTuple):
    """Utterances of `shortest` up to, but not including, `longest` seconds."""

    shortest: float
    longest: float

    @property
    def name(self) -> str:
        return f"{self.shortest:g}_{self.longest:g}"


class Measure(NamedTuple):
    """What the header of an utterance's audio says."""

    seconds: float
    num_samples: int
    """Of one channel of the utterance."""
    sample_rate: int
    channels: int
    file_bytes: int
    """Of its recording."""


@dataclass(frozen=True)
class ShardPlan:
    """What packing is going to do."""

    shards: list[tuple[str, Sequence[RawLine]]]
    """Path in the folder without .tar, and utterances of each."""
    bad: list[Failure]
    """Whose audio could not be measured."""
    outside: list[tuple[str, float]]
    """Key and seconds of what is in no group."""


def plan_shards(
    utterances: Sequence[RawLine],
    *,
    prefix: str,
    per_shard: int | None,
    max_bytes: int | None,
    groups: Sequence[Group],
    seed: int | None,
    storing: Storing,
    executor: Executor,
) -> ShardPlan:
    """Cut utterances into runs of at most `per_shard` that take some `max_bytes` at most, for each group on its own.

    `seed` None keeps their order. Headers of audio are read only where a group or a bound in bytes asks for them.
    """
    if seed is not None:
        utterances = sorted(utterances, key=lambda line: _random(seed, line.key))
    bad: list[Failure] = []
    outside: list[tuple[str, float]] = []
    if not groups and max_bytes is None:
        sizes = [0] * len(utterances)
        members = {"": list(range(len(utterances)))}
    else:
        measured = _measure_all(utterances, executor)
        bad = [(line.key, found) for line, found in zip(utterances, measured, strict=True) if isinstance(found, str)]
        sizes = _sizes(utterances, measured, storing, executor) if max_bytes is not None else [0] * len(utterances)
        members = {f"{group.name}/": [] for group in groups} or {"": []}
        for number, found in enumerate(measured):
            if isinstance(found, str):
                continue
            folder = _folder_of(found.seconds, groups)
            if folder is None:
                outside.append((utterances[number].key, round(found.seconds, 3)))
            else:
                members[folder].append(number)
    shards = [
        (f"{folder}{prefix}_{shard:09d}", [utterances[number] for number in run])
        for folder, numbers in members.items()
        for shard, run in enumerate(_runs(numbers, sizes, per_shard, max_bytes))
    ]
    return ShardPlan(shards, bad, outside)


def parse_group(text: str) -> Group:
    """Read `SHORTEST:LONGEST`, in seconds.

    Raises:
        ValueError: what was found instead.
    """
    try:
        group = Group(*map(float, text.split(":")))
    except (ValueError, TypeError):
        raise ValueError(f"a group is SHORTEST:LONGEST in seconds, such as 0.1:5, not {text!r}") from None
    if not 0 <= group.shortest < group.longest:
        raise ValueError(f"group {text}: its shortest must be below its longest")
    return group


def check_groups(groups: Sequence[Group]) -> None:
    """Refuse groups that overlap.

    Raises:
        ValueError: the two that do.
    """
    ordered = sorted(groups)
    for group, following in pairwise(ordered):
        if following.shortest < group.longest:
            raise ValueError(f"groups {group.name} and {following.name} overlap; end one where the next begins")


def parse_size(text: str) -> int:
    """Read a number of bytes: 1000000, 500MB, 1.5GB, 1GiB.

    Raises:
        ValueError: what was found instead.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?)B?", text.strip().upper())
    if not match or match[2] not in UNITS or not float(match[1]):
        raise ValueError(f"a size is a number of bytes such as 500MB, 1GB or 1GiB, not {text!r}")
    return round(float(match[1]) * UNITS[match[2]])


def measure(utterances: Sequence[RawLine]) -> list[Measure | str]:
    """Read the headers of audio; where that fails, why."""
    found: list[Measure | str] = []
    for line in utterances:
        try:
            info = audio_info(line.wav)
            count = info.samples_between(line.start, line.end)
            if not count:
                raise AudioError(f"{line.wav}: no audio between {line.start} s and {line.end} s")
            size = os.path.getsize(line.wav)
            found.append(Measure(count / info.sample_rate, count, info.sample_rate, info.channels, size))
        except AudioError as error:
            found.append(str(error))
    return found


def _measure_all(utterances: Sequence[RawLine], executor: Executor) -> list[Measure | str]:
    jobs = chunks(list(utterances), UTTERANCES_PER_JOB)
    results = executor.map(measure, jobs, "measure", len(utterances), len)
    return [found for chunk in results for found in chunk]


def _folder_of(seconds: float, groups: Sequence[Group]) -> str | None:
    if not groups:
        return ""
    return next((f"{group.name}/" for group in groups if group.shortest <= seconds < group.longest), None)


def _sizes(
    utterances: Sequence[RawLine], measured: Sequence[Measure | str], storing: Storing, executor: Executor
) -> list[int]:
    """Bytes that each utterance will take of a tar: exact when copied or stored as wav, else after a pilot."""
    pairs = [(line, found) for line, found in zip(utterances, measured, strict=True) if not isinstance(found, str)]
    encoded = [(line, found) for line, found in pairs if not is_copied(line, storing, found.sample_rate)]
    by_codec = storing.audio_format in ("flac", "opus") and encoded
    expected = _pilot(encoded, storing, executor) if by_codec else None

    def audio_bytes(line: RawLine, found: Measure) -> int:
        if is_copied(line, storing, found.sample_rate):
            return found.file_bytes
        if expected is not None:
            return math.ceil(MARGIN * expected(found.num_samples * found.channels))
        rate = storing.resample_rate or found.sample_rate
        return WAV_HEADER + 2 * found.channels * math.ceil(found.num_samples * rate / found.sample_rate)

    def size(line: RawLine, found: Measure) -> int:
        text = bytes_of_member(f"{line.key}.txt", len(line.text.encode()))
        return text + bytes_of_member(f"{line.key}.flac", audio_bytes(line, found))

    return [
        0 if isinstance(found, str) else size(line, found) for line, found in zip(utterances, measured, strict=True)
    ]


def _pilot(encoded: list[tuple[RawLine, Measure]], storing: Storing, executor: Executor) -> np.poly1d:
    """What a codec makes of so many samples of this corpus: a straight line through some utterances, in bytes."""
    pilot = encoded[:: -(-len(encoded) // PILOT_UTTERANCES)]
    lengths = list(executor.map(_encoded_bytes, [(line, storing) for line, _ in pilot], "pilot", len(pilot)))
    samples = [found.num_samples * found.channels for _, found in pilot]
    return np.poly1d(np.polyfit(samples, lengths, 1 if len(set(samples)) > 1 else 0))


def _encoded_bytes(job: tuple[RawLine, Storing]) -> int:
    try:
        return len(pack(*job).audio)
    except (AudioError, OSError):
        return 0  # packing names it


def _runs(
    numbers: Sequence[int], sizes: Sequence[int], per_shard: int | None, max_bytes: int | None
) -> Iterator[list[int]]:
    run: list[int] = []
    size = END_BYTES
    for number in numbers:
        full = len(run) == per_shard or (max_bytes is not None and size + sizes[number] > max_bytes)
        if run and full:
            yield run
            run, size = [], END_BYTES
        run.append(number)
        size += sizes[number]
    if run:
        yield run


def _random(seed: int, key: str) -> bytes:
    return blake2b(key.encode(), digest_size=8, salt=(seed & (2**64 - 1)).to_bytes(8, "little")).digest()
