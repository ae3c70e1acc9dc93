"""A data list opened as shards with their index; raw lists and shard lists look the same from here on."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from wenet_uio.dataset.columns import read_columns
from wenet_uio.dataset.data_list import DataType, ListError, parse_raw_line
from wenet_uio.dataset.index import TABLE_COLUMNS, Rows, Summary
from wenet_uio.dataset.indexing import ensure_index, index_of, locate
from wenet_uio.dataset.shard import shard_index
from wenet_uio.dataset.types import SampleRef, Utterance

OPEN_SHARDS = 64
"""Mapped tars and indexes that a process keeps."""


class Corpus(ABC):
    """Shards of samples, indexed. Arrays are mapped from disk: memory does not grow with the corpus."""

    def __init__(
        self, data_list: str, table: Mapping[str, np.ndarray], bad: list[tuple[str, str]], summary: Summary
    ) -> None:
        self.data_list = data_list
        self.samples = table["samples"]
        """(shards,) utterances of each."""
        self.seconds = table["seconds"]
        """(shards,) audio of each."""
        self.shortest = table["shortest"]
        self.longest = table["longest"]
        """(shards,) seconds of the shortest and the longest utterance."""
        self.shortest_text = table["shortest_text"]
        self.longest_text = table["longest_text"]
        """(shards,) characters of the shortest and the longest text."""
        self.bad = bad
        """(key, reason) of what the index had to leave out."""
        self.num_samples, self.total_seconds, self.digest = summary.samples, summary.seconds, summary.digest

    @property
    def num_shards(self) -> int:
        return len(self.samples)

    @property
    def has_text_only(self) -> bool:
        """Whether some of it is text without audio; shards hold one or the other."""
        return bool((self.longest == 0).any())

    @abstractmethod
    def rows(self, shard: int) -> Rows:
        """Index of one shard."""

    @abstractmethod
    def read(self, ref: SampleRef) -> Utterance:
        """Fetch encoded audio and text of a sample.

        Raises:
            ListError, OSError: it is no longer what the index says.
        """

    def key(self, ref: SampleRef) -> str:
        return self.rows(ref.shard).key(ref.row)

    # A mixture of corpora holds other samples in each pass, and overrides these.

    def in_pass(self, data_pass: int) -> Corpus:
        """What is read in a pass over the data."""
        return self

    def origin(self, shards: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where samples of `in_pass` stand in the corpus that reads them."""
        return shards, rows

    def separate(self, shards: np.ndarray, buckets: np.ndarray) -> np.ndarray:
        """Buckets of samples, kept apart further where their shards must not share a batch."""
        return buckets

    sources_take_turns = False
    """Whether the batches of an epoch go round the sources."""

    def source_numbers(self, shards: np.ndarray) -> np.ndarray:
        """Number of the source that each shard comes from."""
        return np.zeros(len(shards), np.int64)

    @property
    def source_names(self) -> tuple[str, ...]:
        return (self.data_list,)

    def offsets(self, data_pass: int) -> dict[str, int]:
        """Utterances of each source that were read before a pass."""
        return {}

    def start_at(self, data_pass: int, offsets: dict[str, int]) -> None:
        """Go on in each source where `offsets` says, from this pass on; a plain corpus has nothing to remember."""
        return


class RawCorpus(Corpus):
    """A raw list: audio files of their own; a run of consecutive lines counts as a shard."""

    def __init__(self, data_list: str) -> None:
        columns, meta = read_columns(index_of(data_list))
        self._first = columns.pop("first_row")
        table = {name: columns.pop(name) for name in TABLE_COLUMNS}
        self._rows = Rows(**columns)
        self._map: mmap.mmap | None = None
        super().__init__(data_list, table, [tuple(item) for item in meta["bad"]], Summary(**meta["summary"]))

    def rows(self, shard: int) -> Rows:
        first = int(self._first[shard])
        return self._rows.slice(first, first + int(self.samples[shard]))

    def read(self, ref: SampleRef) -> Utterance:
        if self._map is None:
            with open(self.data_list, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        row = int(self._first[ref.shard]) + ref.row
        offset = int(self._rows.audio_offset[row])
        line = parse_raw_line(self._map[offset : offset + int(self._rows.audio_size[row])])
        return Utterance(line.key, locate(line.wav, self.data_list), line.text, line.start, line.end, line.extra)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return RawCorpus, (self.data_list,)


class ShardCorpus(Corpus):
    """A shard list: tars read by offset."""

    def __init__(self, data_list: str) -> None:
        columns, meta = read_columns(index_of(data_list))
        self._path_end, self._paths = columns.pop("path_end"), columns.pop("paths")
        self._digest = columns["digest"]
        self._rows = lru_cache(OPEN_SHARDS)(self._open_rows)
        self._tar = lru_cache(OPEN_SHARDS)(self._open_tar)
        super().__init__(data_list, columns, [tuple(item) for item in meta["bad"]], Summary(**meta["summary"]))

    def path(self, shard: int) -> str:
        start = int(self._path_end[shard - 1]) if shard else 0
        return self._paths[start : int(self._path_end[shard])].tobytes().decode()

    def rows(self, shard: int) -> Rows:
        return self._rows(shard)

    def read(self, ref: SampleRef) -> Utterance:
        rows, tar = self.rows(ref.shard), self._tar(ref.shard)
        text, audio = (
            tar[int(offset[ref.row]) : int(offset[ref.row]) + int(size[ref.row])]
            for offset, size in ((rows.text_offset, rows.text_size), (rows.audio_offset, rows.audio_size))
        )
        return Utterance(rows.key(ref.row), audio, bytes(text).decode())

    def _open_rows(self, shard: int) -> Rows:
        rows, _ = shard_index(self.path(shard))
        if rows.digest() != int(self._digest[shard]):
            raise ListError(
                f"{self.path(shard)}: not the shard that was indexed; delete {index_of(self.data_list)} to redo it"
            )
        return rows

    def _open_tar(self, shard: int) -> memoryview:
        with open(self.path(shard), "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ShardCorpus, (self.data_list,)


def open_list(data_list: str, data_type: DataType) -> Corpus:
    """Open a raw or shard list, indexing it first where it has no index or has changed since.

    Raises:
        ListError: no such list, an empty one, or one of the other type.
    """
    ensure_index(data_list, data_type)
    corpus = RawCorpus(data_list) if data_type == "raw" else ShardCorpus(data_list)
    if not corpus.num_samples:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in corpus.bad[:3])
        raise ListError(f"{data_list}: no usable utterance" + (f" ({reasons})" if reasons else ""))
    return corpus
