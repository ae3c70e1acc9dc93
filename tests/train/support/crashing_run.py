"""Run by test_kills.py: train on two ranks with a data worker each, whose decoder crashes at marked audio."""

from __future__ import annotations

import sys

import pytest

from tests.audio.support.crashing import crash_at_marked
from tests.train.support.forked import RANKS, attempt


def main() -> int:
    ends = attempt("--model_dir exp --num_workers 1", lambda rank: crash_at_marked(pytest.MonkeyPatch()))
    return int(ends != [0] * RANKS)


if __name__ == "__main__":
    sys.exit(main())
