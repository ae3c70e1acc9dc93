"""Decide which entries of a manifest go into which tar: one pass over its lines, then arrays.

A line takes 44 bytes in memory: its place, its length and hashes of its key and audio. Workers read
the lines again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from wenet_uio.addons.nemo.tars.shard import NemoOptions
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info
from wenet_uio.dataset.formats.data_list import (
    RawLine,
    lines_of,
    locate,
    parse_raw_line,
    reason_to_skip,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import Audio, distinct_keys
from wenet_uio.dataset.randomness import draw, key_of
from wenet_uio.prepare.shard_job import Failure


@dataclass(frozen=True)
class Scanned:
    """The usable lines of a manifest: one row each."""

    offsets: np.ndarray
    """uint64: bytes from the start of the manifest."""
    sizes: np.ndarray
    """uint32: bytes of the line."""
    seconds: np.ndarray
    """float64."""
    key_hash: np.ndarray
    audio_hash: np.ndarray
    """uint64: of the path of the audio."""
    bad: list[Failure]
    """Lines that are left out, with the reason."""
    clash: bool
    """Two lines without a key of their own have one key by the name of their audio."""

    def select(self, rows: np.ndarray) -> Scanned:
        """Return the rows of these numbers; `bad` and `clash` stay those of the manifest."""
        columns = ("offsets", "sizes", "seconds", "key_hash", "audio_hash")
        return replace(self, **{column: getattr(self, column)[rows] for column in columns})

    def __len__(self) -> int:
        return len(self.offsets)


def scan_manifest(path: str) -> Scanned:
    """Read every line once, keeping its place and its length.

    Lines without a duration need the header of their audio.

    Raises:
        ListError: no line can be used.
    """
    columns = [array("Q"), array("I"), array("d"), array("Q"), array("Q")]
    # Hashes of the keys that audio gives, of usable lines and of others, as in the index of a raw
    # list.
    audio_keys = array("Q")
    bad: list[Failure] = []

    for number, (offset, text) in enumerate(lines_of(path), 1):
        if not text.strip():
            continue
        try:
            line = parse_raw_line(text)
            key = _stable_hash(line.key)
            if line.is_named_by_audio:
                audio_keys.append(key)
            reason = reason_to_skip(line.extra)
            if reason:
                raise ListError(reason)

            row = (offset, len(text), _entry_seconds(line, path), key, _stable_hash(line.wav))
        except (ListError, AudioError) as error:
            bad.append((f"{path}:{number}", str(error)))
            continue

        for column, value in zip(columns, row, strict=True):
            column.append(value)

    if not columns[0]:
        example = f"; {': '.join(bad[0])}" if bad else ""
        raise ListError(f"{path}: no entry can be used{example}")

    offsets, sizes, seconds, keys, wavs = map(np.asarray, columns)
    clash = len(np.unique(audio_keys)) < len(audio_keys)
    return Scanned(offsets, sizes, seconds, keys, wavs, bad, clash=clash)


def _stable_hash(text: str) -> int:
    """Return a hash of 8 bytes that is the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _entry_seconds(line: RawLine, path: str) -> float:
    """Return the length of an entry: as it states it, else by the header of its audio."""
    stated = line.extra.get("duration")
    if stated is not None:
        return float(stated)
    if line.end is not None:
        return line.end - line.start

    info = audio_info(locate(line.wav, path))
    return info.samples_between(line.start, line.end) / info.sample_rate


def duration_buckets(scanned: Scanned, options: NemoOptions, count: int) -> list[NemoOptions]:
    """Return the options of `count` buckets: equally wide intervals of duration, as in NeMo."""
    low, high = options.min_duration, options.max_duration
    if low is None:
        low = float(scanned.seconds.min())
    if high is None:  # the upper end is exclusive
        high = float(np.nextafter(scanned.seconds.max(), np.inf))

    edges = np.linspace(low, high, count + 1).tolist()
    return [
        replace(options, min_duration=shortest, max_duration=longest)
        for shortest, longest in pairwise(edges)
    ]


def divide_rows(scanned: Scanned, options: NemoOptions) -> list[np.ndarray]:
    """Return the rows of `scanned` that go into each tar, in their order there.

    Raises:
        ValueError: there are fewer entries than tars.
    """
    chosen = chosen_rows(scanned, options)
    if not 0 < options.num_shards <= len(chosen):
        durations = f"{options.min_duration or 0:g} to {options.max_duration or np.inf:g} s"
        remedy = "give other durations"
        if len(chosen):
            remedy = f"give --num_shards 1 to {len(chosen)}"
        raise ValueError(
            f"{len(chosen)} entries of {durations} for {options.num_shards} tars: {remedy}"
        )

    if options.shuffle_seed is not None:
        # Entries of one file draw the same number, so that they stay side by side.
        hashes = scanned.audio_hash if options.keep_files_together else scanned.key_hash
        draws = draw(key_of(options.shuffle_seed), hashes[chosen])
        chosen = chosen[np.argsort(draws, kind="stable")]
    elif options.keep_files_together:
        # Files are in the order of their first entries.
        _, first, file_number = np.unique(
            scanned.audio_hash[chosen], return_index=True, return_inverse=True
        )
        chosen = chosen[np.argsort(first[file_number], kind="stable")]

    # Places in `chosen` at which the second and later tars begin
    cuts = len(chosen) * np.arange(1, options.num_shards) // options.num_shards
    if options.keep_files_together:
        # Move each cut to the start of the next file, or to the end.
        file_starts = np.flatnonzero(np.diff(scanned.audio_hash[chosen])) + 1
        possible_cuts = np.append(file_starts, len(chosen))
        cuts = possible_cuts[np.searchsorted(file_starts, cuts)]

    return np.split(chosen, cuts)


def chosen_rows(scanned: Scanned, options: NemoOptions) -> np.ndarray:
    """Return rows of `scanned` within the bounds on duration."""
    low = options.min_duration or 0.0
    high = np.inf if options.max_duration is None else options.max_duration
    return np.flatnonzero((scanned.seconds >= low) & (scanned.seconds < high))


def distinct_line_keys(scanned: Scanned, manifest: str) -> list[str]:
    """Return the key of each row by all rules; needed if keys clash.

    Memory holds all keys.
    """
    parsed: dict[int, tuple[str, Audio | None]] = {}
    for offset, text in lines_of(manifest):
        try:
            line = parse_raw_line(text)
        except ListError:
            continue  # blank, or already among the bad lines
        parsed[offset] = line.key, line.audio_of_key

    stated_keys, audios = zip(*parsed.values(), strict=True)
    keys = distinct_keys(list(stated_keys), list(audios))
    key_at = dict(zip(parsed, keys, strict=True))
    return [key_at[offset] for offset in scanned.offsets.tolist()]
