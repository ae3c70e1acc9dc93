"""A file of named numpy arrays that is mapped, not read: the format of every index.

Layout: 8 bytes of magic, 8 bytes length of the header (little endian), a JSON header
{"meta": {...}, "columns": {name: [dtype, count, offset]}}, then the columns, each aligned to 64
bytes.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

MAGIC = b"UIOIDX03"
ALIGNMENT = 64


def write_columns(
    file: IO[bytes], columns: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> None:
    """Write one-dimensional arrays and a small JSON-able `meta` to an open binary file."""
    entries = {name: [array.dtype.str, len(array), 0] for name, array in columns.items()}
    # Room for the digits of the offsets
    offset = _aligned(len(_header(entries, meta)) + 16 * len(entries))
    for name, array in columns.items():
        entries[name][2] = offset
        offset = _aligned(offset + array.nbytes)

    header = _header(entries, meta)
    file.write(header)
    position = len(header)

    for name, array in columns.items():
        file.write(b"\0" * (entries[name][2] - position))
        file.write(np.ascontiguousarray(array).data)
        release_pages(array)
        position = entries[name][2] + array.nbytes


def find_columns(
    path: str | Path, *, one_of_many: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Like `read_columns`; None if there is no such file, or it is damaged, unreadable or of
    another version.

    The caller makes the file again.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - runs for every shard; pathlib is slower
        return None

    try:
        return read_columns(path, one_of_many=one_of_many)
    except (FileNotFoundError, PermissionError, ValueError):
        return None


def read_columns(
    path: str | Path, *, one_of_many: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Map the columns of `path` read-only.

    Args:
        one_of_many: hold no file descriptor, of which a process may have only a thousand.
            `release_pages` has no effect on these columns.

    Raises:
        ValueError: the file is no index, or is damaged: its header cannot be read, or names more
            than the file holds.
    """
    with open(path, "rb") as file:
        prefix = file.read(16)
        if prefix[:8] != MAGIC:
            raise ValueError(
                f"{path}: not an index, or of another version; delete it to have it rebuilt"
            )

        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(prefix[8:], "little")
        if len(prefix) < 16 or 16 + length > size:
            raise ValueError(
                f"{path}: cut short inside its header ({size} bytes); delete it to have it rebuilt"
            )

        try:
            entries, meta = _parse_header(file.read(length))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: its header is damaged ({error}); delete it to have it rebuilt"
            ) from None

        for name, (dtype, count, offset) in entries.items():
            end = offset + count * dtype.itemsize
            if end > size:
                raise ValueError(
                    f"{path}: cut short ({size} bytes, column {name} ends at {end}); delete it to "
                    "have it rebuilt"
                )

        data = _map_without_descriptor(file, size) if one_of_many else map_file(file)

    columns = {
        name: data[offset : offset + count * dtype.itemsize].view(dtype)
        for name, (dtype, count, offset) in entries.items()
    }
    return columns, meta


def map_file(file: IO[bytes]) -> np.ndarray:
    """Map all bytes of an open file as a uint8 array, which may be used after the file is
    closed.
    """
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


class GrowingColumns:
    """Columns that grow in unnamed temporary files, so that the memory of indexing does not grow
    with the corpus.
    """

    def __init__(self, dtypes: Mapping[str, type]) -> None:
        """`dtypes` are the names and types of the columns."""
        self._dtypes = dict(dtypes)
        self._files = {name: tempfile.TemporaryFile() for name in dtypes}  # noqa: SIM115 - open as long as this object

    def append(self, values: object) -> None:
        """Append the attributes of `values` that are named as the columns."""
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(getattr(values, name), self._dtypes[name]).data)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns, mapped from their files."""
        return {name: map_file(file).view(self._dtypes[name]) for name, file in self._files.items()}


def _map_without_descriptor(file: BinaryIO, size: int) -> np.ndarray:
    """Map a file into memory: its bytes (size,), read-only, without an open file descriptor."""
    # Python's mmap keeps a descriptor open for each map (until `trackfd` of Python 3.13).
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), file.name)

    memory = (ctypes.c_uint8 * size).from_address(address)
    # Arrays may be used after it
    weakref.finalize(memory, libc.munmap, address, size).atexit = False
    data = np.frombuffer(memoryview(memory), np.uint8)
    data.flags.writeable = False

    return data


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    return libc


def release_pages(array: np.ndarray) -> None:
    """Drop the pages of the file that `array` is mapped from; the next use reads them again."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base

    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def _parse_header(text: bytes) -> tuple[dict[str, tuple[np.dtype, int, int]], dict[str, Any]]:
    """Return {column: (dtype, count, offset)} and meta.

    Raises:
        ValueError, KeyError, TypeError: this is no header.
    """
    header = json.loads(text)
    entries = {}
    for name, (code, count, offset) in dict(header["columns"]).items():
        dtype = np.dtype(code)
        are_numbers = isinstance(count, int) and isinstance(offset, int)
        if dtype.hasobject or not are_numbers or min(count, offset) < 0:
            raise ValueError(f"column {name}: {code}, {count}, {offset}")

        entries[name] = (dtype, count, offset)

    return entries, dict(header["meta"])


def _header(entries: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
    text = json.dumps({"meta": meta, "columns": entries}).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
