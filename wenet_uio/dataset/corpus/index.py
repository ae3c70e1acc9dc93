"""The index of samples: where each is and how long it is, so that batches are planned without reading audio."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

COLUMNS = {
    "key_hash": np.uint64,
    "audio_offset": np.uint64,
    "audio_size": np.uint32,
    "text_offset": np.uint64,
    "text_size": np.uint32,
    "num_samples": np.uint32,
    "sample_rate": np.uint32,
    "text_length": np.uint32,
    "key_end": np.uint64,
}


TEXT_ONLY = 0
"""Sample rate of what has no audio."""


class Entry(NamedTuple):
    """One sample as it goes into an index."""

    key: str
    num_samples: int
    """Of one channel, as stored."""
    sample_rate: int
    """Hz, as stored; TEXT_ONLY where there is no audio."""
    text_length: int
    """Characters of the stripped text."""
    audio_offset: int
    """Bytes from the start of the shard; in raw mode, of the sample's line in the list."""
    audio_size: int
    """Bytes."""
    text_offset: int = 0
    text_size: int = 0


@dataclass(frozen=True)
class Rows:
    """A run of samples: one numpy column a field of `Entry`, usually mapped from a file."""

    key_hash: np.ndarray
    audio_offset: np.ndarray
    audio_size: np.ndarray
    text_offset: np.ndarray
    text_size: np.ndarray
    num_samples: np.ndarray
    sample_rate: np.ndarray
    text_length: np.ndarray
    key_end: np.ndarray
    """End of each key in `keys`."""
    keys: np.ndarray
    """uint8: the keys of the file, one after the other."""
    records: np.ndarray | None = None
    """uint8: where the texts are not in the tar, what `text_offset` and `text_size` point into instead: a JSON array
    [text, start, end, other fields] of each sample."""
    key_start: int = 0
    """Where the first key of this run begins in `keys`."""

    def __len__(self) -> int:
        return len(self.key_hash)

    def slice(self, first: int, last: int) -> Rows:
        """Rows `first` up to `last`, without copying."""
        start = int(self.key_end[first - 1]) if first else self.key_start
        columns = {name: getattr(self, name)[first:last] for name in COLUMNS}
        return Rows(**columns, keys=self.keys, records=self.records, key_start=start)

    def with_text_length(self, text_length: np.ndarray) -> Rows:
        """The same rows with another length of text."""
        return replace(self, text_length=text_length)

    def key(self, row: int) -> str:
        start = int(self.key_end[row - 1]) if row else self.key_start
        return self.keys[start : int(self.key_end[row])].tobytes().decode()

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays to write with `write_columns`; only for rows that start a file."""
        assert self.key_start == 0
        columns = {name: getattr(self, name) for name in (*COLUMNS, "keys")}
        return columns if self.records is None else {**columns, "records": self.records}

    @property
    def seconds(self) -> np.ndarray:
        """Duration of each sample as stored, float64."""
        return self.num_samples / np.maximum(self.sample_rate, 1)

    def digest(self) -> int:
        """64-bit digest of what a plan depends on: the same samples in raw and in shard mode give the same."""
        state = hashlib.blake2b(digest_size=8)
        for name in ("key_hash", "num_samples", "sample_rate", "text_length"):
            state.update(np.ascontiguousarray(getattr(self, name)).data)
        return int.from_bytes(state.digest(), "little")


def rows_of(entries: Sequence[Entry]) -> Rows:
    """Columns of a list of entries."""
    encoded = [entry.key.encode() for entry in entries]
    values = {name: [getattr(entry, name) for entry in entries] for name in Entry._fields if name != "key"}
    values["key_hash"] = [hash_key(key) for key in encoded]
    values["key_end"] = np.cumsum([len(key) for key in encoded], dtype=np.uint64)
    return Rows(
        **{name: np.asarray(values[name], dtype=dtype) for name, dtype in COLUMNS.items()},
        keys=np.frombuffer(b"".join(encoded), dtype=np.uint8),
    )


def hash_key(key: bytes) -> int:
    """64 bits that stand for a key wherever randomness is drawn."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


TABLE_COLUMNS = {
    "samples": np.uint32,
    "seconds": np.float64,
    "shortest": np.float64,
    "longest": np.float64,
    "shortest_text": np.uint32,
    "longest_text": np.uint32,
    "digest": np.uint64,
}
CORPUS_COLUMNS = [name for name in TABLE_COLUMNS if name != "digest"]
"""Columns that an open corpus shows."""


@dataclass(frozen=True)
class Summary:
    """Of a whole corpus: kept in its index, so that opening it reads no column."""

    samples: int
    seconds: float
    digest: str
    """Of everything a plan depends on; equal in raw and shard mode."""


def summary_of(table: Mapping[str, np.ndarray]) -> Summary:
    """Summary of a shard table."""
    state = hashlib.blake2b(digest_size=16)
    for name in ("samples", "digest"):
        state.update(np.ascontiguousarray(table[name]).data)
    return Summary(int(table["samples"].sum(dtype=np.int64)), float(table["seconds"].sum()), state.hexdigest())


def shard_table(shards: Iterable[Rows]) -> dict[str, np.ndarray]:
    """One row a shard: samples, seconds of audio, extremes of seconds and of characters of text, digest."""
    summary = [
        (
            len(rows),
            float(rows.seconds.sum()),
            rows.seconds.min(initial=np.inf),
            rows.seconds.max(initial=0),
            rows.text_length.min(initial=np.iinfo(np.uint32).max),
            rows.text_length.max(initial=0),
            rows.digest(),
        )
        for rows in shards
    ]
    columns = list(zip(*summary, strict=True)) or [()] * len(TABLE_COLUMNS)
    named = zip(columns, TABLE_COLUMNS.items(), strict=True)
    return {name: np.asarray(column, dtype=dtype) for column, (name, dtype) in named}


NOMINAL_RATE = 16000
"""Hz; in which the length of an utterance is counted when its line states a duration and no sampling_rate."""
