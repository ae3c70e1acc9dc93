"""Clip the gradient of a step and apply it; the device decides whether the weights change."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from wenet_uio.train.optimizer import whole


def clip_and_apply(
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler,
    weights: Sequence[nn.Parameter],
    largest_norm: float,
    refused: torch.Tensor,
) -> torch.Tensor:
    """Clip the gradients of `weights` to `largest_norm`, and change the weights.

    The weights stay as they are if the norm is not finite, or if `refused` is not 0. The fused kernels of Adam receive
    this decision as a tensor, so that the host does not wait for the device. For other optimizers, and with the scaler
    of fp16, the host reads the decision.

    Args:
        weights: those with a gradient.
        refused: (), above 0 if a rank ran out of memory, so that the step will be repeated.

    Returns:
        (), float64: the norm before clipping.
    """
    if scaler.is_enabled() and refused > 0:  # before the scaler counts this step
        return refused.to(torch.float64)
    scaler.unscale_(optimizer)
    own_norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    norm = whole(own_norm)
    skipped = ~torch.isfinite(norm) | (refused > 0)
    if optimizer.defaults.get("fused") and not scaler.is_enabled():
        nn.utils.clip_grads_with_norm_(weights, largest_norm, own_norm)
        vars(optimizer)["found_inf"] = skipped.to(torch.float32)  # torch's fused optimizers read it
        optimizer.step()
        del vars(optimizer)["found_inf"]
    elif not skipped:
        nn.utils.clip_grads_with_norm_(weights, largest_norm, own_norm)
        scaler.step(optimizer)
    scaler.update()
    return norm.to(torch.float64)
