"""A file of which only those parts are read that are asked for, such as a member of a remote tar."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class PartialFile(io.RawIOBase):
    """A file in a store.

    A decoder may call it from native code, which cannot pass an exception on: it then sees the end
    of the file, and `failure` has the error of the store.
    """

    def __init__(self, size: int, read_between: Callable[[int, int], bytes]) -> None:
        """Read nothing yet.

        Args:
            size: bytes of the file.
            read_between: reads the bytes from one offset up to another.
        """
        self.size = size
        self.failure: OSError | None = None
        """The last error of the store; what a decoder says of the file is then not true."""
        self._read_between = read_between
        self._position = 0

    def between(self, start: int, end: int) -> bytes:
        """Return bytes `start` up to `end`, or up to the end of the file.

        Raises:
            OSError: the store does not give them.
        """
        try:
            return self._read_between(start, max(start, min(end, self.size)))
        except OSError as error:
            self.failure = error
            raise

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer from the position on; returns the number of bytes."""
        room = memoryview(buffer).cast("B")
        try:
            data = self.between(self._position, self._position + len(room))
        except OSError:  # see `failure`
            return 0

        room[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; returns it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Tell that the file can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that the position can be moved."""
        return True


Encoded: TypeAlias = memoryview | BinaryIO | PartialFile
"""Opened audio, or stored features."""


def in_memory(encoded: Encoded) -> memoryview | BinaryIO:
    """Return a file in a store as bytes, by one read; local files and bytes as they are."""
    if isinstance(encoded, PartialFile):
        return memoryview(encoded.between(0, encoded.size))
    return encoded
