"""Run train.py with an event, and perhaps stop it.

disturbed_train.py EVENT STOP OPTION…     STOP: none, or SIGTERM:6, SIGKILL:6 as step 6 begins

Of several ranks, the last one gets the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tests.support.ends.events import disturb
from wenet_uio.base.cli import run
from wenet_uio.bin import train
from wenet_uio.train.engine import Engine


def stop_at(name: str, step: int) -> None:
    """Send this process the signal `name` when `step` begins."""
    launch = Engine.launch

    def stopped_launch(engine: Engine, batches: Any, number: int, sums: Any) -> Any:
        if number == step and engine.world.rank == engine.world.size - 1:
            os.kill(os.getpid(), signal.Signals[name])
        return launch(engine, batches, number, sums)

    setattr(Engine, "launch", stopped_launch)  # noqa: B010


if __name__ == "__main__":
    disturb(sys.argv.pop(1))
    signal_name, _, step = sys.argv.pop(1).partition(":")
    if step:
        stop_at(signal_name, int(step))
    run(train.main)
