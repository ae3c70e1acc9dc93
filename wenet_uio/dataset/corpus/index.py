"""The index of samples: position and length of each sample, so that batches are planned without
reading audio.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wenet_uio.dataset.corpus.columns import find_columns, read_columns, write_columns
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.storage.kept_files import write_kept

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
"""Columns of an index: one row a sample, 52 bytes. The keys follow in a column of their own."""
TEXT_ONLY = 0
"""Sample rate of a sample without audio."""
NOMINAL_RATE = 16000
"""Hz; the unit of `num_samples` if a line states a duration and no sampling_rate."""
Problem = tuple[str, str]
"""(key, reason) of a sample that cannot be used."""


class Entry(NamedTuple):
    """One sample to be indexed."""

    key: str
    num_samples: int
    """Audio samples of one channel, as stored."""
    sample_rate: int
    """Hz, as stored; TEXT_ONLY for a sample without audio."""
    text_length: int
    """Characters of the stripped text."""
    audio_offset: int
    """Bytes from the start of the tar to the audio; in a raw list, from the start of the list to
    the sample's line."""
    audio_size: int
    """Bytes of the audio; in a raw list, of the line."""
    text_offset: int = 0
    text_size: int = 0


@dataclass(frozen=True)
class Rows:
    """Consecutive samples of a shard: one numpy column for each field of `Entry`, usually mapped
    from a file.
    """

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
    """uint8: all keys of the file, concatenated."""
    records: np.ndarray | None = None
    """uint8: a JSON array [text, start, end, other fields, key, audio member] of each sample, if
    the tar does not hold all of these plainly. `text_offset` and `text_size` then point into this
    column, not into the tar."""
    key_start: int = 0
    """Start of the first key of these rows in `keys`."""
    tar_pages: str = ""
    """Digest of some pages of the tar (`pages_of`); empty for rows that are not those of a tar."""

    def __len__(self) -> int:
        return len(self.key_hash)

    def slice(self, first: int, last: int) -> Rows:
        """Return rows `first` up to `last`, without copying.

        They have no `tar_pages`: that digest is of the whole tar.
        """
        start = int(self.key_end[first - 1]) if first else self.key_start
        columns: dict[str, Any] = {name: getattr(self, name)[first:last] for name in COLUMNS}
        return Rows(**columns, keys=self.keys, records=self.records, key_start=start)

    def with_text_length(self, text_length: np.ndarray) -> Rows:
        """Return the same rows with other text lengths, such as token counts."""
        return replace(self, text_length=text_length)

    def with_keys(self, keys: Sequence[str]) -> Rows:
        """Return the same rows with other keys."""
        return replace(self, **_key_columns(keys), key_start=0)

    def key(self, row: int) -> str:
        """Return the key of a sample, as one word."""
        start = int(self.key_end[row - 1]) if row else self.key_start
        key = self.keys[start : int(self.key_end[row])].tobytes()
        return as_word(key.decode(errors="backslashreplace"))  # whatever a damaged index has

    def columns(self) -> dict[str, np.ndarray]:
        """Return the arrays for `write_columns`; only for rows that include the first sample of
        their file.
        """
        assert self.key_start == 0
        columns = {name: getattr(self, name) for name in (*COLUMNS, "keys")}
        return columns if self.records is None else {**columns, "records": self.records}

    @property
    def seconds(self) -> np.ndarray:
        """Duration of each sample as stored, float64."""
        return self.num_samples / np.maximum(self.sample_rate, 1)

    def digest(self) -> int:
        """Return 64-bit digest of all that a plan depends on: hashes of keys, lengths of audio,
        sample rates, lengths of text.

        The same samples give the same digest in raw and in shard mode.
        """
        state = hashlib.blake2b(digest_size=8)
        for name in ("key_hash", "num_samples", "sample_rate", "text_length"):
            state.update(np.ascontiguousarray(getattr(self, name)).data)
        return int.from_bytes(state.digest(), "little")


class Stored(NamedTuple):
    """The columns of an index that lengths are computed from; `Rows` has the same columns."""

    num_samples: np.ndarray
    sample_rate: np.ndarray
    text_length: np.ndarray


def rows_of(entries: Sequence[Entry]) -> Rows:
    """Return rows of a list of entries."""
    columns: dict[str, Any] = {}
    for name in Entry._fields:
        if name != "key":
            values = [getattr(entry, name) for entry in entries]
            columns[name] = np.asarray(values, COLUMNS[name])

    return Rows(**columns, **_key_columns([entry.key for entry in entries]))


def _key_columns(keys: Sequence[str]) -> dict[str, Any]:
    encoded = [key.encode() for key in keys]
    return {
        "key_hash": np.asarray([hash_key(key) for key in encoded], np.uint64),
        "key_end": np.cumsum([len(key) for key in encoded], dtype=np.uint64),
        "keys": np.frombuffer(b"".join(encoded), np.uint8),
    }


def rows_of_shards(
    first_row: np.ndarray, samples: np.ndarray, shards: np.ndarray
) -> slice | np.ndarray:
    """Return rows of all samples of one or more shards, one shard after the other, in columns of a
    whole corpus.

    Args:
        first_row: (all shards,) row of the first sample of each shard.
        samples: (all shards,) number of samples of each shard.
        shards: the wanted shards.
    """
    first = first_row[shards].astype(np.int64)  # (wanted shards,)
    counts = samples[shards].astype(np.int64)  # (wanted shards,)
    are_neighbours = (np.diff(shards) == 1).all()
    if are_neighbours:
        return slice(int(first[0]), int(first[-1] + counts[-1]))

    # Number the wanted samples from 0, and move those of each shard to its first row.
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) + np.repeat(first - (ends - counts), counts)


def hash_key(key: bytes) -> int:
    """Return 64-bit hash of a key; random draws for a sample depend on this hash."""
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


class Extremes(NamedTuple):
    """Columns of the shard table: the shortest and the longest utterances of shards."""

    shortest: np.ndarray
    longest: np.ndarray
    """Seconds."""
    shortest_text: np.ndarray
    longest_text: np.ndarray
    """Characters, or tokens if they are counted."""


SHARDS_OF_LIST = {**TABLE_COLUMNS, "first_row": np.int64}
"""Columns of the index of a list with a value for each shard."""
META_TYPES = {
    "bad": list,
    "bytes": int,
    "digest": str,
    "features": bool,
    "files": list,
    "mtime_ns": int,
    "remote": bool,
    "summary": dict,
    "type": str,
    "unread": dict,
    "warnings": list,
}
"""Types of what the index of a list has in its header."""

Indexed = tuple[Rows, list[Problem]]
"""The rows of a shard, and the samples that cannot be used."""


class StoredIndex(NamedTuple):
    """The index of one shard, as read from its file."""

    rows: Rows
    bad: list[Problem]
    meta: dict[str, Any]
    """The state of the files that were indexed."""


def read_index(path: str | Path, *, one_of_many: bool = False) -> StoredIndex:
    """Map the index of one shard; `one_of_many` as in `read_columns`.

    Raises:
        ValueError: the file is no index, or is damaged.
    """
    return _parse_index(path, *read_columns(path, one_of_many=one_of_many))


def find_index(path: str | Path, *, one_of_many: bool = False) -> StoredIndex | None:
    """Like `read_index`; None if there is no such file, or it is damaged, unreadable or of another
    version.
    """
    columns = find_columns(path, one_of_many=one_of_many)
    try:
        return None if columns is None else _parse_index(path, *columns)
    except ValueError:
        return None


def _parse_index(
    path: str | Path, columns: dict[str, np.ndarray], meta: dict[str, Any]
) -> StoredIndex:
    """Return the index of a shard from the content of its file.

    Raises:
        ValueError: a name, a type or a length is not that of an index.
    """
    try:
        bad = [(key, reason) for key, reason in meta.pop("bad")]
        rows = Rows(**columns, key_start=0, tar_pages=meta.pop("tar_pages"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: its header is damaged ({error}); delete it to have it rebuilt"
        ) from None

    for name, dtype in COLUMNS.items():
        column = getattr(rows, name)
        if column.dtype != dtype or len(column) != len(rows):
            raise ValueError(f"{path}: its column {name} is damaged; delete it to have it rebuilt")
    return StoredIndex(rows, bad, meta)


def write_index(
    places: Iterable[Path], rows: Rows, bad: Sequence[Problem], meta: Mapping[str, Any]
) -> None:
    """Write the index of one shard at the first of `places` that can be written.

    Args:
        meta: the state of the files that were indexed.
    """
    all_meta = {**meta, "tar_pages": rows.tar_pages, "bad": bad}
    write_kept(places, lambda file: write_columns(file, rows.columns(), all_meta))


@dataclass(frozen=True)
class Summary:
    """Totals of a whole corpus. They are kept in the meta of its index, so that opening a corpus
    reads no column.
    """

    samples: int
    seconds: float
    digest: str
    """Digest of all that a plan depends on; equal in raw and shard mode."""


@dataclass(frozen=True)
class ListIndex:
    """The index of a data list or of a file of texts, mapped from its file. It is pickled as the
    path of that file.
    """

    path: Path
    columns: dict[str, np.ndarray]
    meta: dict[str, Any]
    """Type, size, time and digest of the list; what `summary`, `bad` and `Facts` give."""

    @classmethod
    def write(
        cls, places: Iterable[Path], columns: Mapping[str, np.ndarray], meta: Mapping[str, Any]
    ) -> ListIndex:
        """Write an index at the first of `places` that can be written, and map it."""
        return cls.read(write_kept(places, lambda file: write_columns(file, columns, meta)))

    @classmethod
    def read(cls, path: Path, digest: str | None = None) -> ListIndex:
        """Map an index.

        Args:
            digest: of the samples that the index must have; None: any.

        Raises:
            ValueError: the file is no index, is damaged, or has been made again with other samples.
        """
        index = cls(path, *read_columns(path))
        index._check()
        if digest not in (None, index.summary.digest):
            raise ValueError(
                f"{path}: made again with other samples since it was opened; start again"
            )
        return index

    @classmethod
    def find(cls, path: Path) -> ListIndex | None:
        """Like `read`; None if there is no such file, or it is damaged, unreadable or of another
        version.
        """
        stored = find_columns(path)
        if stored is None:
            return None

        index = cls(path, *stored)
        try:
            index._check()
        except ValueError:
            return None
        return index

    def _check(self) -> None:
        """Check that the parts of the index fit each other. Columns of samples are not read.

        Raises:
            ValueError: they do not, so the file is damaged.
        """
        try:
            damage = _misfit_of_meta(self.meta) or _misfit_of_columns(self.columns, self.summary)
        except (LookupError, TypeError, ValueError) as error:
            damage = f"{type(error).__name__}: {error}"

        if damage:
            raise ValueError(f"{self.path}: damaged ({damage}); delete it to have it rebuilt")

    @property
    def summary(self) -> Summary:
        """Totals of the list."""
        return Summary(**self.meta["summary"])

    @property
    def bad(self) -> list[Problem]:
        """(key, reason) of each sample that cannot be used."""
        return [(key, reason) for key, reason in self.meta["bad"]]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what is odd in the list as a whole."""
        return tuple(self.meta.get("warnings", ()))

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ListIndex.read, (self.path, self.summary.digest)


def _misfit_of_meta(meta: Mapping[str, Any]) -> str | None:
    """Return what is wrong in the header of the index of a list; None if nothing is."""
    for name, value in meta.items():
        if not isinstance(value, META_TYPES.get(name, object)):
            return f"{name} is {value!s:.40}"

    for key, reason in meta["bad"]:
        if not isinstance(key, str) or not isinstance(reason, str):
            return f"bad has {(key, reason)!s:.40}"

    digests = Summary(**meta["summary"]).digest.split()  # of the samples, and of files of lines
    of_files = len(digests) - 1 == len(meta["files"]) if "files" in meta else True
    of_list = "files" in meta or meta.keys() >= {"type", "bytes", "mtime_ns", "digest"}
    return None if of_files and of_list else "it does not say of which files it is"


def _misfit_of_columns(columns: Mapping[str, np.ndarray], summary: Summary) -> str | None:
    """Return what is wrong in the columns of the index of a list; None if nothing is."""
    are_lines = "keys" in columns
    of_samples = COLUMNS if are_lines else {name: COLUMNS[name] for name in Stored._fields}
    bytes_name, ends_name = ("keys", "key_end") if are_lines else ("paths", "path_end")
    of_shards = SHARDS_OF_LIST if are_lines else {**SHARDS_OF_LIST, "path_end": np.uint64}
    if columns.keys() != {*of_samples, *of_shards, bytes_name}:
        return f"its columns are {', '.join(columns)}"

    shards = len(columns["samples"])
    for types, length in ((of_samples, summary.samples), (of_shards, shards)):
        for name, dtype in types.items():
            if columns[name].dtype != dtype or len(columns[name]) != length:
                return f"column {name} has {len(columns[name])} values of {columns[name].dtype}"

    found = summary_of(columns)
    if (found.samples, found.digest) != (summary.samples, summary.digest.split()[0]):
        return "its summary is of other samples"

    samples = columns["samples"]
    if not np.array_equal(columns["first_row"], np.cumsum(samples, dtype=np.int64) - samples):
        return "column first_row does not count samples"
    for name in ("seconds", "shortest", "longest"):
        if not np.isfinite(columns[name]).all():
            return f"column {name} has no finite numbers"

    ends = columns[ends_name]
    last = int(ends[-1]) if len(ends) else 0
    is_descending = not are_lines and bool((ends[1:] < ends[:-1]).any())
    if last != len(columns[bytes_name]) or is_descending:
        return f"column {ends_name} does not fit the bytes of {bytes_name}"
    return None


def summary_of(table: Mapping[str, np.ndarray]) -> Summary:
    """Return the summary of a shard table."""
    state = hashlib.blake2b(digest_size=16)
    for name in ("samples", "digest"):
        state.update(np.ascontiguousarray(table[name]).data)

    return Summary(
        int(table["samples"].sum(dtype=np.int64)), float(table["seconds"].sum()), state.hexdigest()
    )


def shard_table(shards: Iterable[Rows]) -> dict[str, np.ndarray]:
    """Return the shard table: one row for each shard, with the columns of TABLE_COLUMNS."""
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
