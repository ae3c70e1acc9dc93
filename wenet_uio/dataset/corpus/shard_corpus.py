"""A shard list as a corpus: tar files read by offset."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import BinaryIO, Generic, TypeVar

import numpy as np

from wenet_uio.dataset.corpus.base import Facts, Numbers, RemoteObject, StoredCorpus
from wenet_uio.dataset.corpus.index import ListIndex, Rows, Stored, rows_of_shards
from wenet_uio.dataset.corpus.remote_index import kept_index
from wenet_uio.dataset.corpus.shard_index import kept_folder, pages_of, shard_index
from wenet_uio.dataset.corpus.unread_audio import OF_A_LINE
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout, is_member_of
from wenet_uio.dataset.formats.tar_headers import LOOK_BACK, member_before
from wenet_uio.dataset.formats.tar_members import plain_name
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.dataset.types import AudioUtterance, SampleRef
from wenet_uio.text.characters import without_mark

Value = TypeVar("Value")
OPEN_SHARDS = 128
"""Tars that a process keeps open, of all its corpora together. The plan mixes as many local shards
in a group."""


class Recent(Generic[Value]):
    """At most `most` values by number. A new value replaces the value that was used longest ago.

    There is no lock, because every call on the OrderedDict is atomic. If threads compete, a value
    may be dropped early.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, which counts as a use; None if the value is not kept."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            return None

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._most:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the value that was used longest ago, if any is kept."""
        try:
            self._values.popitem(last=False)
        except KeyError:  # empty
            return

    def drop_all_of(self, owner: object) -> None:
        """Drop the values with keys (owner, …)."""
        for key in list(self._values):
            if isinstance(key, tuple) and key[0] is owner:
                self._values.pop(key, None)


OPEN_INDEXES = 1024
"""Indexes of shards that a process keeps mapped. A batch reads from all shards of a group; opening
an index takes a tenth of the time of reading an utterance."""


SHARDS_COMPARED = 64
"""Shards that tell whether a list holds the texts that it did; evenly spread over the list."""
TEXTS_COMPARED = 8
"""Texts of each of them."""


class _Tar:
    """An open tar, closed when the last thread has finished reading.

    Read, not mapped: with hundreds of shards a mapping serves only one or two utterances before it
    is replaced, and mapping costs more than the copy.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = os.dup(file.fileno())
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)

    def __del__(self) -> None:
        os.close(self._descriptor)


_open_tars: Recent[_Tar] = Recent(OPEN_SHARDS)
"""Open tars of all corpora of this process, by corpus and shard: a mixture of many sources opens no
more files."""


class ShardCorpus(StoredCorpus):
    """A shard list: samples are read from tars by offset."""

    def __init__(self, data_list: str, index: ListIndex, layout: Layout = DEFAULT_LAYOUT) -> None:
        """`index` is that of the list, see `index_of_file`."""
        columns = dict(index.columns)
        self._index, self._layout = index, layout
        self._path_end, self._paths = columns.pop("path_end"), columns.pop("paths")
        self._digest = columns["digest"]
        self._first_row = columns["first_row"]
        self._lengths = Stored(*(columns[name] for name in Stored._fields))
        self._open_rows: Recent[Rows] = Recent(OPEN_INDEXES)
        self._owner = object()
        weakref.finalize(self, _open_tars.drop_all_of, self._owner)
        self._compared: set[int] = set()
        facts = Facts.of_list(data_list, index)
        super().__init__(data_list, columns, index.bad, index.summary, facts)

    @cached_property
    def contents_digest(self) -> str:
        """Digest of up to SHARDS_COMPARED shards: of the first texts of a local tar, and of the
        version of a remote or packed one.

        All texts of a list that was packed again with other texts are rarely of equal length, and
        then the digest of the index tells.
        """
        state = hashlib.blake2b(self.digest.encode(), digest_size=16)
        count = min(self.num_shards, SHARDS_COMPARED)
        for number in range(count):
            shard = self.num_shards * number // count  # spread over the list
            if not self.files(shard).is_plain:
                state.update(repr(self._version(shard)).encode())
                continue
            for row in range(min(TEXTS_COMPARED, int(self.samples[shard]))):
                try:
                    state.update(self.read(SampleRef(shard, row)).text.encode())
                except (ListError, OSError) as error:  # a bad sample, which training names
                    state.update(str(error).encode())

        return state.hexdigest()

    def files(self, shard: int) -> ShardFiles:
        """Return the tar and manifest of a shard."""
        start = int(self._path_end[shard - 1]) if shard else 0
        path = self._paths[start : int(self._path_end[shard])].tobytes()
        try:
            return ShardFiles.parse(path.decode())
        except UnicodeDecodeError:
            raise ListError(
                f"{self._index.path}: damaged (a shard is named {path!r:.80}); delete it to have it "
                "rebuilt"
            ) from None

    def rows(self, shard: int) -> Rows:
        """Return the index of one shard.

        Raises:
            ListError: the shard has changed since the list was indexed.
        """
        rows = self._open_rows.get(shard)
        if rows is None:
            rows = self._read_rows(shard)
            self._open_rows.put(shard, rows)
        return rows

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of these shards, from the index of the list."""
        rows = rows_of_shards(self._first_row, self.samples, shards)
        return Stored(*(column[rows] for column in self._lengths))

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """Return the remote tars among these shards."""
        tars = ((int(shard), self.files(int(shard)).tar) for shard in shards)
        return [(tar, self._version(shard)) for shard, tar in tars if objects.is_remote(tar)]

    def read(self, ref: SampleRef) -> AudioUtterance:
        """Read audio and text of a sample: from the open tar, or by range from a remote store."""
        rows = self.rows(ref.shard)
        if rows.records is not None:
            return self._read_recorded(ref, rows, rows.records)

        key = rows.key(ref.row)
        audio_start, audio_end = _place(rows.audio_offset, rows.audio_size, ref.row)
        text_start, text_end = _place(rows.text_offset, rows.text_size, ref.row)

        # Audio and text are neighbours in the tar: one read.
        data, first = self._bytes(ref.shard, min(audio_start, text_start), max(audio_end, text_end))
        audio = audio_start - first, audio_end - first
        text = text_start - first, text_end - first

        # The headers before both members must name the sample: the tar may have been replaced.
        if not is_member_of(key, data, *audio) or not is_member_of(key, data, *text):
            raise self._changed(ref)

        try:
            words = without_mark(str(data[slice(*text)], "utf-8"))
        except UnicodeDecodeError:
            raise ListError(
                f"{self.files(ref.shard).tar}: the text of {key} is not UTF-8"
            ) from None

        return AudioUtterance(key, words, data[slice(*audio)])

    def _read_recorded(self, ref: SampleRef, rows: Rows, records: np.ndarray) -> AudioUtterance:
        """Read the audio of a sample whose text is in the index."""
        key = rows.key(ref.row)
        start, end = _place(rows.audio_offset, rows.audio_size, ref.row)
        data, first = self._bytes(ref.shard, start, end)
        name, size = member_before(data[: start - first])

        try:
            record_start, record_end = _place(rows.text_offset, rows.text_size, ref.row)
            record = json.loads(bytes(records[record_start:record_end]))
            text, *segment, extra, key_of_record, name_of_record = record
        except ValueError:
            raise self._changed(ref) from None

        if (key_of_record, name_of_record, size) != (key, plain_name(name), end - start):
            raise self._changed(ref)

        return AudioUtterance(key, text, data[start - first :], *segment, extra=extra)

    def _bytes(self, shard: int, start: int, end: int) -> tuple[memoryview, int]:
        """Return bytes of a tar, with the headers before them; and the place of the first byte."""
        first, tar = max(0, start - LOOK_BACK), self._tar(shard)
        if tar is not None:
            data = tar.read(first, end) if end <= tar.size else b""
            if len(data) < end - first:  # it may also have shrunk since it was opened
                raise ListError(
                    f"{self.files(shard).tar}: ends before byte {end}, changed since it was indexed"
                )
            return memoryview(data), first

        # Not in the cache yet
        data = objects.read_range(self.files(shard).tar, first, end, self._version(shard))
        return memoryview(data), first

    def _changed(self, ref: SampleRef) -> ListError:
        """Return the error for a sample that is not at its place in the tar."""
        rows = self.rows(ref.shard)
        return ListError(
            f"{self.files(ref.shard).tar}: {rows.key(ref.row)} is not at byte "
            f"{rows.audio_offset[ref.row]}: the tar or its index was changed; check_data.py makes "
            "the index again"
        )

    def _version(self, shard: int) -> Version:
        """Return the version of a remote or packed tar that was indexed."""
        return kept_index(self.files(shard), self._layout, kept_folder(self.data_list))[1]

    def _read_rows(self, shard: int) -> Rows:
        """Read the index of one shard.

        Raises:
            ListError: it is not the index that the list was indexed with.
        """
        files = self.files(shard)
        try:
            if files.is_plain:
                rows, _ = shard_index(str(files), kept_folder(self.data_list), self._layout, "size")
            else:
                rows, _ = kept_index(files, self._layout, kept_folder(self.data_list))
        except ListError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in (*OF_A_LINE, errno.EISDIR):
                raise
            raise ListError(
                f"{files.tar!r}: {error}; if {self.data_list} does not name it, {self._index.path} "
                "is damaged: delete it to have it rebuilt"
            ) from None

        if rows.digest() != int(self._digest[shard]):
            raise ListError(
                f"{files.tar}: not the shard that was indexed; delete {self._index.path} to redo "
                "it, or copy the list to another folder"
            )

        return rows

    def _tar(self, shard: int) -> _Tar | None:
        """Return the open tar of a shard; None for a remote tar that is not in the cache."""
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
        """Open a local tar, or the copy of a remote one; None if there is no whole copy.

        Raises:
            ListError: the tar changed since it was indexed. A tar is compared when it is first
                opened.
        """
        path = self.files(shard).tar
        file = (
            objects.open_whole(path)
            if objects.is_plain(path)
            else objects.open_present(path, self._version(shard))
        )
        if file is None:
            return None

        with file:
            if shard not in self._compared and self.rows(shard).tar_pages != pages_of(file):
                raise ListError(
                    f"{path}: changed since it was indexed; delete the indexes of tar and list to "
                    "redo them"
                )

            self._compared.add(shard)
            return _Tar(file)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ShardCorpus, (self.data_list, self._index, self._layout)


def _place(offsets: np.ndarray, sizes: np.ndarray, row: int) -> tuple[int, int]:
    """Return the first byte and one past the last of a member."""
    return int(offsets[row]), int(offsets[row]) + int(sizes[row])
