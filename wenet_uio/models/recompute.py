"""Gradient checkpointing: less memory in training for more time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recomputed(layer: Callable[..., Any], *inputs: Any) -> Any:
    """Return `layer(*inputs)`; the backward pass computes its activations again instead of storing
    them.

    Nothing is prepared for a backward pass that a frozen layer on frozen inputs does not have.
    """
    if not any(map(_needs_gradient, (layer, *inputs))):
        return layer(*inputs)
    return checkpoint(layer, *inputs, use_reentrant=False)


def _needs_gradient(part: Any) -> bool:
    """Tell whether a module, a tensor or another argument leads to weights that are trained."""
    if isinstance(part, nn.Module):
        return any(weight.requires_grad for weight in part.parameters())
    return isinstance(part, torch.Tensor) and part.requires_grad
