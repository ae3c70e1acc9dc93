"""Which entries of a manifest go into which tar: one pass over its lines, then arrays.

A line takes 44 bytes in memory: its place, its length and hashes of its key and audio. Workers read the lines again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from wenet_uio.audio.read import AudioError, audio_info
from wenet_uio.dataset.formats.data_list import ListError, RawLine, lines_of, locate, parse_raw_line, reason_to_skip
from wenet_uio.dataset.formats.keys import distinct_keys
from wenet_uio.dataset.randomness import draw, key_of
from wenet_uio.prepare.nemo_shard import NemoOptions
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
    """Two lines without a key of their own would have one key."""

    def of(self, chosen: np.ndarray) -> Scanned:
        """Some rows."""
        names = ("offsets", "sizes", "seconds", "key_hash", "audio_hash")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def __len__(self) -> int:
        return len(self.offsets)


def scan_manifest(path: str) -> Scanned:
    """Read every line once, keeping its place and its length. Lines without a duration need the header of their audio.

    Raises:
        ListError: no line can be used.
    """
    columns = [array("Q"), array("I"), array("d"), array("Q"), array("Q"), array("Q")]
    bad: list[Failure] = []
    for number, (offset, text) in enumerate(lines_of(path), 1):
        if not text.strip():
            continue
        try:
            line = parse_raw_line(text)
            if reason := reason_to_skip(line.extra):
                raise ListError(reason)
            row = (offset, len(text), _seconds(line, path), _hash(line.key), _hash(line.wav))
        except (ListError, AudioError) as error:
            bad.append((f"{path}:{number}", str(error)))
            continue
        named = _hash(f"{line.wav} {line.start}") if line.is_named_by_audio else 0
        for column, value in zip(columns, (*row, named), strict=True):
            column.append(value)
    if not columns[0]:
        raise ListError(f"{path}: no entry can be used" + (f"; {': '.join(bad[0])}" if bad else ""))
    offsets, sizes, seconds, keys, wavs, named = map(np.asarray, columns)
    return Scanned(offsets, sizes, seconds, keys, wavs, bad, _keys_clash(keys, named))


def _keys_clash(keys: np.ndarray, named: np.ndarray) -> bool:
    """Whether two lines without a key have one key for different audio; `named` is a hash of that audio, else 0."""
    own = named != 0
    order = np.lexsort((named[own], keys[own]))
    keys, named = keys[own][order], named[own][order]
    return bool(np.any((keys[1:] == keys[:-1]) & (named[1:] != named[:-1])))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _seconds(line: RawLine, path: str) -> float:
    stated = line.extra.get("duration")
    if stated is not None:
        return float(stated)
    if line.end is not None:
        return line.end - line.start
    info = audio_info(locate(line.wav, path))
    return info.samples_between(line.start, line.end) / info.sample_rate


def buckets_of(scanned: Scanned, options: NemoOptions, count: int) -> list[NemoOptions]:
    """Options of each of `count` buckets: intervals of duration of equal width, as in NeMo."""
    low = float(scanned.seconds.min()) if options.min_duration is None else options.min_duration
    high = float(np.nextafter(scanned.seconds.max(), np.inf)) if options.max_duration is None else options.max_duration
    edges = np.linspace(low, high, count + 1).tolist()
    return [replace(options, min_duration=shortest, max_duration=longest) for shortest, longest in pairwise(edges)]


def numbers_of_shards(scanned: Scanned, options: NemoOptions) -> list[np.ndarray]:
    """Rows of `scanned` that go into each tar.

    Raises:
        ValueError: there are fewer entries than tars.
    """
    chosen = chosen_of(scanned, options)
    if not 0 < options.num_shards <= len(chosen):
        within = f"{options.min_duration or 0:g} to {options.max_duration or np.inf:g} s"
        mend = f"give --num_shards 1 to {len(chosen)}" if len(chosen) else "give other durations"
        raise ValueError(f"{len(chosen)} entries of {within} for {options.num_shards} tars: {mend}")
    if options.shuffle_seed is not None:
        by = scanned.audio_hash if options.keep_files_together else scanned.key_hash
        chosen = chosen[np.argsort(draw(key_of(options.shuffle_seed), by[chosen]), kind="stable")]
    elif options.keep_files_together:
        _, first, place = np.unique(scanned.audio_hash[chosen], return_index=True, return_inverse=True)
        chosen = chosen[np.argsort(first[place], kind="stable")]
    cuts = len(chosen) * np.arange(1, options.num_shards) // options.num_shards
    if options.keep_files_together:
        starts = np.flatnonzero(np.diff(scanned.audio_hash[chosen])) + 1
        cuts = np.append(starts, len(chosen))[np.searchsorted(starts, cuts)]
    return np.split(chosen, cuts)


def chosen_of(scanned: Scanned, options: NemoOptions) -> np.ndarray:
    """Rows of `scanned` within the bounds on duration."""
    low, high = options.min_duration or 0.0, np.inf if options.max_duration is None else options.max_duration
    return np.flatnonzero((scanned.seconds >= low) & (scanned.seconds < high))


def keys_of(scanned: Scanned, manifest: str) -> list[str]:
    """The key of each row, with folders in front; needed if names of files clash. Holds all keys in memory."""
    lines = []
    with open(manifest, "rb") as file:
        for offset, size in zip(scanned.offsets.tolist(), scanned.sizes.tolist(), strict=True):
            file.seek(offset)
            line = parse_raw_line(file.read(size))
            lines.append((line.key, line.audio_of_key))
    return list(distinct_keys([key for key, _ in lines], [audio for _, audio in lines]))
