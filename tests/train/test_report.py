from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from wenet_uio.dataset.ledger import Account
from wenet_uio.train.observation import Observation
from wenet_uio.train.report import Reporter

SCALARS = {
    "loss": 2.5,
    "lr": 0.001,
    "audio_seconds_per_second": 80.0,
    "data_wait": 0.25,
    "th_accuracy": 0.5,
}


def report(reporter: Reporter) -> None:
    """An epoch of four steps; an earlier start of the run made two of them."""
    reporter.open(3, None)
    reporter.begin_epoch(epoch=1, done=2, steps=4)
    reporter.step()
    reporter.interval(3, SCALARS, 59)
    reporter.step()
    reporter.end_epoch(
        4,
        SCALARS,
        {**SCALARS, "loss": 2.0},
        Account(20, 16, {"max_length": 1}, {"unreadable": 3}),
        {40: 3, 43: 1},
    )
    reporter.close()


def test_without_a_terminal_each_interval_has_a_line_and_each_epoch_two(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with caplog.at_level(logging.INFO):
        report(Reporter(True, tmp_path, max_epoch=5))
    interval, epoch, account = (
        record.getMessage() for record in caplog.records if record.name == "wenet_uio.train.report"
    )
    brief = "train loss 2.5, lr 0.001, 80 audio s/s, data wait 25%"
    assert interval.startswith(f"epoch 1/4: step 3/4, {brief}, ")
    assert interval.endswith(" to go")
    assert epoch == f"epoch 1/4: {brief}, cv loss 2, cv accuracy 0.500"
    assert (
        account
        == "epoch 1/4: 20 utterances: 16 read, 1 filtered (1 max_length), 3 bad (3 unreadable)"
    )


def test_on_a_terminal_there_is_a_bar_and_each_epoch_has_two_lines(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with caplog.at_level(logging.INFO):
        report(Reporter(True, tmp_path, max_epoch=5))
    assert "epoch 1/4" in capsys.readouterr().err
    assert (
        len([record for record in caplog.records if record.name == "wenet_uio.train.report"]) == 2
    )


def test_a_disabled_reporter_writes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        report(Reporter(False, tmp_path / "tensorboard", max_epoch=5))
    assert not caplog.records
    assert not (tmp_path / "tensorboard").exists()


def test_samples_beyond_full_scale_are_clipped_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lossy formats decode to such samples; TensorBoard would print a line that names nothing."""
    reporter = Reporter(True, tmp_path, max_epoch=1)
    reporter.open(0, None)
    loud = np.array([1.5, -1.5, 0.5], np.float32)
    reporter.write_observation(1, Observation("a", "one", {}, None, ()), (loud, 16000))
    reporter.close()
    assert capsys.readouterr() == ("", "")
