"""Run by torchrun from test_nonfinite.py: three steps, of which rank 1 spoils the second.

skipping_ranks.py engine dtype folder: each rank writes RANK.pt with its buffers, its part of the
weights and of the optimizer state before the second step and after it. Then the ranks validate:
alone with finite utterances, and with others on rank 1 that have no finite loss.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.support.train.tiny import FEATURES, small_config, tiny_batch
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engines import build_engine
from wenet_uio.train.optimizer import part_of_rank
from wenet_uio.train.validation import validate


def state_of(engine: Engine) -> dict[str, Any]:
    """Copies of what this rank holds."""
    model, memory = engine.model, engine.optimizer.state
    weights = dict(model.named_parameters())
    return {
        "buffers": {name: value.clone() for name, value in model.named_buffers()},
        "weights": {name: part_of_rank(w).detach().clone() for name, w in weights.items()},
        "optimizer": {
            name: {key: part_of_rank(value).clone() for key, value in memory[w].items()}
            for name, w in weights.items()
            if w in memory
        },
    }


def wide(batch: Batch) -> Batch:
    """The batch with twice as many features; see test_nonfinite.py."""
    return replace(batch, feats=batch.feats.repeat(1, 1, 2))


def main(kind: str, dtype: str, folder: str) -> None:
    world = World.from_environment("cpu")
    world.join(None, 60)
    shape = small_config().encoder_conf.model_dump(exclude_defaults=True)
    shape |= {"num_blocks": 1, "cnn_module_norm": "batch_norm"}
    config = small_config(
        train_engine=kind, dtype=dtype, encoder_conf=shape, input_dim=2 * FEATURES
    )
    torch.manual_seed(1)
    engine = build_engine(build_model(config), config, world, 1)
    engine.connect()
    if engine.scaler.is_enabled():
        engine.scaler.load_state_dict({**engine.scaler.state_dict(), "scale": 64.0})

    states, applied = [], []
    for step in range(1, 4):
        seeds = [10 * step + world.rank + 2 * number for number in range(2)]
        batches = [tiny_batch([60, 40], seed, tokens=3) for seed in seeds]
        batches = [wide(batch) for batch in batches]
        if step == 2 and world.rank == 1:
            batches[0].feats[0, 5, 1] = float("nan")
        applied.append(engine.step(batches, step, {}).applied)
        states.append(state_of(engine))

    losses = []
    for spoils in (False, True):
        cv = [wide(tiny_batch([50, 30], 90 + 10 * world.rank + n, tokens=3)) for n in range(2)]
        if world.rank == 1:
            cv[0].feats[1, 5, 1] = float("nan")
            if not spoils:
                cv[0] = cv[0].rows(slice(1))
        keys: list[str] = []
        sums = validate(engine, cv, lambda: False, nonfinite=keys)
        assert sums is not None
        losses.append({name: sums[name] for name in ("utterances", "tokens", "loss", "loss_ctc")})

    result = {"validated": losses, "left_out": keys}
    result |= {"before": states[0], "skipped": states[1], "applied": applied}
    result["scale"] = engine.scaler.get_scale()
    torch.save(result, Path(folder, f"{world.rank}.pt"))
    engine.disconnect()
    world.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
