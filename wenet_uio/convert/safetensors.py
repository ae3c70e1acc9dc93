"""Reads files of safetensors, the format of weights of Hugging Face: a JSON header, then the
tensors.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import torch

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LENGTH = 8
"""Bytes before the header, which hold its length."""
MOST_HEADER_BYTES = 100 << 20


def read_safetensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Read all tensors of a file. Their memory is that of the file until they are changed.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is incomplete or has another format.
    """
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(LENGTH), "little")
        if size < LENGTH or not 2 <= length <= min(size - LENGTH, MOST_HEADER_BYTES):
            raise ValueError(f"{path}: not a file of safetensors, or incomplete")

        header = file.read(length)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        return {
            name: _tensor(content, entry, LENGTH + length, size) for name, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{path}: damaged or incomplete ({type(error).__name__}: {error})"
        ) from None


def _tensor(content: mmap.mmap, entry: dict[str, Any], start: int, size: int) -> torch.Tensor:
    """Return the tensor that an entry of the header describes.

    Args:
        start: first byte behind the header, from which offsets count.
        size: bytes of the file.

    Raises:
        ValueError: the offsets do not fit.
    """
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    first, last = (start + offset for offset in entry["data_offsets"])
    count = torch.Size(shape).numel()
    if not start <= first <= last <= size or last - first != count * dtype.itemsize:
        raise ValueError(
            "a tensor ends behind the end of the file, or its size is not that of its shape"
        )

    if not count:
        return torch.empty(shape, dtype=dtype)

    return torch.frombuffer(content, dtype=dtype, count=count, offset=first).view(shape)
