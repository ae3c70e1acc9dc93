"""Run by torchrun from test_memory.py: steps on two ranks, one of which runs out of memory.

starved.py cases.json result.pt      cases: [{"where": forward or backward, "before": successful steps before}, …]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from tests.support.train.ranks import LENGTHS, make_engine
from tests.support.train.tiny import part, tiny_batch
from wenet_uio.train import engines
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine

KEYS = {"grad_clip": 1000, "optim_conf": {"lr": 1e-12}, "model_conf": {"ctc_weight": 0.3}}
ROOM = 2
"""Utterances of the largest batch that fits."""
DEAL = [[[6], [0, 3, 4, 5]], [[1, 2]]]


class SmallBuckets(engines.DistributedDataParallel):
    """With many buckets, so that a backward pass is interrupted between two of them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, bucket_cap_mb=0.004, **options)


class Allocate(torch.autograd.Function):
    """Passes values on unchanged; runs out of memory in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient + torch.empty(1 << 46)


def starve(engine: Engine, where: str) -> RemovableHandle:
    """Let passes (`forward` or `backward`) with more than ROOM utterances fail, until the handle is
    removed.
    """

    def hook(_: Any, inputs: Any, output: Any) -> Any:
        if len(inputs[0]) <= ROOM:
            return output
        if where == "forward":
            torch.empty(1 << 46)
        return Allocate.apply(output[0]), output[1]

    return engine.model.encoder.register_forward_hook(hook)


def gradient_of(engine: Engine, batches: list[Any], case: dict[str, Any]) -> dict[str, Any]:
    """The gradient after `before` steps, and the number of buckets sent when the backward pass was
    interrupted.
    """
    for number in range(case["before"]):
        engine.step(batches, number + 1, {})
    if case["where"]:
        starve(engine, case["where"])
    gradient: dict[str, torch.Tensor] = {}
    engine.optimizer.register_step_pre_hook(
        lambda *_: gradient.update(
            (name, weight.grad.clone()) for name, weight in engine.model.named_parameters()
        )
    )
    sent = []
    if case["where"]:
        complete = engine.exchange.complete
        engine.exchange.complete = lambda device: (
            sent.append(len(engine.exchange._sent)),
            complete(device),
        )
    engine.step(batches, case["before"] + 1, {})
    engine.step(batches, case["before"] + 2, {})
    return {
        "gradient": gradient,
        "splits": [list(known) for known in engine.size_limit.too_large],
        "sent": sent,
    }


def main(cases_path: str, result: str) -> None:
    world = World.from_environment("cpu")
    world.join(None, 60)
    engines.DistributedDataParallel = SmallBuckets
    results = []
    for case in json.loads(Path(cases_path).read_text()):
        engine = make_engine({"engine": "torch_ddp", "small": True, "keys": KEYS}, world)
        batches = [part(tiny_batch(LENGTHS, seed=3, tokens=3), rows) for rows in DEAL[world.rank]]
        results.append(gradient_of(engine, batches, case))
        engine.disconnect()
    torch.save(results, f"{result}.{world.rank}")
    world.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
