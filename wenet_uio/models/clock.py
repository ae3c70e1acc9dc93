"""Numbers that change while a model trains, as functions of the step; so a resumed run needs no
state of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Clock:
    """The step of the training, which the engine sets, and the speed of the schedules."""

    speed: float = 1.0
    """Steps of the schedules in an optimizer step."""
    step: int = 0
    """Number of the optimizer step."""


@torch.jit.ignore  # pyright: ignore[reportArgumentType] - else it tries in vain to compile this for each module
class Schedule:
    """Linear between (step, value) points, constant before the first and after the last."""

    def __init__(self, clock: Clock, *points: tuple[float, float]) -> None:
        self.clock = clock
        self.points = points

    def __call__(self) -> float:
        """Return the value at the step of the clock."""
        now = self.clock.step * self.clock.speed
        last_step, last_value = self.points[0]
        if now < last_step:
            return last_value

        for next_step, next_value in self.points[1:]:
            if now < next_step:
                share = (now - last_step) / (next_step - last_step)
                return last_value + share * (next_value - last_value)
            last_step, last_value = next_step, next_value

        return last_value


class Clocked(nn.Module):
    """A module with schedules."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock


class GradientGate(Clocked):
    """Lets no gradient through before a step; the values pass unchanged."""

    def __init__(self, opens_after: int) -> None:
        super().__init__(Clock())
        self.opens_after = opens_after

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return `values`, in the first steps with a gradient of 0."""
        if self.clock.step > self.opens_after:
            return values
        # A gradient of 0 and not none: DDP waits for one of every weight.
        return values.detach() + 0.0 * values


def set_clocks(model: nn.Module, step: int) -> None:
    """Begin optimizer step `step` (from 1) in all modules with schedules."""
    for module in model.modules():
        if isinstance(module, Clocked):
            module.clock.step = step
