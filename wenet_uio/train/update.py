"""Clip the gradient of a step and apply it; the device decides whether the weights change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from wenet_uio.train.optimizer import whole

Read = Callable[[torch.Tensor], list[float]]
"""Norm () of the gradient on the device -> results of the step on the host, of which the last two are the number of
ranks that ran out of memory, and this norm. The host waits for the device."""


def clip_and_apply(
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler,
    weights: Sequence[nn.Parameter],
    largest_norm: float,
    refused: torch.Tensor,
    read: Read,
) -> list[float]:
    """Clip the gradients of `weights` to `largest_norm`, change the weights, and read the results of the step.

    The weights stay as they are if the norm is not finite, or if `refused` is not 0. The fused kernels of Adam receive
    this decision as a tensor, and the host reads the results after it has started them. For other optimizers, and with
    the scaler of fp16, the host reads the results first, and decides.

    Args:
        weights: those with a gradient.
        refused: (), above 0 if a rank ran out of memory, so that the step will be repeated.

    Returns:
        The results, with the norm before clipping.
    """
    scaler.unscale_(optimizer)
    own_norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    norm = whole(own_norm)
    if optimizer.defaults.get("fused") and not scaler.is_enabled():
        skipped = ~torch.isfinite(norm) | (refused > 0)
        nn.utils.clip_grads_with_norm_(weights, largest_norm, own_norm)
        vars(optimizer)["found_inf"] = skipped.to(torch.float32)  # torch's fused optimizers read it
        optimizer.step()
        del vars(optimizer)["found_inf"]
        return read(norm)
    *_, refusals, norm_on_host = results = read(norm)
    if refusals:  # the scaler does not count this step
        scaler.update(scaler.get_scale())
        return results
    if math.isfinite(norm_on_host):
        nn.utils.clip_grads_with_norm_(weights, largest_norm, own_norm)
        optimizer.step()
    scaler.update()
    return results
