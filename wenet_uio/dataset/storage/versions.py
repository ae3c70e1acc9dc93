"""Versions of remote objects, and the errors of storage."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from wenet_uio.base.uris import shown

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, quota or file size limit that is used up."""


class StorageError(OSError):
    """An object cannot be read or written."""


class DriverError(ValueError):
    """This installation cannot read a scheme: a driver or a setting is missing, or the store cannot
    list.
    """


class RefusedError(StorageError):
    """The store refused a request; another attempt would get the same answer."""


class NoRangesError(RefusedError):
    """The store sends whole objects only."""


class BusyError(ConnectionError):
    """The store is there and asks to be tried again later."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds
        """Seconds that the store asks to wait; 0 if it does not tell."""


class ChangedError(RefusedError):
    """The object in the store has another version than the one that was asked for."""


@dataclass(frozen=True)
class Version:
    """Identifies one state of an object; an object that is replaced gets another version."""

    size: int | None
    """Bytes; None if the store does not tell."""
    tag: str = ""
    """Entity tag, or time of the last change; empty if the store does not tell."""
    md5: str = ""
    """Hexadecimal digest of the whole object; empty if the store does not tell."""


def check_version(current: Version, wanted: Version, uri: str) -> None:
    """Check that an object still has the version that was indexed.

    Raises:
        ChangedError: the object has another version.
        ConnectionError: the version is the same and the size differs; the answer was cut short on
            the way.
    """
    same_tag = bool(wanted.tag) and wanted.tag == current.tag
    if wanted.tag and current.tag and not same_tag:
        raise ChangedError(
            f"{shown(uri)}: changed since it was indexed ({wanted.tag} then, {current.tag} now)"
        )

    if wanted.size is not None and current.size is not None and wanted.size != current.size:
        sizes = f"{wanted.size} bytes when indexed, {current.size} now"
        if same_tag:
            raise ConnectionError(sizes)
        raise ChangedError(f"{shown(uri)}: changed: {sizes}")
