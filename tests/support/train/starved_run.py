"""Run by test_memory.py: train while rank 1 runs out of memory in its backward passes of step 2.

starved_run.py engine starved killed

trains the runs `starved` and `killed` (which is killed as well), then the run `nothing`, which does
not run out of memory and begins with too_large.jsonl of the first run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.train.forked import attempt
from tests.support.train.starved import starve
from wenet_uio.train import engine_fsdp  # noqa: F401
from wenet_uio.train.engine import Engine

LAUNCH = Engine.launch


def disturb(what: str, rank: int) -> None:
    def launch(engine: Engine, micro_batches: Any, number: int, also: Any) -> Any:
        if number == 3 and what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if number != 2:
            return LAUNCH(engine, micro_batches, number, also)
        short = starve(engine, "backward")
        try:
            return LAUNCH(engine, micro_batches, number, also)
        finally:
            short.remove()

    if rank == 1 and what != "nothing":
        Engine.launch = launch


def starts(model_dir: str, engine: str, what: str) -> list[list[int]]:
    """Exit statuses of the ranks at each start, until the run is complete."""
    run = partial(attempt, f"--model_dir {model_dir} --train_engine {engine}", spare=True)
    statuses = [run(partial(disturb, what))]
    while any(statuses[-1]) and len(statuses) < 4:
        statuses.append(run(partial(disturb, what.replace("killed", "starved"))))
    return statuses


def main(engine: str, *happens: str) -> None:
    found = {what: starts(what, engine, what) for what in happens}
    Path("nothing").mkdir()
    for name in ("too_large.jsonl", "state_0.pt"):
        shutil.copy(f"{happens[0]}/{name}", "nothing")
    print(json.dumps({**found, "nothing": starts("nothing", engine, "nothing")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
