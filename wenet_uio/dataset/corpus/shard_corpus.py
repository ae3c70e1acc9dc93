"""A shard list as a corpus: tar files read by offset."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, RemoteObject
from wenet_uio.dataset.corpus.columns import read_columns
from wenet_uio.dataset.corpus.index import Rows, Summary
from wenet_uio.dataset.corpus.indexing import index_of, kept_folder
from wenet_uio.dataset.corpus.remote_index import kept_index
from wenet_uio.dataset.corpus.shard_index import shard_index
from wenet_uio.dataset.formats.data_list import ListError, ShardFiles
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.dataset.types import SampleRef, Utterance

OPEN_SHARDS = 64
"""Tars that a process keeps open."""

OPEN_INDEXES = 1024
"""Mapped indexes of shards that it keeps: a batch is of all shards of a group, and to open one costs a tenth of what an
utterance does."""


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
        return [(tar, self._version(shard)) for shard, tar in tars if objects.is_remote(tar)]

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
            data = objects.read_range(self.files(ref.shard).tar, first, last, self._version(ref.shard))
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
        if files.is_plain:
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
        file = objects.open_whole(path) if objects.is_plain(path) else objects.open_present(path, self._version(shard))
        if file is None:
            return None
        with file:
            return _Tar(file)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ShardCorpus, (self.data_list, self._layout)


def _place(offsets: np.ndarray, sizes: np.ndarray, row: int) -> tuple[int, int]:
    return int(offsets[row]), int(offsets[row]) + int(sizes[row])
