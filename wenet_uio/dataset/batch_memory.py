"""The memory of a batch: all its tensors lie in one buffer, which a worker allocates in shared
memory and fills once.

Every buffer that crosses processes costs a file descriptor and some system calls, so a batch has
one buffer only. A batch with deferred features has two: the waveforms and the tensors that belong
to them lie in a second buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from wenet_uio.base.memory import NO_SHARED_MEMORY, is_shared_memory_full

ALIGNMENT = 64
"""Bytes between possible starts of tensors in a buffer: a cache line."""


class SharedMemoryError(OSError):
    """There is no room for a batch in shared memory."""


TensorPlace = tuple[int, int, Sequence[int], Sequence[int], torch.dtype]
"""Place of a tensor: number of its buffer, offset in elements, shape, strides, type."""


def empty_tensors(
    shapes: Mapping[str, tuple[Sequence[int], torch.dtype]],
) -> dict[str, torch.Tensor]:
    """Allocate tensors of the given shapes and types in one buffer, without filling them.

    In a DataLoader worker the buffer is in shared memory.

    Raises:
        SharedMemoryError: shared memory is full.
    """
    starts, size = {}, 0
    for name, (shape, dtype) in shapes.items():
        starts[name] = size
        size += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT

    storage = torch.UntypedStorage(size) if get_worker_info() is None else _shared(size)
    tensors = {}
    for name, (shape, dtype) in shapes.items():
        offset = starts[name] // dtype.itemsize
        tensors[name] = torch.empty(0, dtype=dtype).set_(storage, offset, shape)  # pyright: ignore[reportCallIssue] - strides are optional

    return tensors


def _shared(size: int) -> torch.UntypedStorage:
    try:
        return torch.UntypedStorage._new_shared(size)
    except RuntimeError:
        if is_shared_memory_full(size):
            raise SharedMemoryError(NO_SHARED_MEMORY) from None
        raise


def to_buffers(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[list[torch.Tensor], dict[str, TensorPlace]]:
    """Return the buffers that hold the tensors, each buffer once, and the place of every tensor;
    nothing is copied.
    """
    buffers: dict[int, torch.Tensor] = {}
    places: dict[str, Any] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in buffers:
            buffers[storage.data_ptr()] = torch.empty(
                0, dtype=torch.uint8, device=tensor.device
            ).set_(storage)

        number = list(buffers).index(storage.data_ptr())
        places[name] = (
            number,
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        )

    return list(buffers.values()), places


def from_buffers(
    buffers: Sequence[torch.Tensor], places: Mapping[str, TensorPlace]
) -> dict[str, torch.Tensor]:
    """Return the tensors that `to_buffers` was called with; they share the memory of `buffers`."""
    return {
        name: torch.empty(0, dtype=dtype).set_(
            buffers[number].untyped_storage(), offset, shape, stride
        )
        for name, (number, offset, shape, stride, dtype) in places.items()
    }


def copied(
    tensors: Mapping[str, torch.Tensor], copy: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Copy tensors by `copy`: buffers of the host at once, unless the tensors are a small part of
    their buffers.
    """
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return {name: copy(tensor) for name, tensor in tensors.items()}

    buffers, places = to_buffers(tensors)
    bytes_of_tensors = sum(tensor.nbytes + ALIGNMENT for tensor in tensors.values())
    bytes_of_buffers = sum(buffer.nbytes for buffer in buffers)
    if 2 * bytes_of_tensors < bytes_of_buffers:  # a few rows of a batch: the rest is not copied
        return {name: copy(tensor) for name, tensor in tensors.items()}

    copied_buffers = [copy(buffer) for buffer in buffers]
    return {
        name: copied_buffers[number].view(dtype).as_strided(shape, stride, offset)
        for name, (number, offset, shape, stride, dtype) in places.items()
    }
