"""How far are loss and gradient of the GPU from those of the CPU in fp32?"""

from __future__ import annotations

from typing import NamedTuple

import torch

from gpu_modes.recipes import (
    STREAMING,
    batch_of,
    config_of,
    dtype_of,
    engine_of,
    recipe,
    without_chance,
)
from gpu_modes.report import Report
from wenet_uio.dataset.types import Batch

CONFS = (STREAMING, "train_conformer", "train_transformer")
NEVER_CLIPPED = 1e9
COUNTED = 1e-3
"""Weights whose gradient has at least this share of the norm can be the worst."""


class Step(NamedTuple):
    """What a step computes."""

    loss: float
    gradient: dict[str, torch.Tensor]
    """Of each weight, float64 on the CPU."""


def run(report: Report) -> None:
    """Write a line for each model and arithmetic: relative differences of loss and gradient."""
    precisions = ("fp32", "tf32", "bf16") if report.on_gpu else ("fp32", "bf16")
    size = {"utterances": report.sized(6, 2), "seconds": report.sized(4.0, 1.0)}
    for conf in report.each([{"conf": name} for name in report.sized(CONFS, CONFS[:1])]):
        with report.named_failure(**conf):
            batch = batch_of(report, **size)
            expected = _step(report, conf["conf"], "fp32", torch.device("cpu"), batch)
            for arithmetic in precisions:
                with report.result(**conf, arithmetic=arithmetic, **size) as figures:
                    figures |= apart(
                        _step(report, conf["conf"], arithmetic, report.device, batch), expected
                    )


def apart(step: Step, expected: Step) -> dict[str, float | str]:
    """Return differences relative to what is expected: of the loss, of the gradient, and of the
    weight that is worst.
    """
    norms = {name: float(value.norm()) for name, value in expected.gradient.items()}
    differences = {
        name: float((step.gradient[name] - value).norm())
        for name, value in expected.gradient.items()
    }
    norm = sum(value**2 for value in norms.values()) ** 0.5
    worst = max(
        (name for name in norms if norms[name] >= COUNTED * norm),
        key=lambda name: differences[name] / norms[name],
    )

    return {
        "loss": step.loss,
        "loss_apart": abs(step.loss / expected.loss - 1),
        "gradient_apart": sum(value**2 for value in differences.values()) ** 0.5 / norm,
        "worst_weight": worst,
        "worst_apart": differences[worst] / norms[worst],
    }


def _step(report: Report, conf: str, arithmetic: str, device: torch.device, batch: Batch) -> Step:
    keys = without_chance(recipe(report, conf))
    config = config_of(report, keys, dtype=dtype_of(arithmetic), grad_clip=NEVER_CLIPPED)
    engine = engine_of(config, arithmetic, device)
    gradient: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        for name, weight in engine.model.named_parameters():
            if weight.grad is not None:
                gradient[name] = weight.grad.detach().cpu().double()

    engine.optimizer.register_step_pre_hook(keep)
    outcome = engine.step([batch], 1, {})
    return Step(outcome.sums["loss"] / outcome.sums["utterances"], gradient)
