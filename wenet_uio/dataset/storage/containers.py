"""Files of other tools that hold many samples, such as parquet. Each part of such a file is
unpacked into a tar.

A part is named as if the file were a folder: `x.parquet/3.tar` is row group 3 of `x.parquet`. In
the tar, row 12 has a member `000012.COLUMN` for each of its binary values, and `000012.json` with
all other values.
"""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, Protocol

from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage import litdata_file, mds_file, parquet_file
from wenet_uio.dataset.storage.versions import DriverError, StorageError

Row = Mapping[str, Any]
"""Values by column. An audio of Hugging Face is `{"bytes": …, "path": …}`."""
Beside = Callable[[str], bytes]
"""Reads another file of the folder of a container."""


class Reader(Protocol):
    """Reads one kind of container."""

    def count_parts(self, file: BinaryIO) -> int:
        """Return the number of parts, such as row groups. Raises: DriverError, ValueError, OSError:
        the file cannot be read.
        """
        ...

    def rows_of(self, file: BinaryIO, part: int, beside: Beside) -> Iterator[Row]:
        """Return the rows of a part. Raises: DriverError, ValueError, OSError: the file cannot be
        read.
        """
        ...


READERS: dict[str, tuple[re.Pattern[str], Reader]] = {
    "parquet": (re.compile(r".*\.parquet"), parquet_file),
    "mds": (re.compile(r".*\.mds"), mds_file),
    "litdata": (re.compile(r"(?:.*/)?chunk-\d+-\d+\.bin"), litdata_file),
}
"""Kind of container -> pattern of its names, and its reader."""
PART = re.compile(r"(.*)/(\d{1,18})\.tar(\?.*)?")
DAMAGE = (
    ArithmeticError,
    LookupError,
    ValueError,
    struct.error,
    AttributeError,  # these three of JSON with other types than expected, or nested too deeply
    TypeError,
    RuntimeError,
)
"""Errors of reading a damaged container."""
MARKS = (".parquet/", ".mds/", ".bin/")
"""Every name of a part holds one of these; looking for them takes less time than PART."""


class Part(NamedTuple):
    """A part of a container."""

    container: str
    """Path or URI."""
    number: int


def part_of(uri: str) -> Part | None:
    """Return the part that a path or URI names; None if it names no part of a container."""
    match = PART.fullmatch(uri) if any(mark in uri for mark in MARKS) else None
    return Part(match[1] + (match[3] or ""), int(match[2])) if match and kind_of(match[1]) else None


def kind_of(uri: str) -> str | None:
    """Return the kind of container, a key of READERS, that a path or URI names; None if it names
    none.
    """
    name = uri.partition("?")[0]
    return next((kind for kind, (pattern, _) in READERS.items() if pattern.fullmatch(name)), None)


def refuse_compressed(uri: str) -> None:
    """Raise StorageError if a path or URI names a compressed container, which is not read."""
    if uri.partition("?")[0].endswith(mds_file.COMPRESSED):
        raise StorageError(
            f"{shown(uri)}: compressed shards of MDS are not read; unpack them, such as with zstd "
            "-d"
        )


def names_of_parts(uri: str, file: BinaryIO) -> list[str]:
    """Return names of all parts of an open container.

    Raises:
        StorageError: the container is damaged. DriverError: a package is missing.
    """
    name, mark, query = uri.partition("?")
    with _damage_named(uri):
        count = _reader_of(name).count_parts(file)
    return [f"{name}/{number}.tar{mark}{query}" for number in range(count)]


def unpack(part: Part, file: BinaryIO, write: Callable[[bytes], Any], beside: Beside) -> None:
    """Pass the tar of a part of an open container to `write`. The same part gives the same bytes.

    Raises:
        StorageError: the container is damaged. DriverError: a package is missing.
    """
    rows = _reader_of(part.container.partition("?")[0]).rows_of(file, part.number, beside)
    with _damage_named(part.container), tarfile.open(fileobj=_Sink(write), mode="w|") as tar:
        for number, row in enumerate(rows):
            for name, value in _members_of_row(row):
                header = tarfile.TarInfo(f"{number:06d}.{name}")
                header.size = len(value)
                tar.addfile(header, io.BytesIO(value))


@contextmanager
def _damage_named(uri: str) -> Iterator[None]:
    """Turn errors of readers into a StorageError that names the container."""
    try:
        yield
    except DriverError as error:
        raise DriverError(f"{shown(uri)}: {error}") from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        if not isinstance(error, ValueError):
            reason = f"damaged ({type(error).__name__}: {reason})"
        raise StorageError(f"{shown(uri)}: {reason}") from None


def _members_of_row(row: Row) -> Iterator[tuple[str, bytes]]:
    """Yield the column and contents of the members of a row."""
    values: dict[str, Any] = {}
    for column, value in row.items():
        if isinstance(value, dict) and "bytes" in value:
            # A column of audio: its bytes are a member, the rest is a value of the JSON.
            values[column] = {name: field for name, field in value.items() if name != "bytes"}
            value = value["bytes"]
        if isinstance(value, bytes):
            yield re.sub(r"[^\w-]", "_", column), value
        elif column not in values:
            values[column] = value

    yield (
        "json",
        json.dumps(values, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace"),
    )


class _Sink(io.RawIOBase):
    """A file that is written once from its beginning."""

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)


def _reader_of(name: str) -> Reader:
    return next(reader for pattern, reader in READERS.values() if pattern.fullmatch(name))
