"""Clip the gradient of a step and apply it; the device decides whether the weights change.

The results of the step are numbers on the device. The host may read them when it has launched the
next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from wenet_uio.train.optimizer import complete_tensor


class Reading:
    """Numbers on their way from the device to the host."""

    def __init__(self, numbers: torch.Tensor) -> None:
        """Start to copy `numbers` (N,); the host does not wait."""
        self._numbers = numbers
        self._copied = None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    @cached_property
    def values(self) -> list[float]:
        """The numbers. The host waits until the device has computed them."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._numbers.tolist()

    @property
    def norm(self) -> float:
        """The last number: the norm of the gradient before clipping."""
        return self.values[-1]


@dataclass(frozen=True)
class StepOutcome:
    """Result of one optimizer step; equal on every rank."""

    number: int
    """That of the step, from 1."""
    sums: dict[str, float]
    """Sums over all ranks: the counts of metrics.count_batches, losses times utterances, and the numbers of
    the caller."""
    grad_norm: float
    """Norm of the gradient before clipping."""
    lrs: list[float]
    """Learning rate of each group of weights; the last group has all weights without a rate of
    their own."""
    applied: bool
    """False if the gradient was not finite; weights and statistics are then unchanged."""
    spoilt_weights: bool
    """True if weights were not finite before the step."""
    spoilt_statistics: bool
    """True if the step was applied, and statistics of a rank are not finite since."""


@dataclass(frozen=True)
class LaunchedStep:
    """A step that the host has started."""

    number: int
    reading: Reading
    """The sums, two numbers that are not 0 if weights and statistics are spoilt, and the norm of the
    gradient."""
    names: Sequence[str]
    """Names of the sums."""
    lrs: list[float]
    per_utterance: Callable[[dict[str, float]], dict[str, float]]
    """Scales the sums, see Engine.per_utterance."""

    def outcome(self) -> StepOutcome:
        """Return the result. The host waits until the device has computed it."""
        *sums, weights, statistics, _ = self.reading.values
        scaled = self.per_utterance(dict(zip(self.names, sums, strict=True)))
        applied = math.isfinite(self.reading.norm)
        return StepOutcome(
            self.number,
            scaled,
            self.reading.norm,
            self.lrs,
            applied=applied,
            spoilt_weights=weights > 0,
            spoilt_statistics=applied and statistics > 0,
        )


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
    norm = complete_tensor(shared_norm)

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
