"""What the ranks of a training read in each step."""

from __future__ import annotations

from itertools import chain
from typing import Any

from wenet_uio.config import Config
from wenet_uio.dataset import LoaderOptions, build_loader


def steps_of_ranks(
    config: Config,
    data: Any,
    data_type: str,
    ranks: int,
    epochs: int = 1,
    tokenizer: Any = None,
    **options: Any,
) -> list[list[list[str]]]:
    """Return the steps of some epochs, equally many on every rank: for each the batches of all
    ranks, each a list of keys.
    """
    of_ranks = []
    for rank in range(ranks):
        of_rank = LoaderOptions(rank=rank, world_size=ranks, empty_batches=True, **options)
        loader = build_loader(data, data_type, config, tokenizer, training=True, options=of_rank)
        steps, batches = [], []
        for batch in (batch for _ in range(epochs) for batch in loader):
            if len(batch):
                batches.append([key.rpartition("/")[2] for key in batch.keys])
            if batch.closes_step:
                steps.append(batches)
                batches = []
        of_ranks.append(steps)

    assert len({len(steps) for steps in of_ranks}) == 1
    return [list(chain(*step)) for step in zip(*of_ranks, strict=True)]
