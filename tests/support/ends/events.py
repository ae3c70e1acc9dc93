"""The events of the matrix of ends: what goes wrong while a model is trained.

Each event happens to the batches of a step, at every start of a run in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from wenet_uio.dataset.types import Batch
from wenet_uio.train.engine import Engine

BAD_KEY = re.compile(r"3\b")
"""Utterances that are bad in training have a key that ends in 3."""


def spoilt(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return the batch with features that are not numbers in some rows."""
    feats = batch.feats.clone()
    feats[list(rows)] = torch.nan
    return replace(batch, feats=feats)


def whole(batch: Batch) -> Batch:
    return spoilt(batch, range(len(batch.feats)))


def at_steps(*numbers: int) -> Callable[[int, Batch], Batch]:
    return lambda number, batch: whole(batch) if number in numbers else batch


def bad_sample(_: int, batch: Batch) -> Batch:
    rows = [row for row, key in enumerate(batch.keys) if BAD_KEY.search(key)]
    return spoilt(batch, rows) if rows and len(batch.feats) == len(batch) else batch


SPOILS: dict[str, Callable[[int, Batch], Batch]] = {
    "a step without a finite gradient": at_steps(2),
    "a streak of such steps": at_steps(2, 3),
    "an epoch of such steps": at_steps(1, 2, 3, 4),
    "a sample that is bad in training only": bad_sample,
}
OUT_OF_MEMORY = "memory that runs out once"
NONE = "nothing"
EVENTS = (NONE, *SPOILS, OUT_OF_MEMORY)
STARVED_STEP = 2


def disturb(event: str) -> None:
    """Let the event happen to the training of this process."""
    launch = Engine.launch

    def spoiled_launch(engine: Engine, batches: Any, number: int, sums: Any) -> Any:
        if event in SPOILS:
            batches = [SPOILS[event](number, batch) for batch in batches]
        if event == OUT_OF_MEMORY and number == STARVED_STEP:
            run_out_once(engine)
        return launch(engine, batches, number, sums)

    setattr(Engine, "launch", spoiled_launch)  # noqa: B010


def run_out_once(engine: Engine) -> None:
    """Let the next pass of the encoder ask for more memory than any machine has."""

    def ask(*_: Any) -> None:
        hook.remove()
        torch.empty(1 << 46)

    hook = engine.model.encoder.register_forward_pre_hook(ask)
