"""MDS shards of MosaicML's StreamingDataset, read-only: `shard.00000.mds`, not compressed. A shard
is one part.

A shard is the number of samples, the offset of each sample and of the end (uint32), the columns as
JSON, and the samples. A sample is the sizes of the columns that have no fixed size (uint32), then
the values. Pickled values are never opened.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np

NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {
    "float8"
}
COMPRESSED = (".mds.zstd", ".mds.gz", ".mds.bz2", ".mds.br", ".mds.snappy")
"""Names of compressed shards, which are not read."""


def count_parts(file: BinaryIO) -> int:
    """One: a shard is one part. Raises: ValueError: the file is damaged."""
    _header(file)
    return 1


def rows_of(
    file: BinaryIO, part: int, beside: Callable[[str], bytes] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the samples of a shard; values that are neither bytes, texts, numbers nor JSON are left
    out.

    Raises:
        ValueError: the file is damaged, or no column holds bytes.
    """
    offsets, columns = _header(file)
    if all(encoding != "bytes" for _, encoding, _ in columns):
        names = ", ".join(f"{name} ({encoding})" for name, encoding, _ in columns)
        raise ValueError(
            f"no column holds encoded audio, which is of type bytes (its columns: {names})"
        )

    for first, end in pairwise(offsets.tolist()):
        yield _row(_read(file, first, end - first), columns)


Column = tuple[str, str, int | None]
"""Name, encoding, and bytes of each value if they are fixed."""


def _header(file: BinaryIO) -> tuple[np.ndarray, list[Column]]:
    """Return offsets of the samples and of the end, and the columns."""
    import numpy as np  # only here: the process that downloads ahead needs no numpy

    (count,) = struct.unpack("<I", _read(file, 0, 4))
    offsets = np.frombuffer(_read(file, 4, 4 * (count + 1)), "<u4")
    start = 4 * (count + 2)
    if (
        not start <= int(offsets[0]) <= int(offsets[-1]) == file.seek(0, 2)
        or (np.diff(offsets.astype(int)) < 0).any()
    ):
        raise ValueError("not a shard of MDS, or damaged: its offsets do not fit its size")

    stated = json.loads(_read(file, start, int(offsets[0]) - start))
    names = (stated["column_names"], stated["column_encodings"], stated["column_sizes"])
    return offsets, list(zip(*names, strict=True))


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    data = file.read(size)
    if len(data) < size:
        raise ValueError("not a shard of MDS, or cut short")
    return data


def _row(data: bytes, columns: list[Column]) -> dict[str, Any]:
    """Return the values of a sample that can be used.

    The sizes of the columns without a fixed size are stored first, then the values of all columns.

    Raises:
        ValueError: the sample is damaged.
    """
    num_sizes = sum(1 for _, _, fixed_size in columns if not fixed_size)
    sizes = iter(struct.unpack_from(f"<{num_sizes}I", data))
    start, row = 4 * num_sizes, {}

    for name, encoding, fixed_size in columns:
        size = fixed_size or next(sizes)
        value = _value(encoding, data[start : start + size])
        if value is not None:
            row[name] = value
        start += size

    if start != len(data):
        raise ValueError("a sample of another size than its columns")

    return row


def _value(encoding: str, data: bytes) -> Any:
    """Return the value of a column; None for an encoding that is left out."""
    if encoding == "bytes":
        return data
    if encoding in ("str", "str_int", "str_float", "str_decimal"):
        return data.decode()
    if encoding == "json":
        return json.loads(data)

    if encoding == "int" or encoding in NUMBERS:
        import numpy as np

        return np.frombuffer(data, "int64" if encoding == "int" else encoding)[0].item()

    return None
