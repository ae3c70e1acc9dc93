"""Caches of streams that are encoded chunk by chunk."""

from __future__ import annotations

import torch

Caches = tuple[torch.Tensor, torch.Tensor]
"""att_cache and cnn_cache of a stream, see Encoder.forward_chunk."""


def frames_to_forget(seen: int, required_cache_size: int) -> int:
    """Return the number of the oldest of `seen` frames to drop before the next chunk; 0 if
    `required_cache_size` is negative.
    """
    return 0 if required_cache_size < 0 else max(seen - required_cache_size, 0)
