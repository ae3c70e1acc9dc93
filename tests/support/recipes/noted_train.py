"""Run train.py, note the utterances of each step in steps.jsonl, and perhaps stop the run.

noted_train.py STOP OPTION…     STOP: none, or SIGTERM:6 as step 6 begins, to the last rank
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.ends.disturbed_train import stop_at
from wenet_uio.base.cli import run
from wenet_uio.bin import train
from wenet_uio.train.engine import Engine


def note_steps() -> None:
    """Append a line to steps.jsonl for each step of this rank: its number, the rank, the keys."""
    launch = Engine.launch

    def noted_launch(engine: Engine, batches: Any, number: int, sums: Any) -> Any:
        keys = [key.rpartition("/")[2] for batch in batches for key in batch.keys]
        with open("steps.jsonl", "a") as file:
            file.write(json.dumps([number, engine.world.rank, keys]) + "\n")
        return launch(engine, batches, number, sums)

    setattr(Engine, "launch", noted_launch)  # noqa: B010


if __name__ == "__main__":
    note_steps()
    signal_name, _, step = sys.argv.pop(1).partition(":")
    if step:
        stop_at(signal_name, int(step))
    run(train.main)
