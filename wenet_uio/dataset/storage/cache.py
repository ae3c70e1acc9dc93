"""The cache of a node: copies of whole remote objects on a local disk, shared by all processes of
the node.

Files below the folder of the cache (`aa` is the start of the hash of the URI):

    aa/<uri>-<version>.tar              a complete copy; readers hold a shared lock, and locked copies are not evicted
    aa/<uri>-<version>.tar.sum          checksum of the copy; its time says when the copy was last used
    aa/<uri>-<version>.tar.<size>.part  a partial copy, locked by its writer; a later process resumes a partial download
    aa/<uri>.version                    the last version that the store told; used for an hour
    aa/<uri>.failed                     the last error of an object; used for two deadlines
    lock                                locked while space is reserved; contains the number of bytes in use
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from wenet_uio.base.files import digest_of, naming, written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.archives import why_no_gzip
from wenet_uio.dataset.storage.cache_space import CacheFullError
from wenet_uio.dataset.storage.copies import PartFiles, SpaceWriter, make_copy, open_copy
from wenet_uio.dataset.storage.settings import cache_folder, deadline
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.versions import (
    NO_ROOM,
    ChangedError,
    NoRangesError,
    StorageError,
    Version,
)

VERSION_KEPT = 3600.0
"""Seconds for which a version is used without asking the store again."""
SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
PIECE = 1 << 20
"""Bytes of a packed file that are unpacked at a time."""

Result = TypeVar("Result")


def copy_of(uri: str, version: Version) -> BinaryIO | None:
    """Open the copy of an object, which is not evicted while it is open; None if there is no
    complete copy.
    """
    return open_copy(_path(uri, version), uri, version.size)


def fetch(uri: str, version: Version | None = None, parts: PartFiles | None = None) -> BinaryIO:
    """Open the copy of an object; where it is missing, one process downloads it and the others
    wait.

    Args:
        version: the version that is wanted; None is the current one.
        parts: records the partial file, for a process that may exit before the download is
            complete.

    Raises:
        CacheFullError: no space for the copy.
        FileNotFoundError, PermissionError, StorageError: the object cannot be read, or has another
        version.
    """
    wanted = version or current_version(uri)
    try:
        return _fetch(uri, wanted, parts)
    except ChangedError:
        if version is not None:
            raise
        # The object changed since its version was read
        return _fetch(uri, current_version(uri, kept=0.0), parts)


def unpacked(
    uri: str,
    version: Version,
    packed: Callable[[], BinaryIO],
    unpack: Callable[[BinaryIO, Callable[[bytes], Any]], None],
    parts: PartFiles | None = None,
) -> BinaryIO:
    """Open the unpacked contents of a file that `packed` opens.

    Args:
        unpack: passes the contents of the open file to a function.

    Raises:
        CacheFullError: no space for the contents. OSError: the errors of `packed` and `unpack`.
    """

    def write(file: BinaryIO) -> None:
        file.truncate(0)
        writer = SpaceWriter(file, cache_folder(), 0)
        with packed() as source:
            unpack(source, writer.write)

    return _make(_path(f"{uri}\nunpacked", version, ".tar"), None, write, uri, parts)


def unpack_gzip(uri: str, packed: BinaryIO, write: Callable[[bytes], Any]) -> None:
    """Pass the contents of an open gzip file to `write`.

    A gzip has one checksum of all its contents. Where it differs, nobody knows which sample is
    wrong, so the file is refused. Of a file that is cut short the part before the cut is right: the
    tar in it has no end mark, which whoever scans it reports.

    Raises:
        StorageError: the file is damaged, or is no gzip, or only its checksum is missing.
    """

    def read() -> bytes:
        with naming(shown(uri)):
            return packed.read(PIECE)

    first_piece = read()
    if kind := why_no_gzip(first_piece):
        raise StorageError(f"{shown(uri)}: {kind}")

    inflater = zlib.decompressobj(wbits=31)  # 31: gzip, with its checksum
    pieces = itertools.chain([first_piece], iter(read, b""))
    try:
        for piece in pieces:
            data = piece
            while data:
                write(inflater.decompress(data, 1 << 24))
                data = inflater.unconsumed_tail or inflater.unused_data.lstrip(b"\0")
                if inflater.eof and data:  # several files that were joined
                    inflater = zlib.decompressobj(wbits=31)

        if not inflater.eof:
            # Where only the checksum and the length are missing, these bytes are wrong ones. A cut
            # in the contents takes them as contents, which are not wanted.
            inflater.decompress(b"\xff" * 8)
    except zlib.error as error:
        raise StorageError(
            f"{shown(uri)}: the gzip is damaged or has lost its end ({error})"
        ) from None


def current_version(uri: str, kept: float = VERSION_KEPT) -> Version:
    """Return the version of a remote object; the store is asked unless a process of this node asked
    within `kept` seconds.

    Raises:
        FileNotFoundError, PermissionError, StorageError: the object cannot be read.
    """
    path = _named(uri, ".version")
    if noted := _read_note(path, kept):
        return Version(*noted)

    version = remembering(uri, lambda: version_of(uri))
    _write_note(path, astuple(version))
    return version


def present_version(uri: str, seconds: float) -> Version:
    """Ask the store for the version of a remote object, whatever this node knows of it; an answer
    replaces the remembered error.

    Args:
        seconds: a shorter deadline.

    Raises:
        FileNotFoundError, PermissionError, StorageError: the object cannot be read.
    """
    version = version_of(uri, seconds)
    _write_note(_named(uri, ".version"), astuple(version))
    _named(uri, ".failed").unlink(missing_ok=True)
    return version


def remembering(uri: str, read: Callable[[], Result]) -> Result:
    """Call a function that reads an object, unless reading it failed a short while ago on this
    node.

    So a lost object costs one deadline, not one for each of its samples. A new run tries again at
    once.

    Raises:
        StorageError: reading failed within the last two deadlines. Otherwise the errors of `read`.
    """
    path = _named(uri, ".failed")
    run = os.getpgrp()  # an error of an earlier run may have been mended
    failure = _read_note(path, 2 * deadline())
    if failure and failure[0] == run:
        raise StorageError(failure[1])

    try:
        return read()
    except (CacheFullError, ChangedError, NoRangesError):
        raise
    except (StorageError, FileNotFoundError, PermissionError) as error:
        _write_note(path, (run, shown(error)))
        raise


def _fetch(uri: str, version: Version, parts: PartFiles | None) -> BinaryIO:
    return _make(
        _path(uri, version), version.size, lambda file: _download(uri, version, file), uri, parts
    )


def _make(
    path: Path,
    size: int | None,
    write: Callable[[BinaryIO], None],
    uri: str,
    parts: PartFiles | None,
) -> BinaryIO:
    return make_copy(path, size, lambda file: remembering(uri, lambda: write(file)), uri, parts)


def _download(uri: str, version: Version, file: BinaryIO) -> None:
    """Download an object into its partial file, from the byte where an earlier process stopped.

    Raises:
        StorageError: the MD5 differs from the one that the store tells.
    """
    start = file.seek(0, os.SEEK_END)
    if not _can_resume(file, start, version):
        start = file.seek(0)

    file.truncate(start)
    missing = 0 if version.size is None else version.size - start
    writer = SpaceWriter(file, cache_folder(), missing)
    transfer(uri, writer.write, start, version.size, version)

    if version.md5:
        digest = digest_of(file.name, "md5")
        if digest != version.md5:
            raise StorageError(
                f"{shown(uri)}: its MD5 is {digest}, but the store says {version.md5}"
            )


def _can_resume(file: BinaryIO, length: int, version: Version) -> bool:
    """Tell whether a partial file of `length` bytes holds the beginning of this version of an
    object.

    A file from before the last boot is not used: after a power cut it may have its length and not
    its contents. A file that is dated in the future is not used either, since its date tells
    nothing.
    """
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    is_recent = booted <= os.fstat(file.fileno()).st_mtime <= time.time()
    return bool(version.tag) and version.size is not None and length <= version.size and is_recent


def _read_note(path: Path, kept: float) -> list | None:
    """Return what a note says; None for a note that is older than `kept` seconds, dated in the
    future, or damaged.
    """
    try:
        with path.open(encoding="utf-8") as file:
            if not 0 <= time.time() - os.fstat(file.fileno()).st_mtime < kept:
                return None
            noted = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return noted if isinstance(noted, list) and 2 <= len(noted) <= 3 else None


def _write_note(path: Path, values: tuple) -> None:
    """Write a note for all processes of the node. On a full disk they ask the store themselves."""
    try:
        with written_aside(path, "w") as file:
            json.dump(values, file)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def _named(uri: str, suffix: str) -> Path:
    name = hashlib.blake2b(uri.encode(), digest_size=16).hexdigest()
    return cache_folder() / name[:2] / (name + suffix)


def _path(uri: str, version: Version, suffix: str = "") -> Path:
    """Return where the copy of a version of an object is; the suffix of the object is kept unless
    another is given.
    """
    state = hashlib.blake2b(repr((version.size, version.tag)).encode(), digest_size=8).hexdigest()
    ending = SUFFIX.search(uri.split("?")[0])
    return _named(uri, f"-{state}{suffix or (ending[0].lower() if ending else '')}")
