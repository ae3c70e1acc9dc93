"""The update of a step: who decides whether the weights change, and what is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils._python_dispatch import TorchDispatchMode

from wenet_uio.train.update import Reading, clip_and_apply

VALUES = {
    "clipping_scale": 2.0,
    "scalar_lr_scale": 0.1,
    "betas": (0.9, 0.98),
    "eps": 1e-8,
    "param_min_rms": 1e-5,
}
VALUES |= {
    "param_max_rms": 3.0,
    "scalar_max": 10.0,
    "size_update_period": 4,
    "clipping_update_period": 100,
}
KINDS = ("adam", "adam in fp16", "scaled_adam", "scaled_adam in fp16")


class Updates:
    """Updates one weight by given gradients."""

    def __init__(self, kind: str) -> None:
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        from wenet_uio.addons.optim.scaled_adam import ScaledAdam

        scaled = kind.startswith("scaled")
        adam: Any = (
            ScaledAdam([self.weight], lr=0.1, **VALUES)
            if scaled
            else torch.optim.Adam([self.weight], fused=True)
        )
        self.optimizer: torch.optim.Optimizer = adam
        self.scaler = GradScaler(
            "cpu", init_scale=1024.0, growth_interval=2, enabled="fp16" in kind
        )
        self.reads = 0

    def __call__(self, gradient: list[float]) -> list[float]:
        self.scaler.scale((self.weight * torch.tensor(gradient)).sum()).backward()

        def read(norm: torch.Tensor) -> Reading:
            self.reads += 1
            return Reading(torch.stack([torch.tensor(7.0), norm]))

        reading = clip_and_apply(self.optimizer, self.scaler, [self.weight], 100.0, read)
        self.weight.grad = None
        return reading.values


@pytest.mark.parametrize("kind", KINDS)
def test_the_results_are_read_once_with_the_norm_before_clipping(kind: str) -> None:
    updates = Updates(kind)
    assert updates([3.0, 4.0]) == [7.0, 5.0]
    assert updates([300.0, 400.0]) == [7.0, 500.0]
    assert updates.reads == 2
    assert updates.weight.tolist() != [1.0, 2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_not_finite_leaves_the_weights_and_lowers_the_scale(kind: str) -> None:
    updates = Updates(kind)
    assert updates([float("inf"), 1.0])[-1] == float("inf")
    assert updates.weight.tolist() == [1.0, 2.0]
    assert updates.scaler.get_scale() == (512.0 if "fp16" in kind else 1.0)
    assert updates([3.0, 4.0])[-1] == 5.0
    assert updates.weight.tolist() != [1.0, 2.0]


class Launches(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_clipping_and_adam_take_as_many_operations_for_many_weights_as_for_few() -> None:
    counts = []
    for number in (3, 60):
        weights = [nn.Parameter(torch.randn(4, 3)) for _ in range(number)]
        optimizer = torch.optim.Adam(weights, fused=True)
        for weight in weights:
            weight.grad = torch.randn(4, 3)
        before = [weight.detach().clone() for weight in weights]
        for _ in range(2):  # the first step makes the memory of Adam
            with Launches() as launches:
                clip_and_apply(
                    optimizer,
                    GradScaler("cpu", enabled=False),
                    weights,
                    0.1,
                    lambda norm: Reading(norm[None]),
                )
        counts.append(launches.count)
        norm = torch.stack(
            [weight.grad.norm() for weight in weights if weight.grad is not None]
        ).norm()
        assert float(norm) == pytest.approx(0.1, rel=1e-3)
        assert not any(
            torch.equal(weight, old) for weight, old in zip(weights, before, strict=True)
        )
    assert counts[0] == counts[1]
