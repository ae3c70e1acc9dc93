"""States that a thread writes while training goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.test_trainer import (
    TRAIN,
    DisturbedLoader,
    Killed,
    handler_of_sigterm,
    kill,
    make_trainer,
    same_weights,
    terminate,
)
from wenet_uio.train.checkpoint import RunFolder

SHORT = {"max_epoch": 1, "save_interval": 2, "report": False}
WRITE = RunFolder._write_state


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    with handler_of_sigterm():
        yield


def states(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*state_*"))


def write_late(monkeypatch: pytest.MonkeyPatch, wait: Any) -> None:
    """Call `wait` in the thread before it writes state 2."""

    def late(folder: RunFolder, step: int, state: dict[str, Any]) -> None:
        if step == 2:
            wait()
        WRITE(folder, step, state)

    monkeypatch.setattr(RunFolder, "_write_state", late)


def test_a_state_is_that_of_its_step_however_late_a_thread_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def wait() -> None:
        while trainer.progress.step < 4:
            time.sleep(0.001)
        seen.append(trainer.progress.step)

    write_late(monkeypatch, wait)
    trainer = make_trainer(tmp_path, DisturbedLoader(TRAIN, 4, kill), **SHORT)
    with pytest.raises(Killed):
        trainer.run()
    assert seen == [4]
    (tmp_path / "state_4.pt").unlink()
    monkeypatch.setattr(RunFolder, "_write_state", WRITE)
    trainer = make_trainer(tmp_path, **SHORT)
    assert trainer.progress.step == 2
    assert trainer.run()
    make_trainer(tmp_path / "undisturbed", max_epoch=1).run()
    assert same_weights(tmp_path / "epoch_0.pt", tmp_path / "undisturbed/epoch_0.pt")


@pytest.mark.parametrize(("disturb", "ends"), [(kill, []), (terminate, ["state_4.pt"])])
def test_the_end_of_a_run_waits_for_the_state_that_a_thread_writes(
    disturb: Any, ends: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_late(monkeypatch, lambda: time.sleep(0.2))
    trainer = make_trainer(tmp_path, DisturbedLoader(TRAIN, 3, disturb), **SHORT)
    if disturb is kill:
        with pytest.raises(Killed):
            trainer.run()
    else:
        assert not trainer.run()
    assert states(tmp_path) == [*([] if ends else ["state_0.pt"]), "state_2.pt", *ends]
