"""Run train.py, and SIGKILL it at an update of the weights.

killed_once.py NUMBER OPTION…
"""

from __future__ import annotations

import sys

from tests.support.train.killed_run import EVENTS, count_down
from wenet_uio.base.cli import run
from wenet_uio.bin import train

if __name__ == "__main__":
    owner, name, die = EVENTS["update"]
    setattr(owner, name, count_down(int(sys.argv.pop(1)), die, getattr(owner, name)))
    run(train.main)
