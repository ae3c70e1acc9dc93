from __future__ import annotations

import logging
import time

import pytest

from tests.support.train.tiny import CPU
from wenet_uio.train.watchdog import Post, Watchdog, describe_waiting


def post(place: int, doing: str) -> Post:
    return Post(place, doing, f"process {place}", f"stack of {doing}")


def test_the_rank_that_is_behind_is_named_with_its_stack() -> None:
    report = describe_waiting(
        60, {0: post(8, "step 4"), 1: post(7, "reading"), 2: post(8, "step 4")}, 3
    )
    assert report.splitlines() == [
        "no progress for 60 s",
        "rank 1 (process 7) is at: reading, others at: step 4; stack:",
        "stack of reading",
    ]


def test_a_rank_that_does_not_answer_is_named() -> None:
    report = describe_waiting(60, {0: post(8, "step 4"), 2: post(8, "step 4")}, 3)
    assert report.splitlines()[1:] == ["rank 1 does not answer: its process is stopped or dead"]


def test_ranks_at_the_same_place_are_all_reported() -> None:
    report = describe_waiting(60, {0: post(8, "step 4"), 1: post(8, "step 4")}, 2)
    assert report.count("stack of step 4") == 2


def test_a_stall_is_reported_once_and_progress_is_not(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(CPU, 0.2)
    watchdog.start()
    watchdog.beat("step 1")
    give_up = time.monotonic() + 30
    while not caplog.records and time.monotonic() < give_up:
        time.sleep(0.05)
    time.sleep(0.5)
    watchdog.stop()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "is at: step 1; stack:" in record.getMessage()
    assert "test_a_stall_is_reported_once" in record.getMessage()
