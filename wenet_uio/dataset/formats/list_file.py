"""Files of lines: opened once, read from beginning to end with a digest, then line by line.

`LineFile` is any file whose lines an index refers to. `DataList` reads a raw or shard list.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from wenet_uio.base.files import digest_of_blocks, naming
from wenet_uio.dataset.formats.data_list import DataType, shards_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage.archives import MARK_BYTES, is_tar, kind_of_archive

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TYPE_LINES = 10
"""Lines at the beginning of a list that tell its type."""
PARQUET_MAGIC = b"PAR1"
"""First bytes of a parquet file."""
BLOCK = 1 << 20
"""Bytes of a list that are read and hashed together."""


class FileState(NamedTuple):
    """What tells that a file has the content that was indexed."""

    size: int
    """Bytes."""
    mtime_ns: int
    digest: str
    """`digest_of` the file. It decides if size or time differ."""


class LineFile:
    """An open file of lines, which an index refers to by offset.

    The file is read, not mapped: a process that touches a mapped page beyond the new end of a file
    is killed (SIGBUS).
    """

    def __init__(self, path: str, indexed: FileState | None = None) -> None:
        """Open a file.

        Args:
            indexed: its state when it was indexed; None if that is not known yet. Its `digest` must
                then be set before the first `read`.
        """
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - open as long as this object
        self.size, self.mtime_ns, self.digest = indexed or (*self._size_and_time(), "")
        self._checked, self._is_same = (self.size, self.mtime_ns), True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def refresh(self) -> None:
        """Take the present size and time of a file that is not indexed yet."""
        self.size, self.mtime_ns = self._checked = self._size_and_time()

    def is_unchanged(self, indexed: FileState) -> bool:
        """Tell whether the file has the content that was indexed."""
        if self.size != indexed.size:
            return False
        return self.mtime_ns == indexed.mtime_ns or self._content_digest() == indexed.digest

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes `offset` up to `offset + size`.

        Raises:
            ListError: the file has changed since it was indexed.
        """
        state = self._size_and_time()
        if state != self._checked:
            self._is_same = self._content_digest() == self.digest
            self._checked = state

        if not self._is_same:
            raise ListError(
                f"{self.path}: changed since it was indexed; start again, so that it is indexed "
                "again"
            )

        with naming(self.path):
            return os.pread(self._file.fileno(), size, offset)

    def _content_digest(self) -> str:
        """Return `digest_of` the open file; the path may name another file by now."""
        with naming(self.path):
            return digest_of_blocks(self._blocks())

    def _blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the file; its position stays."""
        offset = 0
        while block := os.pread(self.fileno(), BLOCK, offset):
            yield block
            offset += len(block)

    def _size_and_time(self) -> tuple[int, int]:
        """Return the bytes of the file, and when it was last written, in ns."""
        with naming(self.path):
            status = os.fstat(self._file.fileno())

        return status.st_size, status.st_mtime_ns

    def __reduce__(self) -> tuple[Callable, tuple]:
        return LineFile, (self.path, FileState(self.size, self.mtime_ns, self.digest))


def opened_list(path: str) -> LineFile:
    """Open the file of a list.

    Raises:
        ListError: there is no such file, or it can be read only once.
    """
    if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a folder may not be entered
        return LineFile(path)
    if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112 - as above
        raise ListError(
            f"{path}: a pipe or a device, which cannot be read twice; write the list to a file"
        )

    raise ListError(f"{path}: no such data list; make_raw_list.py and make_shard_list.py make them")


class DataList:
    """Reads an open raw or shard list from its beginning.

        data_list = DataList(LineFile("data/train/data.list"), "raw")
        for offset, line in data_list.lines():
            ...
        state = data_list.state()

    The lines can be read once. Memory holds a block of the list, not the list. The file stays open.
    """

    def __init__(self, file: LineFile, data_type: DataType) -> None:
        """Check the type of a list.

        Raises:
            ListError: the list is empty, UTF-16, a shard, or of the other type; the message has the
                fitting `data_type`.
        """
        self.file, self.path = file, file.path
        self._digest: str | None = None
        self._raw = _HashedFile(file)
        self._file = io.BufferedReader(self._raw, BLOCK)
        self._refuse_shard()
        self.head = self._read_head()
        """The lines up to the TYPE_LINES-th that is not blank."""
        self._check_type(data_type)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and bytes of each line; call this once."""
        offset = 0
        for line in itertools.chain(self.head, self._file):
            yield offset, line
            offset += len(line)

        # Fixed here: a list that grows later has lines that were not given.
        self._digest = self._raw.state.hexdigest()

    def state(self) -> FileState:
        """Return the state of the list before its first line was read, with the digest of the bytes
        that `lines` gave: a list that is written meanwhile differs.
        """
        if self._digest is None:
            raise RuntimeError(f"{self.path}: the digest is known after the last line")
        return FileState(self.file.size, self.file.mtime_ns, self._digest)

    def _read_head(self) -> list[bytes]:
        """Read the lines up to the TYPE_LINES-th that is not blank."""
        head: list[bytes] = []
        filled = 0
        while filled < TYPE_LINES and (line := self._file.readline()):
            head.append(line)
            filled += bool(_strip_line(line))

        return head

    def _refuse_shard(self) -> None:
        """Raise ListError if the file is a shard in place of a list of shards."""
        first_bytes = self._file.peek(MARK_BYTES)
        if first_bytes.startswith(PARQUET_MAGIC):
            shard = "a parquet file"
        elif is_tar(first_bytes):
            shard = "a tar"
        elif kind := kind_of_archive(first_bytes):
            raise ListError(f"{self.path}: not a data list, but {kind}")
        else:
            return

        raise ListError(
            f"{self.path}: {shard}, not a data list; write its path as a line of a file, and name "
            "that file with data_type shard"
        )

    def _check_type(self, data_type: DataType) -> None:
        """Raise ListError if the first lines are not of a list of this type, or there are none."""
        lines = [line for line in map(_strip_line, self.head) if line]
        if not lines:
            raise ListError(f"{self.path}: empty data list")
        if lines[0].startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise ListError(f"{self.path}: UTF-16; convert the list to UTF-8 with iconv")

        # Some of these lines may be bad: one line of the type is enough.
        are_json = [line.startswith(b"{") and line.endswith(b"}") for line in lines]
        if (data_type == "raw") in are_json:
            return

        if data_type == "raw":
            content, fitting = "paths of shards", "shard"
        else:
            content, fitting = "JSON lines", "raw"

        raise ListError(
            f"{self.path}: holds {content}, which is data_type {fitting}, not {data_type}; beside "
            f"lists of data_type {data_type}, name it in a yaml: sources: [{{type: {fitting}, "
            f"data_list: {self.path}}}]"
        )


class _HashedFile(io.FileIO):
    """An open file whose bytes are hashed as they are read from its beginning."""

    def __init__(self, file: LineFile) -> None:
        super().__init__(file.fileno(), closefd=False)
        self._path = file.path
        self.seek(0)
        self.state = hashlib.sha256(usedforsecurity=False)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer`; return the number of bytes."""
        with naming(self._path):
            count = super().readinto(buffer)

        self.state.update(memoryview(buffer)[:count])
        return count


def _strip_line(line: bytes) -> bytes:
    return line.removeprefix(BOM_UTF8).strip()


def read_shards(path: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return shards of a list as of `split_shard_list`, after the check of its type by `DataList`."""
    with closing(opened_list(path)) as file:
        data_list = DataList(file, "shard")
        return shards_of(path, (line for _, line in data_list.lines()))
