"""An accelerator's results are read a step late. The run is the same, in its files, after kills and
after a SIGTERM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.train.tiny import ListLoader, tiny_batch
from tests.train.test_trainer import (  # the fixtures of this module, too
    TRAIN,
    DisturbedLoader,
    Killed,
    _handler_of_sigterm,  # noqa: F401
    _without_report,  # noqa: F401
    kill,
    make_trainer,
    same_weights,
    series,
    terminate,
    undisturbed,  # noqa: F401
)
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.update import LaunchedStep


def late_trainer(*arguments: Any, **keys: Any) -> Trainer:
    trainer = make_trainer(*arguments, **keys)
    assert trainer.most_unread == 0  # on a CPU
    trainer.most_unread = 1
    return trainer


def assert_same_run(path: Path, expected: Path) -> None:
    assert series(path) == series(expected)
    for name in ("epoch_0.pt", "epoch_1.pt", "final.pt"):
        assert same_weights(path / name, expected / name)
    ours, theirs = (torch.load(each / "state_15.pt")["progress"] for each in (path, expected))
    for progress in (ours, theirs):
        progress.pop("timing")
        for sums in (progress["interval"], progress["total"]):
            for name in ("elapsed", "wait"):
                sums.pop(name, None)
    assert ours == theirs


def test_a_step_is_launched_before_the_result_of_the_one_before_is_read(
    undisturbed: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer, events = late_trainer(tmp_path, save_interval=2), []
    launch, read = trainer.engine.launch, LaunchedStep.outcome
    monkeypatch.setattr(
        trainer.engine,
        "launch",
        lambda batches, number, also: (events.append(number), launch(batches, number, also))[1],
    )
    monkeypatch.setattr(
        LaunchedStep, "outcome", lambda step: (events.append(-step.number), read(step))[1]
    )
    assert trainer.run()
    # A state has the results of all its steps, and so has the end of an epoch (every fifth step).
    assert events[:14] == [1, 2, -1, -2, 3, 4, -3, -4, 5, -5, 6, -6, 7, 8]
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize("at", [3, 4, 5, 9])
def test_a_killed_run_resumes_as_if_undisturbed(at: int, undisturbed: Path, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(Killed):
        late_trainer(tmp_path, DisturbedLoader(TRAIN, at, kill), save_interval=2).run()
    assert late_trainer(tmp_path, save_interval=2).run()
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_sigterm_saves_at_most_one_step_later(at: int, undisturbed: Path, tmp_path: Path) -> None:  # noqa: F811
    trainer = late_trainer(tmp_path, DisturbedLoader(TRAIN, at, terminate), save_interval=100)
    assert not trainer.run()
    assert trainer.progress.step == min(at + 2, 5)
    assert not trainer.launched
    assert late_trainer(tmp_path, save_interval=100).run()
    assert series(tmp_path) == series(undisturbed)
    assert same_weights(tmp_path / "final.pt", undisturbed / "final.pt")


def test_a_step_without_a_finite_gradient_is_named_by_its_own_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [tiny_batch([6, 5], seed) for seed in range(5)]
    batches[1].feats[0, 0, 0] = float("inf")
    assert late_trainer(tmp_path, ListLoader(batches), max_epoch=1).run()
    assert "step 2 skipped: its gradient is not finite (utterances: 1-0 1-1; all in" in caplog.text
