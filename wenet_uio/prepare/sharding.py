"""Decide which utterances go into which shard: shuffled, grouped by duration, bounded in size.

Sizes in bytes are known from headers, except those of flac and opus. For these, a straight line is
fitted through up to 64 encoded utterances; whatever still exceeds the bound goes into a further
shard when it is packed (`shard_job.py`).
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from wenet_uio.audio.decoders import FRAME_RATE, AudioError
from wenet_uio.audio.features import encoded_size
from wenet_uio.audio.read import audio_info
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.tar_members import END_BYTES
from wenet_uio.prepare.shard_job import Failure, Storing, encode_sample, is_copied
from wenet_uio.prepare.shard_writer import member_bytes

FORMAT = re.compile(r"(?P<stem>[^%/]*)%(?:0(?P<digits>[1-9]))?d\.tar")
"""`data-%05d.tar`: what stands before the number, and the digits of the number."""
PREFIX_DIGITS = 9
"""Digits of the number in `prefix_000000000.tar`."""


class ShardNaming(NamedTuple):
    """Shards are named `stem`, the number with at least `digits` digits, and `.tar`."""

    stem: str = "shards_"
    digits: int = PREFIX_DIGITS

    @classmethod
    def of_prefix(cls, prefix: str) -> ShardNaming:
        """Return `prefix_000000000.tar`, the names of WeNet."""
        return cls(f"{prefix}_")

    @classmethod
    def of_format(cls, text: str) -> ShardNaming:
        """Return the names of a format such as `data-%05d.tar`.

        Raises:
            ValueError: the text has another form.
        """
        match = FORMAT.fullmatch(text)
        if not match:
            raise ValueError(
                f"--fmt is a name with one number, such as data-%05d.tar, not {text!r}"
            )
        return cls(match["stem"], int(match["digits"] or 1))

    @property
    def note(self) -> str:
        """Name of the note that says which list the shards belong to."""
        if self.digits == PREFIX_DIGITS and self.stem.endswith("_"):
            return f"{self.stem[:-1]}.list"
        return f"{self.stem}%0{self.digits}d.list"

    @property
    def pattern(self) -> str:
        """A glob for the beginning of the names."""
        return glob.escape(self.stem) + "[0-9]" * self.digits

    def name_of(self, number: int) -> str:
        """Return the name of a shard without `.tar`."""
        return f"{self.stem}{number:0{self.digits}d}"

    def whole(self, name: str) -> str | None:
        """Return the name of the tar or receipt that a file of these names belongs to.

        An index, `shards_000000000.tar.idx`, belongs to its tar. None for names of another form.
        """
        # A longer number has no zero in front: shards_000000000.tar is none of shards_%05d.tar.
        number = rf"(?:\d{{{self.digits}}}|[1-9]\d{{{self.digits},}})"
        file = rf"{number}(?:_[1-9]\d*)?(?P<whole>\.tar|\.json)(?:\..*idx)?"
        number_begins = len(Path(self.stem).name)
        match = re.compile(file).fullmatch(name, number_begins)
        return name[: match.end("whole")] if match else None


UTTERANCES_PER_JOB = 256
"""A worker reads the headers of this many utterances in one job."""
PILOT_UTTERANCES = 64
"""At most this many utterances are encoded beforehand to estimate the bytes that a codec
produces."""
MARGIN = 1.05
"""Factor on the bytes expected of a codec, so that few shards exceed their bound."""
WAV_HEADER_BYTES = 44
NPY_HEADER_BYTES = 128
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


PER_SECOND = {"seconds": 1, "frames": FRAME_RATE}
"""Units of the bounds of groups. A frame is one of stored features, or 10 ms of audio."""
Unit = Literal["seconds", "frames"]


class DurationGroup(NamedTuple):
    """Utterances from `shortest` up to, but not including, `longest`."""

    shortest: float
    longest: float
    unit: Unit = "seconds"

    @property
    def name(self) -> str:
        """Name of the folder that holds the shards of the group: `0.1_5`, or in frames `10_500`."""
        return f"{self.shortest:g}_{self.longest:g}"

    def has(self, seconds: float) -> bool:
        """Tell whether utterances of this length are in the group."""
        # Divided as frames are, so that a bound of whole frames is exact
        per_second = PER_SECOND[self.unit]
        return self.shortest / per_second <= seconds < self.longest / per_second


class MeasuredLine(NamedTuple):
    """Length and format of an utterance's audio, read from the header."""

    seconds: float
    num_samples: int
    """Samples of one channel between start and end of the utterance."""
    sample_rate: int
    channels: int
    file_bytes: int
    """Bytes of the file that holds the recording."""


@dataclass(frozen=True)
class ShardOptions:
    """How utterances are divided into shards and stored."""

    naming: ShardNaming = field(default_factory=ShardNaming)
    per_shard: int | None = UTTERANCES_PER_RUN
    """Utterances in a shard at most; None is no bound."""
    max_bytes: int | None = None
    """Bytes of a tar at most, unless a single utterance is larger. Audio that a codec makes larger
    than expected goes into a further tar, `shards_000000000_1.tar`."""
    groups: Sequence[DurationGroup] = ()
    """Each group of durations has a folder of its own; an utterance in no group is left out and
    listed."""
    seed: int | None = None
    """Shuffle the utterances first; None keeps their order."""
    storing: Storing = field(default_factory=Storing)


@dataclass(frozen=True)
class ShardPlan:
    """The shards to make, and the utterances that are in none."""

    shards: Sequence[tuple[str, Sequence[RawLine]]]
    """Path in the folder without .tar, and the utterances of each shard."""
    bad: list[Failure]
    """Utterances whose audio could not be measured."""
    outside: list[tuple[str, float]]
    """Key and seconds of utterances in no group."""


def plan_shards(
    utterances: Sequence[RawLine], options: ShardOptions, executor: Executor
) -> ShardPlan:
    """Divide utterances into shards within the bounds of `options`.

    Each group of durations is divided on its own.

    Audio headers are read only if there are groups or a bound in bytes.
    """
    if options.seed is not None:
        utterances = _shuffle(utterances, options.seed)

    sizes = [0] * len(utterances)  # bytes, which count only if there is a bound in bytes
    if not options.groups and options.max_bytes is None:
        all_in_one_folder = {"": range(len(utterances))}
        shards = _cut_into_shards(utterances, all_in_one_folder, sizes, options)
        return ShardPlan(shards, bad=[], outside=[])

    measured: list[MeasuredLine | str] = []
    jobs = chunks(list(utterances), UTTERANCES_PER_JOB)
    for chunk in executor.map(measure_lines, jobs, "measure", len(utterances), len):
        measured += chunk

    bad = [
        (line.key, measurement)
        for line, measurement in zip(utterances, measured, strict=True)
        if isinstance(measurement, str)
    ]
    folders, outside = _divide_by_duration(utterances, measured, options.groups)
    if options.max_bytes is not None:
        sizes = _sizes_in_tars(utterances, measured, options.storing, executor)

    return ShardPlan(_cut_into_shards(utterances, folders, sizes, options), bad, outside)


def _shuffle(utterances: Sequence[RawLine], seed: int) -> list[RawLine]:
    """Order utterances by a hash of seed and key."""
    salt = (seed & (2**64 - 1)).to_bytes(8, "little")
    return sorted(
        utterances,
        key=lambda line: blake2b(line.key.encode(), digest_size=8, salt=salt).digest(),
    )


def parse_group(text: str, unit: Unit = "seconds") -> DurationGroup:
    """Read `SHORTEST:LONGEST`; without one of the numbers the group is open: `:5`, `20:`.

    Raises:
        ValueError: the text has another form, or its times are out of order.
    """
    try:
        shortest, longest = text.split(":")
        group = DurationGroup(float(shortest or 0), float(longest or math.inf), unit)
    except ValueError:
        example = {"seconds": "0.1:5", "frames": "10:500"}[unit]
        raise ValueError(
            f"a group is SHORTEST:LONGEST in {unit}, such as {example}, not {text!r}"
        ) from None

    if not 0 <= group.shortest < group.longest:
        raise ValueError(f"group {text}: SHORTEST must be 0 or more, and below LONGEST")

    return group


def check_groups(groups: Sequence[DurationGroup]) -> None:
    """Check that no two groups overlap.

    Raises:
        ValueError: two groups overlap; the message names them.
    """
    ordered = sorted(groups)
    for group, following in pairwise(ordered):
        if following.shortest < group.longest:
            raise ValueError(
                f"groups {group.name} and {following.name} overlap; end one where the next begins"
            )


def parse_size(text: str) -> int:
    """Read a number of bytes: 1000000, 500MB, 1.5GB, 1GiB.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?)B?", text.strip().upper())
    if not match or match[2] not in UNITS or not float(match[1]):
        raise ValueError(f"a size is a number of bytes such as 500MB, 1GB or 1GiB, not {text!r}")
    return round(float(match[1]) * UNITS[match[2]])


def measure_lines(utterances: Sequence[RawLine]) -> list[MeasuredLine | str]:
    """Read the audio headers of utterances; a string says why audio cannot be measured."""
    measurements: list[MeasuredLine | str] = []
    for line in utterances:
        try:
            info = audio_info(line.wav)
            count = info.samples_between(line.start, line.end)
            if not count:
                raise AudioError(f"{line.wav}: no audio between {line.start} s and {line.end} s")

            measurement = MeasuredLine(
                seconds=count / info.sample_rate,
                num_samples=count,
                sample_rate=info.sample_rate,
                channels=info.channels,
                file_bytes=encoded_size(line.wav),
            )
        except AudioError as error:
            measurement = str(error)

        measurements.append(measurement)

    return measurements


def _divide_by_duration(
    utterances: Sequence[RawLine],
    measured: Sequence[MeasuredLine | str],
    groups: Sequence[DurationGroup],
) -> tuple[dict[str, list[int]], list[tuple[str, float]]]:
    """Return the numbers of the utterances in the folder of each group, and key and seconds of
    utterances in no group.

    Without groups, all are in the folder "". Utterances that could not be measured are left out.
    """
    readable = [
        (number, measurement)
        for number, measurement in enumerate(measured)
        if not isinstance(measurement, str)
    ]
    if not groups:
        return {"": [number for number, _ in readable]}, []

    folders: dict[str, list[int]] = {f"{group.name}/": [] for group in groups}
    outside: list[tuple[str, float]] = []
    for number, measurement in readable:
        for group in groups:
            if group.has(measurement.seconds):
                folders[f"{group.name}/"].append(number)
                break
        else:
            outside.append((utterances[number].key, round(measurement.seconds, 3)))

    return folders, outside


def _cut_into_shards(
    utterances: Sequence[RawLine],
    folders: Mapping[str, Sequence[int]],
    sizes: Sequence[int],
    options: ShardOptions,
) -> list[tuple[str, Sequence[RawLine]]]:
    """Cut the utterances of each folder into consecutive shards, each as long as both bounds allow.

    Returns:
        name and utterances of each shard; shards are numbered within their folder.
    """
    shards: list[tuple[str, Sequence[RawLine]]] = []
    for folder, numbers in folders.items():
        runs: list[list[RawLine]] = []
        size = END_BYTES
        for number in numbers:
            size += sizes[number]
            exceeds_bytes = options.max_bytes is not None and size > options.max_bytes
            if not runs or len(runs[-1]) == options.per_shard or exceeds_bytes:
                runs.append([])
                size = END_BYTES + sizes[number]

            runs[-1].append(utterances[number])

        for shard, run in enumerate(runs):
            shards.append((folder + options.naming.name_of(shard), run))

    return shards


def _sizes_in_tars(
    utterances: Sequence[RawLine],
    measured: Sequence[MeasuredLine | str],
    storing: Storing,
    executor: Executor,
) -> list[int]:
    """Return the bytes of each utterance in a tar.

    They are exact if it is copied or stored as wav, otherwise estimated by a pilot.
    """
    encoded: list[tuple[RawLine, MeasuredLine]] = []
    for line, measurement in zip(utterances, measured, strict=True):
        if isinstance(measurement, str) or is_copied(line, storing, measurement.sample_rate):
            continue
        encoded.append((line, measurement))

    encoded_bytes = None
    if encoded and storing.audio_format in ("flac", "opus"):
        encoded_bytes = _fit_encoded_bytes(encoded, storing, executor)

    sizes: list[int] = []
    for line, measurement in zip(utterances, measured, strict=True):
        if isinstance(measurement, str):
            sizes.append(0)
            continue

        audio_bytes = _audio_bytes(line, measurement, storing, encoded_bytes)
        text_member = member_bytes(f"{line.key}.txt", len(line.text.encode()))
        # Any suffix: the header of a member has one size unless its name is very long.
        audio_member = member_bytes(f"{line.key}.flac", audio_bytes)
        sizes.append(text_member + audio_member)

    return sizes


def _audio_bytes(
    line: RawLine, measurement: MeasuredLine, storing: Storing, encoded_bytes: np.poly1d | None
) -> int:
    """Return the bytes of an utterance's audio in a tar.

    Args:
        encoded_bytes: estimates the bytes of a number of samples; None if no codec is used.
    """
    if is_copied(line, storing, measurement.sample_rate):
        return measurement.file_bytes
    if measurement.sample_rate == FRAME_RATE:  # a part of a matrix, as .npy
        return NPY_HEADER_BYTES + 4 * measurement.channels * measurement.num_samples
    if encoded_bytes is not None:
        samples = measurement.num_samples * measurement.channels
        return math.ceil(MARGIN * encoded_bytes(samples))

    rate = storing.resample_rate or measurement.sample_rate
    resampled = math.ceil(measurement.num_samples * rate / measurement.sample_rate)
    return WAV_HEADER_BYTES + 2 * measurement.channels * resampled


def _fit_encoded_bytes(
    encoded: Sequence[tuple[RawLine, MeasuredLine]], storing: Storing, executor: Executor
) -> np.poly1d:
    """Encode some utterances, and fit a straight line: number of samples -> bytes of encoded
    audio.
    """
    stride = math.ceil(len(encoded) / PILOT_UTTERANCES)
    pilot = encoded[::stride]
    jobs = [(line, storing) for line, _ in pilot]
    sizes = list(executor.map(_count_encoded_bytes, jobs, "pilot", len(pilot)))
    # Samples of all channels
    samples = [measurement.num_samples * measurement.channels for _, measurement in pilot]
    # Utterances of one length define no slope, only a mean size.
    degree = 1 if len(set(samples)) > 1 else 0
    return np.poly1d(np.polyfit(samples, sizes, degree))


def _count_encoded_bytes(job: tuple[RawLine, Storing]) -> int:
    """Encode an utterance, and return the number of its bytes."""
    try:
        return len(encode_sample(*job).audio)
    except (AudioError, OSError):
        return 0  # packing will name the utterance
