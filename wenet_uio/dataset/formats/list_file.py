"""A data list as a file: read once from beginning to end, with a digest of the bytes read."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from wenet_uio.dataset.formats.data_list import DataType, shards_of
from wenet_uio.dataset.formats.errors import ListError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TYPE_LINES = 10
"""Lines at the beginning of a list that tell its type."""
PARQUET_MAGIC, TAR_MAGIC = b"PAR1", slice(257, 262)
"""First bytes of a parquet file, and the place of `ustar` in a tar."""
BLOCK = 1 << 20
"""Bytes of a list that are read and hashed together."""


class DataList:
    """An open raw or shard list.

        with DataList("data/train/data.list", "raw") as data_list:
            for offset, line in data_list.lines():
                ...
            digest = data_list.digest()

    The lines can be read once. Memory holds a block of the list, not the list.
    """

    def __init__(self, path: str, data_type: DataType) -> None:
        """Open a list and check its type.

        Raises:
            ListError: the list is empty, UTF-16, a shard, or of the other type; the message has the
                fitting `data_type`.
        """
        self.path = path
        self._digest: str | None = None
        self._raw = _HashedFile(path)
        self._file = io.BufferedReader(self._raw, BLOCK)

        try:
            # The state is taken before the first read: a list that is written meanwhile differs.
            status = os.fstat(self._raw.fileno())
            self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
            self._refuse_shard()
            self._head = self._read_head()
            self._check_type(data_type)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> DataList:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def first_lines(self, count: int) -> list[bytes]:
        """At most `count` lines at the beginning of the list; at most TYPE_LINES."""
        assert count <= TYPE_LINES
        return self._head[:count]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and bytes of each line; call this once."""
        offset = 0
        for line in itertools.chain(self._head, self._file):
            yield offset, line
            offset += len(line)

        # Fixed here: a list that grows later has lines that were not given.
        self._digest = self._raw.state.hexdigest()

    def digest(self) -> str:
        """Return the SHA-256 of the bytes that `lines` gave, in hexadecimal; equals `digest_of` the
        file.
        """
        if self._digest is None:
            raise RuntimeError(f"{self.path}: the digest is known after the last line")
        return self._digest

    def _read_head(self) -> list[bytes]:
        """Read the lines up to the TYPE_LINES-th that is not blank."""
        head: list[bytes] = []
        filled = 0
        while filled < TYPE_LINES and (line := self._file.readline()):
            head.append(line)
            filled += bool(_stripped(line))

        return head

    def _refuse_shard(self) -> None:
        """Raise ListError if the file is a shard in place of a list of shards."""
        first_bytes = self._file.peek(TAR_MAGIC.stop)
        if first_bytes.startswith(PARQUET_MAGIC):
            shard = "a parquet file"
        elif first_bytes[TAR_MAGIC] == b"ustar":
            shard = "a tar"
        else:
            return

        raise ListError(
            f"{self.path}: {shard}, not a data list; write its path as a line of a file, and name "
            "that file with data_type shard"
        )

    def _check_type(self, data_type: DataType) -> None:
        """Raise ListError if the first lines are not of a list of this type, or there are none."""
        lines = [line for line in map(_stripped, self._head) if line]
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
            f"{self.path}: holds {content}, which is data_type {fitting}, not {data_type}"
        )


class _HashedFile(io.FileIO):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.state = hashlib.sha256(usedforsecurity=False)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer`; return the number of bytes."""
        count = super().readinto(buffer)
        self.state.update(memoryview(buffer)[:count])
        return count


def _stripped(line: bytes) -> bytes:
    return line.removeprefix(BOM_UTF8).strip()


def read_shards(path: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return shards of a list as of `split_shard_list`, after the check of its type by `DataList`."""
    with DataList(path, "shard") as data_list:
        return shards_of(path, (line for _, line in data_list.lines()))


def check_type(path: str, data_type: DataType) -> None:
    """Refuse a raw list opened as a shard list, and the reverse; errors as of `DataList`."""
    with DataList(path, data_type):
        return
