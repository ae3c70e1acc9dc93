"""A data list opened as shards with their index; raw lists and shard lists look the same from here on."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from wenet_uio.dataset import storage
from wenet_uio.dataset.columns import Visits, map_file, read_columns
from wenet_uio.dataset.corpus import Corpus, RemoteObject
from wenet_uio.dataset.data_list import DataType, ListError, RawLine, ShardFiles, parse_raw_line
from wenet_uio.dataset.index import TABLE_COLUMNS, Rows, Summary
from wenet_uio.dataset.indexing import ensure_index, index_of, kept_folder, locate
from wenet_uio.dataset.kept_index import kept_index
from wenet_uio.dataset.shard import is_plain, shard_index
from wenet_uio.dataset.shard_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.types import SampleRef, Utterance
from wenet_uio.dataset.versions import Version

OPEN_SHARDS = 64
"""Tars that a process keeps open."""
OPEN_INDEXES = 1024
"""Mapped indexes of shards that it keeps: a batch is of all shards of a group, and to open one costs a tenth of what an
utterance does."""


class LineCorpus(Corpus):
    """Samples of which each is a line of a file; a run of consecutive lines counts as a shard."""

    def __init__(self, path: str, columns: dict[str, np.ndarray], meta: dict[str, Any], *more: np.ndarray) -> None:
        """`columns` and `meta` are of the index of the lines of `path`; `more` files are read with it, mapped."""
        self._first = columns.pop("first_row")
        table = {name: columns.pop(name) for name in TABLE_COLUMNS}
        self._rows = Rows(**columns)
        self._lines = map_file(path)
        self._visits = Visits(self._rows.key_hash, self._lines, *more)
        super().__init__(path, table, [tuple(item) for item in meta["bad"]], Summary(**meta["summary"]))

    def rows(self, shard: int) -> Rows:
        self._visits.add()
        first = int(self._first[shard])
        return self._rows.slice(first, first + int(self.samples[shard]))


class RawCorpus(LineCorpus):
    """A raw list: audio files of their own."""

    def __init__(self, data_list: str, layout: Layout = DEFAULT_LAYOUT) -> None:
        columns, meta = read_columns(index_of(data_list, layout))
        self._layout = layout
        self._is_remote = meta.get("remote", False)
        super().__init__(data_list, columns, meta)

    @property
    def is_remote(self) -> bool:
        return self._is_remote

    def remote_files(self, shards: Sequence[int] | np.ndarray, rows: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        lines = (self._line(int(shard), int(row)) for shard, row in zip(shards, rows, strict=True))
        return [(line.wav, None) for line in lines if storage.is_remote(line.wav)]

    def read(self, ref: SampleRef) -> Utterance:
        line = self._line(ref.shard, ref.row)
        path = locate(line.wav, self.data_list)
        if storage.is_plain(path):
            audio: bytes | str = path
        elif line.start or line.end is not None:  # one of many of a long recording
            audio = storage.local_path(path)
        else:
            audio = storage.read_bytes(path)
        return Utterance(line.key, audio, line.text, line.start, line.end, extra=line.extra)

    def texts(self, ref: SampleRef) -> tuple[str, ...]:
        return (self._line(ref.shard, ref.row).text,)

    def _line(self, shard: int, row: int) -> RawLine:
        number = int(self._first[shard]) + row
        offset = int(self._rows.audio_offset[number])
        line = self._lines[offset : offset + int(self._rows.audio_size[number])]
        return parse_raw_line(line.tobytes(), self._layout.text_field)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return RawCorpus, (self.data_list, self._layout)


class _Tar:
    """An open file, closed when no thread reads it any more.

    It is read, not mapped: a mapping of 64 of hundreds of shards is undone after an utterance or two, which costs more
    than the copy.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = os.dup(file.fileno())

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)

    def __del__(self) -> None:
        os.close(self._descriptor)


class ShardCorpus(Corpus):
    """A shard list: tars read by offset."""

    def __init__(self, data_list: str, layout: Layout = DEFAULT_LAYOUT) -> None:
        columns, meta = read_columns(index_of(data_list, layout))
        self._layout = layout
        self._path_end, self._paths = columns.pop("path_end"), columns.pop("paths")
        self._digest = columns["digest"]
        self._rows = lru_cache(OPEN_INDEXES)(self._open_rows)
        self._is_remote = meta.get("remote", False)
        self._tars: OrderedDict[int, _Tar] = OrderedDict()
        self._tars_lock = threading.Lock()
        super().__init__(data_list, columns, [tuple(item) for item in meta["bad"]], Summary(**meta["summary"]))

    def files(self, shard: int) -> ShardFiles:
        """Where a shard is."""
        start = int(self._path_end[shard - 1]) if shard else 0
        return ShardFiles.parse(self._paths[start : int(self._path_end[shard])].tobytes().decode())

    def rows(self, shard: int) -> Rows:
        return self._rows(shard)

    @property
    def is_remote(self) -> bool:
        return self._is_remote

    def remote_shards(self, shards: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        tars = ((int(shard), self.files(int(shard)).tar) for shard in shards)
        return [(tar, self._version(shard)) for shard, tar in tars if storage.is_remote(tar)]

    def read(self, ref: SampleRef) -> Utterance:
        rows, tar = self.rows(ref.shard), self._tar(ref.shard)
        audio_at = _place(rows.audio_offset, rows.audio_size, ref.row)
        text_at = _place(rows.text_offset, rows.text_size, ref.row)
        first, last = audio_at
        if rows.records is None:  # they lie side by side: both in one go
            first, last = min(first, text_at[0]), max(last, text_at[1])
        if tar is not None:
            data = tar.read(first, last)
        else:  # not in the cache yet
            data = storage.read_range(self.files(ref.shard).tar, first, last, self._version(ref.shard))
        data = memoryview(data)
        audio = data[audio_at[0] - first : audio_at[1] - first]
        key = rows.key(ref.row)
        if rows.records is not None:
            text, start, end, extra = json.loads(bytes(rows.records[slice(*text_at)]))
            return Utterance(key, audio, text, start, end, extra=extra)
        try:
            return Utterance(key, audio, bytes(data[text_at[0] - first : text_at[1] - first]).decode())
        except UnicodeDecodeError:
            raise ListError(f"{self.files(ref.shard).tar}: the text of {key} is not UTF-8") from None

    def _version(self, shard: int) -> Version:
        """The version of a remote or packed tar that was indexed."""
        return kept_index(self.files(shard), self._layout, kept_folder(self.data_list))[1]

    def _open_rows(self, shard: int) -> Rows:
        files = self.files(shard)
        if is_plain(files):
            rows, _ = shard_index(str(files), self._layout)
        else:
            rows, _ = kept_index(files, self._layout, kept_folder(self.data_list))
        if rows.digest() != int(self._digest[shard]):
            index = index_of(self.data_list, self._layout)
            raise ListError(f"{files.tar}: not the shard that was indexed; delete {index} to redo it")
        return rows

    def _tar(self, shard: int) -> _Tar | None:
        """The tar, open; None while it is remote and not in the cache."""
        with self._tars_lock:
            if shard in self._tars:
                self._tars.move_to_end(shard)
                return self._tars[shard]
        tar = self._open_tar(shard)
        with self._tars_lock:
            if tar is not None:
                self._tars[shard] = tar
            # A tar that is not there may be so for want of room: what this process has open is not evicted.
            if len(self._tars) > OPEN_SHARDS or (tar is None and self._tars):
                self._tars.popitem(last=False)
        return tar

    def _open_tar(self, shard: int) -> _Tar | None:
        path = self.files(shard).tar
        file = storage.open_whole(path) if storage.is_plain(path) else storage.open_present(path, self._version(shard))
        if file is None:
            return None
        with file:
            return _Tar(file)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ShardCorpus, (self.data_list, self._layout)


def _place(offsets: np.ndarray, sizes: np.ndarray, row: int) -> tuple[int, int]:
    return int(offsets[row]), int(offsets[row]) + int(sizes[row])


def open_list(data_list: str, data_type: DataType, layout: Layout = DEFAULT_LAYOUT) -> Corpus:
    """Open a raw or shard list, indexing it first where it has no index or has changed since.

    `layout` is for lists of other tools whose samples are not what they are taken for.

    Raises:
        ListError: no such list, an empty one, or one of the other type.
        OSError, ValueError: the cache cannot be used.
    """
    ensure_index(data_list, data_type, layout)
    corpus = RawCorpus(data_list, layout) if data_type == "raw" else ShardCorpus(data_list, layout)
    if corpus.is_remote:
        storage.check_cache()
    if not corpus.num_samples:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in corpus.bad[:3])
        raise ListError(f"{data_list}: no usable utterance" + (f" ({reasons})" if reasons else ""))
    return corpus
