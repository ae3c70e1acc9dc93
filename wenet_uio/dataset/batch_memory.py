"""The memory of a batch: one buffer for all its tensors, in shared memory where a worker fills it.

A tensor costs a file descriptor and some system calls to cross processes; so all of a batch go as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

ALIGNMENT = 64
"""Bytes: a cache line."""

Place = tuple[int, int, Sequence[int], Sequence[int], torch.dtype]
"""Of a tensor: number of its buffer, offset in elements, shape, strides, type."""


def empty_tensors(shapes: Mapping[str, tuple[Sequence[int], torch.dtype]]) -> dict[str, torch.Tensor]:
    """Tensors of these shapes and types, in one buffer, not filled."""
    starts, size = {}, 0
    for name, (shape, dtype) in shapes.items():
        starts[name] = size
        size += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    in_worker = get_worker_info() is not None
    storage = torch.UntypedStorage._new_shared(size) if in_worker else torch.UntypedStorage(size)
    return {
        name: torch.empty(0, dtype=dtype).set_(storage, starts[name] // dtype.itemsize, shape)
        for name, (shape, dtype) in shapes.items()
    }


def pack(tensors: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], dict[str, Place]]:
    """The buffers that tensors lie in, each once, and where in them they lie."""
    buffers: dict[int, torch.Tensor] = {}
    places: dict[str, Any] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in buffers:
            buffers[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        number = list(buffers).index(storage.data_ptr())
        places[name] = (number, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    return list(buffers.values()), places


def unpack(buffers: Sequence[torch.Tensor], places: Mapping[str, Place]) -> dict[str, torch.Tensor]:
    """What was packed."""
    return {
        name: torch.empty(0, dtype=dtype).set_(buffers[number].untyped_storage(), offset, shape, stride)
        for name, (number, offset, shape, stride, dtype) in places.items()
    }
