"""Run train.py on two ranks, forked from this process, which has imported all modules already.

Each rank is a session with its data workers, so that all its processes can be killed at once, as if
a machine failed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import torch._dynamo
import torch.utils.tensorboard  # noqa: F401

from wenet_uio.base.cli import run
from wenet_uio.bin import train

COMMAND = "--config train.yaml --train_data train.list --cv_data cv.list --device cpu"
RANKS = 2
PATIENCE = 120
"""Seconds of a run; the ranks of a longer run are killed."""


def attempt(options: str, disturb: Callable[[int], None], *, spare: bool = False) -> list[int]:
    """Start a run once, after calling `disturb` on each rank; the exit statuses of the ranks.

    If a rank fails the others are killed; with `spare` they must notice the failure themselves.
    """
    time.sleep(1 - time.time() % 1)  # TensorBoard sorts its files by their start time in seconds
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [_start(rank, port, options, disturb) for rank in range(RANKS)]
    statuses: dict[int, int] = {}
    give_up, must_end = time.monotonic() + PATIENCE, False
    while len(statuses) < RANKS:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            statuses[ended] = status
        left = set(ranks) - set(statuses)
        if time.monotonic() > give_up and not must_end:
            print(
                f"ranks {sorted(left)} did not end within {PATIENCE} s; their stacks:",
                file=sys.stderr,
                flush=True,
            )
            for process in left:
                os.kill(process, signal.SIGUSR2)
            time.sleep(1)
            must_end = True
        must_end = must_end or (status != 0 and not spare)
        for process in left if must_end else ():
            with suppress(ProcessLookupError):  # it has not begun its session yet
                os.killpg(process, signal.SIGKILL)
        if not ended:
            time.sleep(0.01)
    return [os.waitstatus_to_exitcode(statuses[process]) for process in ranks]


def _start(rank: int, port: int, options: str, disturb: Callable[[int], None]) -> int:
    """Fork a rank and return its process id."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    faulthandler.register(signal.SIGUSR2)
    names = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": RANKS,
        "LOCAL_WORLD_SIZE": RANKS,
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
    disturb(rank)
    status = 1
    try:
        run(lambda: train.main([*COMMAND.split(), *options.split()]))
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        print(f"rank {rank}: {error!r}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(status)
