"""A shard list as a corpus: tar files read by offset."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, Numbers, RemoteObject
from wenet_uio.dataset.corpus.columns import read_columns
from wenet_uio.dataset.corpus.index import Rows, Summary
from wenet_uio.dataset.corpus.indexing import index_of, kept_folder
from wenet_uio.dataset.corpus.recent import OPEN_SHARDS, Recent
from wenet_uio.dataset.corpus.remote_index import kept_index
from wenet_uio.dataset.corpus.shard_index import shard_index
from wenet_uio.dataset.formats.data_list import ListError, ShardFiles
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.dataset.types import SampleRef, Utterance

OPEN_INDEXES = 1024
"""Indexes of shards that a process keeps mapped. A batch reads from all shards of a group; opening an index takes a
tenth of the time of reading an utterance."""


class _Tar:
    """An open tar, closed when the last thread has finished reading.

    Read, not mapped: with hundreds of shards a mapping serves only one or two utterances before it is replaced, and
    mapping costs more than the copy.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = os.dup(file.fileno())

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)

    def __del__(self) -> None:
        os.close(self._descriptor)


_open_tars: Recent[_Tar] = Recent(OPEN_SHARDS)
"""Open tars of all corpora of this process, by corpus and shard: a mixture of many sources opens no more files."""


class ShardCorpus(Corpus):
    """A shard list: samples are read from tars by offset. The list must have an index (`ensure_index`)."""

    def __init__(self, data_list: str, layout: Layout = DEFAULT_LAYOUT) -> None:
        columns, meta = read_columns(index_of(data_list, layout))
        self._layout = layout
        self._path_end, self._paths = columns.pop("path_end"), columns.pop("paths")
        self._digest = columns["digest"]
        self._is_remote = meta.get("remote", False)
        self._open_rows: Recent[Rows] = Recent(OPEN_INDEXES)
        self._owner = object()
        weakref.finalize(self, _open_tars.drop_all_of, self._owner)
        bad = [(key, reason) for key, reason in meta["bad"]]
        super().__init__(data_list, columns, bad, Summary(**meta["summary"]))

    def files(self, shard: int) -> ShardFiles:
        """Tar and manifest of a shard."""
        start = int(self._path_end[shard - 1]) if shard else 0
        return ShardFiles.parse(self._paths[start : int(self._path_end[shard])].tobytes().decode())

    def rows(self, shard: int) -> Rows:
        """Index of one shard.

        Raises:
            ListError: the shard has changed since the list was indexed.
        """
        rows = self._open_rows.get(shard)
        if rows is None:
            rows = self._read_rows(shard)
            self._open_rows.put(shard, rows)
        return rows

    @property
    def is_remote(self) -> bool:
        """Whether any tar is in a remote store."""
        return self._is_remote

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """The remote tars among these shards."""
        tars = ((int(shard), self.files(int(shard)).tar) for shard in shards)
        return [(tar, self._version(shard)) for shard, tar in tars if objects.is_remote(tar)]

    def read(self, ref: SampleRef) -> Utterance:
        """Read audio and text of a sample: from the open tar, or by range from a remote store."""
        rows, tar = self.rows(ref.shard), self._tar(ref.shard)
        audio_at = _place(rows.audio_offset, rows.audio_size, ref.row)
        text_at = _place(rows.text_offset, rows.text_size, ref.row)
        first, last = audio_at
        if rows.records is None:  # audio and text are neighbours in the tar: one read
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

    def _read_rows(self, shard: int) -> Rows:
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
        """The open tar of a shard; None for a remote tar that is not in the cache."""
        tar = _open_tars.get((self._owner, shard))
        if tar is not None:
            return tar
        tar = self._open_tar(shard)
        if tar is not None:
            _open_tars.put((self._owner, shard), tar)
        else:  # the cache may lack room, and does not evict copies that this process has open
            _open_tars.drop_oldest()
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
    """First byte and one past the last of a member."""
    return int(offsets[row]), int(offsets[row]) + int(sizes[row])
