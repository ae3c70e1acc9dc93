"""Clip the gradient of a step and apply it; the device decides whether the weights change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from wenet_uio.train.optimizer import whole
from wenet_uio.train.outcome import Reading

ReadingOf = Callable[[torch.Tensor], Reading]
"""Norm () of the gradient on the device -> the results of the step, of which the last one is this
norm."""


def clip_and_apply(
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler,
    weights: Sequence[nn.Parameter],
    largest_norm: float,
    reading_of: ReadingOf,
) -> Reading:
    """Clip the gradients of `weights` to `largest_norm`; change the weights if the norm is finite.

    The fused kernels of Adam receive this decision as a tensor, so that the host does not wait. For
    other optimizers, and with the scaler of fp16, the host waits for the norm, and decides.

    Args:
        weights: those with a gradient.

    Returns:
        The results, with the norm before clipping.
    """
    scaler.unscale_(optimizer)
    grads = [weight.grad for weight in weights if weight.grad is not None]
    shared_norm = nn.utils.get_total_norm(grads)  # with FSDP, each rank holds a part of it
    norm = whole(shared_norm)

    if optimizer.defaults.get("fused") and not scaler.is_enabled():
        nn.utils.clip_grads_with_norm_(weights, largest_norm, shared_norm)
        # torch's fused optimizers read this attribute, as GradScaler uses it.
        vars(optimizer)["found_inf"] = (~torch.isfinite(norm)).to(torch.float32)
        optimizer.step()
        del vars(optimizer)["found_inf"]
        return reading_of(norm)

    reading = reading_of(norm)
    if math.isfinite(reading.norm):  # the host waits here
        nn.utils.clip_grads_with_norm_(weights, largest_norm, shared_norm)
        optimizer.step()

    scaler.update()
    return reading
