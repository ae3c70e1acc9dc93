"""Run by tests of kills: start training with 2 ranks of 2 workers, kill it each time, then train to
the end.

killed_run.py kills.json [OPTION…]     kills: [[rank, event, number], …]: SIGKILL at the number-th event of that rank
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.support.train.forked import RANKS, attempt
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.train.engine import Engine
from wenet_uio.train.objective import Objective
from wenet_uio.train.report import Reporter
from wenet_uio.train.trainer import Trainer


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_down(
    number: int, at_zero: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that calls `otherwise`, but `at_zero` at call `number` (from 1)."""
    left = number

    def function(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        return (otherwise if left else at_zero)(*arguments, **options)

    return function


def save_half(content: Any, file: Any) -> None:
    whole = io.BytesIO()
    SAVE(content, whole)
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()
    die()


SAVE = torch.save
EVENTS = {
    "forward": (Objective, "forward", die),
    "backward": (Engine, "backward", die),
    "update": (Engine, "update", die),
    "validation": (Trainer, "_asked_in_validation", die),
    "write": (torch, "save", save_half),
    "rename": (os, "replace", die),
    "report": (Reporter, "interval", die),
    "pictures": (Reporter, "write_observation", die),
    "read": (BatchReader, "__getitem__", die),
}


def disturb(kill: list[Any] | None, rank: int) -> None:
    if kill is not None and kill[0] == rank:
        owner, name, at_zero = EVENTS[kill[1]]
        setattr(owner, name, count_down(kill[2], at_zero, getattr(owner, name)))


def main(path: str, *options: str) -> None:
    kills = [*json.loads(Path(path).read_text()), None]
    command = " ".join(["--model_dir exp --num_workers 2", *options])
    ended = [attempt(command, partial(disturb, kill)) == [0] * RANKS for kill in kills]
    print(json.dumps({"survived": sum(ended[:-1]), "complete": ended[-1]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
