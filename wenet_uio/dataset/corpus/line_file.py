"""A file of lines that an index refers to: read by offset, and refused if it has changed since it
was indexed.
"""

from __future__ import annotations

import os

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.files import digest_of


class LineFile:
    """Reads lines of a file by offset.

    The file is read, not mapped: a process that touches a mapped page beyond the new end of a file
    is killed (SIGBUS).
    """

    def __init__(self, path: str, size: int, mtime_ns: int, digest: str) -> None:
        """Open the file.

        Args:
            size, mtime_ns: of the file when it was indexed. If either is another, the digest
                decides.
            digest: `digest_of` the file when it was indexed.
        """
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - open as long as this object
        self.digest = digest
        self._checked, self._is_same = (size, mtime_ns), True

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes `offset` up to `offset + size`.

        Raises:
            ListError: the file has changed since it was indexed.
        """
        status = os.fstat(self._file.fileno())
        state = status.st_size, status.st_mtime_ns
        if state != self._checked:
            self._is_same = digest_of(self.path) == self.digest
            self._checked = state

        if not self._is_same:
            raise ListError(
                f"{self.path}: changed since it was indexed; start again, so that it is indexed "
                "again"
            )

        return os.pread(self._file.fileno(), size, offset)
