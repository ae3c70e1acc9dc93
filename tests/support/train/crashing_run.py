"""Run by test_kills.py: train on two ranks with a data worker each, whose decoder crashes at marked
audio.

crashing_run.py FOLDER ...      trains in each folder
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.support.audio.crashing import crash_at_marked
from tests.support.train.forked import RANKS, attempt


def main(*folders: str) -> int:
    """Exit status: 0 if all ranks of all runs succeed."""
    ends = []
    for folder in folders:
        os.chdir(folder)
        ends += attempt(
            "--model_dir exp --num_workers 1", lambda rank: crash_at_marked(pytest.MonkeyPatch())
        )
    return int(ends != [0] * RANKS * len(folders))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
