"""Gradient checkpointing: less memory in training for more time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint


def recomputed(layer: Callable[..., Any], *inputs: Any) -> Any:
    """Return `layer(*inputs)`; the backward pass computes its activations again instead of storing
    them.
    """
    return checkpoint(layer, *inputs, use_reentrant=False)
