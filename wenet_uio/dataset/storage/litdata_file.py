"""Chunks of LitData, read-only: `chunk-0-0.bin` beside `index.json`, not compressed or encrypted. A
chunk is one part.

A chunk is the number of items, the offset of each item and of the end (uint32), and the items. An
item is the sizes of its values (uint32), then the values. Newer versions write all items as one
Arrow file at the end, which needs pyarrow. Pickled values and tensors are never opened.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

from wenet_uio.dataset.storage.versions import DriverError

ARROW_FILE, ARROW_END = b"ARROW1", b"LDARW01\0"
"""First bytes of an Arrow file, and last bytes of a chunk that ends with one."""
BYTES = ("bytes", "file", "audio")
"""Formats of values that are encoded files, such as `file:wav`."""


def count_parts(file: BinaryIO) -> int:
    """One: a chunk is one part. Raises: ValueError: the file is damaged."""
    _offsets(file)
    return 1


def rows_of(
    file: BinaryIO, part: int, beside: Callable[[str], bytes] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a chunk; values that are neither bytes, texts nor numbers are left out.

    Args:
        beside: reads `index.json`.

    Raises:
        ValueError: the chunk is damaged or compressed, or no value holds bytes. DriverError:
            pyarrow is not installed.
    """
    assert beside is not None, "index.json says what a chunk holds"
    config = json.loads(beside("index.json"))["config"]
    if config.get("encryption"):
        raise ValueError("encrypted chunks are not read; write them again without encryption")

    offsets, data = _offsets(file), _read(file, 0, file.seek(0, 2))
    if offsets[0] == offsets[-1] and data.endswith(ARROW_END):
        yield from _arrow_rows(data)
        return
    if config.get("compression"):
        raise ValueError("compressed chunks are not read; write them again without compression")

    formats = [str(name).partition(":")[0] for name in config["data_format"]]
    names = _names(json.loads(config["data_spec"])[1])
    if len(names) != len(formats) or not set(formats) & set(BYTES):
        raise ValueError(
            f"no value holds encoded audio (values: {', '.join(map(str, names))}; "
            f"{', '.join(formats)})"
        )

    for first, end in pairwise(offsets):
        yield _row(data[first:end], names, formats)


def _offsets(file: BinaryIO) -> tuple[int, ...]:
    """Return the offset of each item of a chunk, and the end of the last item.

    Raises:
        ValueError: they do not fit the file.
    """
    (count,) = struct.unpack("<I", _read(file, 0, 4))
    offsets = struct.unpack(f"<{count + 1}I", _read(file, 4, 4 * (count + 1)))
    begins_after_offsets = offsets[0] == 4 * (count + 2)
    ends_in_file = offsets[-1] <= file.seek(0, 2)
    is_sorted = list(offsets) == sorted(offsets)
    if not (begins_after_offsets and ends_in_file and is_sorted):
        raise ValueError("not a chunk of LitData, or damaged: its offsets do not fit its size")

    return offsets


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    data = file.read(size)
    if len(data) < size:
        raise ValueError("not a chunk of LitData, or cut short")
    return data


def _names(spec: Mapping[str, Any], name: str = "") -> list[str]:
    """Return the names of the values of an item: `answer.0` is the first of the list at `answer`.

    Args:
        spec: a tree that torch's pytree wrote. A leaf has no type. The context of a dict is the
            list of its keys, as JSON or plain; sequences have no keys.
        name: of the tree in a larger one.
    """
    if spec["type"] is None:
        return [name]

    children, context = spec["children_spec"], spec["context"]
    keys = json.loads(context) if isinstance(context, str) else context
    if not isinstance(keys, list) or len(keys) != len(children):
        keys = range(len(children))

    names = []
    for key, child in zip(keys, children, strict=True):
        names += _names(child, f"{name}.{key}" if name else str(key))
    return names


def _row(data: bytes, names: Sequence[str], formats: Sequence[str]) -> dict[str, Any]:
    """Return the values of an item that can be used: their sizes are stored first, then they are.

    Raises:
        ValueError: the item is damaged.
    """
    sizes = struct.unpack_from(f"<{len(names)}I", data)
    start, row = 4 * len(names), {}
    for name, value_format, size in zip(names, formats, sizes, strict=True):
        value = _value(value_format, data[start : start + size])
        if value is not None:
            row[name] = value
        start += size

    if start != len(data):
        raise ValueError("an item of another size than its values")

    return row


def _value(kind: str, data: bytes) -> Any:
    """Return a value of a format; None for a format that is left out."""
    if kind in BYTES:
        return data
    if kind in ("str", "text"):
        return data.decode()
    if kind in ("int", "float"):
        return struct.unpack("<q" if kind == "int" else "<d", data)[0]
    if kind == "bool":
        return data != b"\0"

    return None


def _arrow_rows(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the items of a chunk that ends with an Arrow file or stream, its length (uint32) and
    ARROW_END.
    """
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise DriverError(
            "reading these chunks of LitData needs pyarrow; pip install pyarrow"
        ) from None

    end = len(data) - len(ARROW_END) - 4
    (size,) = struct.unpack_from("<I", data, end)
    try:
        table = data[max(end - size, 0) : end]
        open_table = (
            pyarrow.ipc.open_file if table.startswith(ARROW_FILE) else pyarrow.ipc.open_stream
        )
        items = open_table(table).read_all()
        items.validate(full=True)  # pyarrow itself follows the offsets of a damaged file anywhere
        yield from items.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"damaged ({' '.join(str(error).split())})") from None
