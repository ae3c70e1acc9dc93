"""A file of named numpy arrays that is mapped, not read: the format of every index.

Layout: 8 bytes of magic, 8 bytes length of the header (little endian), a JSON header
{"meta": {...}, "columns": {name: [dtype, count, offset]}}, then the columns, each aligned to 64 bytes.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

MAGIC = b"UIOIDX03"
ALIGNMENT = 64
VISITS = 16
"""Visits to mapped files after which their pages are dropped from memory. A batch makes a few visits."""


def write_columns(file: IO[bytes], columns: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Write one-dimensional arrays and a small JSON-able `meta` to an open binary file."""
    entries = {name: [array.dtype.str, len(array), 0] for name, array in columns.items()}
    offset = _aligned(len(_header(entries, meta)) + 16 * len(entries))  # room for the digits of the offsets
    for name, array in columns.items():
        entries[name][2] = offset
        offset = _aligned(offset + array.nbytes)
    header = _header(entries, meta)
    file.write(header)
    position = len(header)
    for name, array in columns.items():
        file.write(b"\0" * (entries[name][2] - position))
        file.write(np.ascontiguousarray(array).data)
        position = entries[name][2] + array.nbytes


def is_index(path: str | Path) -> bool:
    """Whether `path` is a file with an index of this version."""
    if not os.path.isfile(path):  # noqa: PTH113 - runs for every shard; pathlib is slower
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_columns(path: str | Path, *, one_of_many: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Map the columns of `path` read-only.

    Args:
        one_of_many: hold no file descriptor, of which a process may have only a thousand. `release_pages` has no
            effect on these columns.

    Raises:
        ValueError: the file is no index, or is shorter than its header says.
    """
    with open(path, "rb") as file:
        prefix = file.read(16)
        if prefix[:8] != MAGIC:
            raise ValueError(f"{path}: not an index, or of another version; delete it to have it rebuilt")
        header = json.loads(file.read(int.from_bytes(prefix[8:], "little")))
        size = os.fstat(file.fileno()).st_size
        data = _map_without_descriptor(file, size) if one_of_many else _map(file)
    columns = {}
    for name, (dtype, count, offset) in header["columns"].items():
        end = offset + count * np.dtype(dtype).itemsize
        if end > size:
            raise ValueError(
                f"{path}: cut short ({size} bytes, column {name} ends at {end}); delete it to have it rebuilt"
            )
        columns[name] = data[offset:end].view(dtype)
    return columns, header["meta"]


def map_file(path: str | Path) -> np.ndarray:
    """Map a file as a uint8 array."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return _map(file)


def _map(file: BinaryIO) -> np.ndarray:
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _map_without_descriptor(file: BinaryIO, size: int) -> np.ndarray:
    # Python's mmap keeps a descriptor open for each map (until `trackfd` of Python 3.13).
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), file.name)
    memory = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, libc.munmap, address, size).atexit = False  # arrays may be used after it
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


class Visits:
    """Counts visits to mapped files, and drops their pages every VISITS visits to bound the memory of the process."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self._arrays, self._count = arrays, 0

    def add(self) -> None:
        """Count one visit."""
        self._count += 1
        if self._count % VISITS == 0:
            for array in self._arrays:
                release_pages(array)


def release_pages(array: np.ndarray) -> None:
    """Drop the pages of the file that `array` is mapped from; the next use reads them again."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def _header(entries: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
    text = json.dumps({"meta": meta, "columns": entries}).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
