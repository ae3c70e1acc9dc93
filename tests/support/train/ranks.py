"""Run by torchrun from test_engines.py: one step and one validation for each deal of the data.

ranks.py job.json result.pt

A job: `engine`, `small` (a small conformer, or TinyModel), `keys` of its config, `deals`, each a
list of micro-batches (rows of the batch) for every rank, and optionally the `state` from which to
continue.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.support.train.tiny import (
    TinyModel,
    part,
    small_config,
    tiny_batch,
    tiny_config,
    two_views,
)
from wenet_uio.config.train import ModelAvgConf
from wenet_uio.models import build_model
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engines import build_engine
from wenet_uio.train.optimizer import complete_tensor
from wenet_uio.train.running_average import RunningAverage
from wenet_uio.train.validation import validate

LENGTHS = (90, 70, 50, 50, 40, 20, 10)


def make_engine(job: dict[str, Any], world: World) -> Engine:
    keys = {"train_engine": job["engine"], **job["keys"]}
    config = small_config(**keys) if job["small"] else tiny_config(**keys)
    torch.manual_seed(1)
    model = build_model(config) if job["small"] else TinyModel()
    if config.ctc_texts:
        model.ctc.use_only((1, 2, 3))  # an utterance with another unit has no loss of CTC
    engine = build_engine(model, config, world, 1)
    if "state" in job:
        engine.load_state_dict(torch.load(job["state"]))
    engine.connect()
    # The first scale of torch needs some steps until gradients are finite
    if engine.scaler.is_enabled():
        engine.scaler.load_state_dict({**engine.scaler.state_dict(), "scale": 256.0})
    return engine


def run(engine: Engine, deal: list[list[list[int]]]) -> dict[str, Any]:
    """Results of a step and a validation on a batch whose rows are dealt to the ranks."""
    whole_batch = tiny_batch(LENGTHS, seed=3, tokens=3)
    if engine.config.cr_loss_scale:
        whole_batch = two_views(whole_batch)
    mine = [part(whole_batch, rows) for rows in deal[engine.world.rank]]
    for batch in mine[:-1]:
        batch.closes_step = False
    validated = validate(
        engine, Once([replace(batch, other_feats=None) for batch in mine]), lambda: False
    )
    gradient = {}

    def remember(*_: object) -> None:
        gradient.update(
            (n, complete_tensor(w.grad).clone())
            for n, w in engine.model.named_parameters()
            if w.grad is not None
        )

    if engine.config.train_engine != "deepspeed":  # it has only flat shares of gradients
        engine.optimizer.register_step_pre_hook(remember)
    outcome = engine.step(mine, 1, {"wait": 1.0})
    average = RunningAverage(ModelAvgConf())
    weights = engine.weights()
    average.add(weights)
    state = engine.state_dict()
    held = sum(value.numel() for value in weights.values()) + sum(
        map(len, (state["model"], state["optimizer"]))
    )
    return {
        "average": average.weights(weights),
        "held": engine.world.gather(held),
        "gradient": gradient,
        "grad_norm": outcome.grad_norm,
        "state": state,
        "sums": outcome.sums,
        "validated": validated,
    }


class Once(list):
    """Micro-batches of one step."""

    def __len__(self) -> int:
        return 1


def main(job_path: str, result: str) -> None:
    job = json.loads(Path(job_path).read_text())
    world = World.from_environment("cpu")
    world.join(None, 60)
    results = []
    for deal in job["deals"]:
        engine = make_engine(job, world)
        results.append(run(engine, deal))
        engine.disconnect()
    if world.rank == 0:
        torch.save(results, result)
    world.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
