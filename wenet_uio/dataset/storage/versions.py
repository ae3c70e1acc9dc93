"""Versions of remote objects, the errors of stores, and how long a store is waited for."""

from __future__ import annotations

import os
from dataclasses import dataclass


class StorageError(OSError):
    """An object that cannot be had."""


class DriverError(ValueError):
    """A scheme that this installation cannot read; not the data's fault."""


class RefusedError(StorageError):
    """A store's last word: trying again would not help."""


class ChangedError(RefusedError):
    """An object that is no longer of the version asked for."""


@dataclass(frozen=True)
class Version:
    """What tells one state of an object from the next."""

    size: int | None
    """Bytes; None where the store does not say."""
    tag: str = ""
    """Entity tag, or time of the last change."""
    md5: str = ""
    """Hexadecimal, of the whole object, where the store says."""


def deadline() -> float:
    """Seconds without progress after which an object counts as not to be had: WENET_UIO_DEADLINE."""
    return float(os.environ.get("WENET_UIO_DEADLINE") or 300)


def stall() -> float:
    """Seconds of silence after which a connection is given up."""
    return max(0.2, deadline() / 10)


def shown(uri: str) -> str:
    """A URI as it may be printed: without password and signature."""
    plain, signed, _ = uri.partition("?")
    scheme, _, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" + ("?…" if signed else "")


def check_version(found: Version, wanted: Version, uri: str) -> None:
    """Refuse an object of another version than the one that was indexed.

    Raises:
        ChangedError: it is another one.
        ConnectionError: the same one, cut short on the way.
    """
    same_tag = bool(wanted.tag) and wanted.tag == found.tag
    if wanted.tag and found.tag and not same_tag:
        raise ChangedError(f"{shown(uri)}: changed since it was indexed ({wanted.tag} then, {found.tag} now)")
    if wanted.size is not None and found.size is not None and wanted.size != found.size:
        what = f"of {wanted.size} bytes when indexed, {found.size} now"
        raise ConnectionError(what) if same_tag else ChangedError(f"{shown(uri)}: changed: {what}")
