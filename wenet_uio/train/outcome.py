"""Results of an optimizer step.

The numbers are on the device. The host may read them when it has launched the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


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
    """Sums over all ranks: the counts of metrics.count, losses times utterances, and the numbers of
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
