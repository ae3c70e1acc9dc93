"""Run by test_kills.py: trains with 2 ranks of 2 workers, again and again, killing it each time, then once to the end.

killed_run.py kills.json      kills: [[rank, event, number], …]: SIGKILL at the number-th event of that rank

Ranks are forked from this process, which has imported everything: they start in no time. Each is a session of its own
with its workers, and all of it is killed, as a machine that loses power would.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.utils.tensorboard

from wenet_uio.bin import train
from wenet_uio.dataset.dataset import BatchReader
from wenet_uio.train.engine import Engine
from wenet_uio.train.objective import Objective
from wenet_uio.train.report import Reporter
from wenet_uio.train.trainer import Trainer

COMMAND = "--config train.yaml --train_data train.list --cv_data cv.list --model_dir exp --device cpu --num_workers 2"
RANKS = 2


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_down(number: int, at_zero: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is `otherwise`, and the `number`-th time, from 1, `at_zero`."""
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
    "read": (BatchReader, "__getitem__", die),
}


def start(rank: int, port: int, kill: list[Any] | None) -> int:
    """Fork a rank; its process id."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
    if kill is not None and kill[0] == rank:
        owner, name, at_zero = EVENTS[kill[1]]
        setattr(owner, name, count_down(kill[2], at_zero, getattr(owner, name)))
    sys.argv = ["train.py", *COMMAND.split()]
    try:
        status = train.main()
    except BaseException as error:
        print(f"rank {rank}: {error!r}", file=sys.stderr)
        status = 1
    sys.stderr.flush()
    os._exit(status or 0)


def attempt(kill: list[Any] | None) -> bool:
    """One start of the run; whether it came to its end."""
    time.sleep(1 - time.time() % 1)  # TensorBoard orders its files by the second of their beginning
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [start(rank, port, kill) for rank in range(RANKS)]
    first, status = os.wait()
    if status:
        for process in ranks:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
    for process in ranks:
        if process != first:
            status |= os.waitpid(process, 0)[1]
    return status == 0


def main(path: str) -> None:
    ended = [attempt(kill) for kill in json.loads(Path(path).read_text())]
    print(json.dumps({"survived": sum(ended), "complete": attempt(None)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
