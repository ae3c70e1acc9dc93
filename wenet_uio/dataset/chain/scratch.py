"""Memory for intermediate results, which a thread keeps and uses again.

The C allocator returns large blocks to the system, which clears their pages for the next call. This
can take as long as the features themselves.
"""

from __future__ import annotations

import threading

import numpy as np
import torch

LARGEST_KEPT = 1 << 20
"""Numbers in a block that is kept: 4 MB. Longer ones are allocated for one call."""


class _Blocks(threading.local):
    """Blocks of this thread by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}


_blocks = _Blocks()


def scratch(name: str, like: torch.Tensor, size: int) -> torch.Tensor:
    """Return float32 (size,), not set, on the device of `like`.

    The next call with this name in this thread returns the same memory.
    """
    if like.device.type != "cpu" or size > LARGEST_KEPT:
        return like.new_empty(size, dtype=torch.float32)

    # Arrays of numpy: a tensor made in torch's inference mode could not be changed outside of it.
    # Memory of torch: it begins at a cache line.
    block = _blocks.by_name.get(name)
    if block is None or len(block) < size:
        block = _blocks.by_name[name] = torch.empty(size).numpy()
    return torch.from_numpy(block[:size])
