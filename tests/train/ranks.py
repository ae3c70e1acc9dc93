"""Run by torchrun from test_engine.py: one step and one validation of TinyModel, the data dealt to the ranks as told.

ranks.py '[[[0,1],[2]], [[3]]]' result.pt     rank 0 has two micro-batches, rank 1 one
"""

from __future__ import annotations

import json
import sys

import torch

from tests.train.tiny import TinyModel, part, tiny_batch, tiny_config
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import DdpEngine

LENGTHS = (9, 7, 5, 5, 4, 2, 1)


def main(deal: str, result: str) -> None:
    world = World.from_environment("cpu")
    world.join(None, 60)
    torch.manual_seed(1)
    engine = DdpEngine(TinyModel(), tiny_config(grad_clip=1000), world, seed=1)
    engine.connect()
    whole = tiny_batch(LENGTHS, seed=3)
    mine = [part(whole, rows) for rows in json.loads(deal)[world.rank]]
    validated = engine.validate(mine)
    gradient = {}

    def remember(*_: object) -> None:
        gradient.update((name, weight.grad.clone()) for name, weight in engine.model.named_parameters())

    engine.optimizer.register_step_pre_hook(remember)
    outcome = engine.step(mine, 1, {"wait": 1.0})
    if world.rank == 0:
        torch.save({"gradient": gradient, "sums": outcome.sums, "validated": validated}, result)
    engine.disconnect()
    world.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
