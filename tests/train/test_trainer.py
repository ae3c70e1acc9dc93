from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from tests.support.train.tiny import CPU, ListLoader, TinyModel, tiny_batch, tiny_config
from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.train import trainer as training
from wenet_uio.train.checkpoint import RunFolder
from wenet_uio.train.distributed import SIGNALS, StopRequest
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.environment import feature_kernel
from wenet_uio.train.report import Reporter
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.watchdog import Watchdog


class Killed(BaseException):
    """Simulates a kill of the process."""


class DisturbedLoader(ListLoader):
    """Calls `disturb` before batch `at`, counted over the epochs of this process."""

    def __init__(self, batches: list[Batch], at: int, disturb: Callable[[], None]) -> None:
        super().__init__(batches)
        self.until = at
        self.disturb = disturb

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            if self.until == 0:
                self.disturb()
            self.until -= 1
            yield batch


def kill() -> None:
    raise Killed


def terminate(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


TRAIN = [tiny_batch([6, 5, 3], seed) for seed in range(5)]
CV = [tiny_batch([4, 2], seed) for seed in range(10, 13)]


def make_trainer(
    path: Path,
    train: ListLoader | None = None,
    cv: ListLoader | None = None,
    clock: Callable[[], float] | None = None,
    **keys: Any,
) -> Trainer:
    config = tiny_config(**keys)
    torch.manual_seed(7)
    engine = DdpEngine(TinyModel(dropout=0.3), config, CPU, seed=7)
    folder, reporter = RunFolder(path), Reporter(True, path / "tensorboard", config.max_epoch)
    stop = StopRequest()
    stop.listen()
    trainer = Trainer(
        config,
        engine,
        folder,
        train=train or ListLoader(TRAIN),
        cv=cv or ListLoader(CV),
        reporter=reporter,
        watchdog=Watchdog(CPU, 0),
        stop=stop,
        clock=clock,
    )
    state = folder.newest_state()
    if state is not None:
        trainer.load(state)
    return trainer


event_file_writer._global_uid = event_file_writer.AtomicCounter(10**6)
"""TensorBoard sorts the files of one second by this number, as text: 10 before 9."""


def series(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Points of TensorBoard, except measured times."""
    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    tags = [
        tag for tag in events.Tags()["scalars"] if not tag.endswith(("per_second", "data_wait"))
    ]
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in tags}


def same_weights(first: Path, second: Path) -> bool:
    one, two = torch.load(first), torch.load(second)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@contextmanager
def handler_of_sigterm() -> Iterator[None]:
    """Restore the handlers at the end."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _handler_of_sigterm() -> Iterator[None]:
    with handler_of_sigterm():
        yield


@pytest.fixture(autouse=True)
def _without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report takes longer than the training; that of the run `undisturbed` is written."""
    monkeypatch.setattr(training, "show_complete", lambda *_, **__: None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run, which tests read only."""
    path = tmp_path_factory.mktemp("runs")
    with handler_of_sigterm():
        assert make_trainer(path, save_interval=2).run()
    return path


@pytest.fixture
def completed(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return shutil.copytree(undisturbed, tmp_path / "completed", symlinks=True)


def test_a_run_leaves_the_files_that_its_users_know(undisturbed: Path) -> None:
    names = {path.name for path in undisturbed.iterdir()}
    epochs = {f"epoch_{epoch}.{suffix}" for epoch in range(3) for suffix in ("pt", "yaml")}
    others = {
        "train.yaml",
        "environment.yaml",
        "tensorboard",
        "report.html",
        "README.md",
        "running.lock",
    }
    assert names == {"init.pt", "final.pt", "state_14.pt", "state_15.pt", *others, *epochs}
    assert os.readlink(undisturbed / "final.pt") == "epoch_2.pt"
    record = yaml.safe_load((undisturbed / "epoch_2.yaml").read_text())
    assert (record["epoch"], record["step"], record["tag"]) == (2, 15, "epoch_2")
    assert record["loss_dict"].keys() == {"loss", "loss_att", "loss_ctc", "th_accuracy"}
    (start,) = yaml.safe_load((undisturbed / "environment.yaml").read_text())
    seconds = start["utterance_seconds"]
    assert 0 < seconds["median"] <= seconds["most"] <= seconds["longest"]


def test_tensorboard_has_train_points_every_log_interval_and_cv_points_every_epoch(
    undisturbed: Path,
) -> None:
    found = series(undisturbed)
    losses = {"loss", "loss_att", "loss_ctc", "th_accuracy", "padding"}
    assert found.keys() == {f"train/{name}" for name in losses | {"lr", "grad_norm"}} | {
        f"cv/{name}" for name in losses
    } | {f"data/{name}" for name in ("all", "read", "filtered", "bad")}
    assert [step for step, _ in found["train/loss"]] == [2, 4, 6, 8, 10, 12, 14]
    assert [step for step, _ in found["cv/loss"]] == [5, 10, 15]


@pytest.mark.parametrize("at", [0, 3, 4, 5, 14])
def test_a_killed_and_resumed_run_ends_as_an_undisturbed_one(
    at: int, undisturbed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "killed"
    with pytest.raises(Killed):
        make_trainer(path, DisturbedLoader(TRAIN, at, kill), save_interval=2).run()
    time.sleep(1)  # TensorBoard orders its files by the second of their beginning
    assert make_trainer(path, save_interval=2).run()
    assert same_weights(path / "epoch_2.pt", undisturbed / "epoch_2.pt")
    assert series(path) == series(undisturbed)


def test_a_run_killed_during_validation_resumes(undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "killed"
    with pytest.raises(Killed):
        make_trainer(path, cv=DisturbedLoader(CV, 4, kill), save_interval=2).run()
    assert make_trainer(path, save_interval=2).run()
    assert same_weights(path / "epoch_2.pt", undisturbed / "epoch_2.pt")


def test_weights_are_checked_once_before_the_first_state_and_once_at_the_end_of_each_epoch(
    tmp_path: Path,
) -> None:
    trainer = make_trainer(tmp_path, max_epoch=2)
    check, checked_after = trainer.engine.spoilt_weights, []

    def note() -> list[str]:
        checked_after.append(trainer.progress.step)
        return check()

    trainer.engine.spoilt_weights = note
    assert trainer.run()
    assert checked_after == [0, 5, 10]


@pytest.mark.parametrize("at", [0, 4, 7])
def test_sigterm_finishes_the_step_saves_and_ends_the_run(
    at: int, undisturbed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "terminated"
    trainer = make_trainer(path, DisturbedLoader(TRAIN, at, terminate))
    assert not trainer.run()
    assert trainer.progress.step == at + 1
    assert (path / f"state_{at + 1}.pt").exists()
    assert make_trainer(path).run()
    assert same_weights(path / "epoch_2.pt", undisturbed / "epoch_2.pt")


def test_sigusr1_saves_as_sigterm_does(
    undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "told"
    with caplog.at_level(logging.INFO):
        trainer = make_trainer(path, DisturbedLoader(TRAIN, 7, partial(terminate, signal.SIGUSR1)))
        assert not trainer.run()
    assert "SIGUSR1 received: state saved after step 8" in caplog.text
    assert make_trainer(path).run()
    assert same_weights(path / "epoch_2.pt", undisturbed / "epoch_2.pt")


def test_sigterm_ends_a_validation_at_once_and_the_next_start_repeats_it(
    undisturbed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "terminated"
    trainer = make_trainer(path, cv=DisturbedLoader(CV, 4, terminate), save_interval=2)
    assert not trainer.run()
    assert (trainer.progress.step, trainer.progress.trained) == (10, True)
    assert (path / "epoch_0.pt").exists()
    assert not (path / "epoch_1.pt").exists()
    time.sleep(1)
    assert make_trainer(path, save_interval=2).run()
    assert same_weights(path / "epoch_2.pt", undisturbed / "epoch_2.pt")
    assert series(path) == series(undisturbed)


def test_points_of_another_run_in_the_same_folder_are_left_alone(tmp_path: Path) -> None:
    make_trainer(tmp_path, max_epoch=1).run()
    other = tmp_path / "tensorboard/events.out.tfevents.1.host.1.0.other"
    other.write_bytes(b"points")
    with pytest.raises(Killed):
        make_trainer(tmp_path, DisturbedLoader(TRAIN, 3, kill), max_epoch=2).run()
    make_trainer(tmp_path, max_epoch=2).run()
    assert other.read_bytes() == b"points"


def test_a_complete_run_logs_that_and_does_not_train(
    completed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = (completed / "epoch_2.pt").stat().st_mtime_ns
    with caplog.at_level(logging.INFO):
        assert make_trainer(completed).run()
    assert "complete, max_epoch 3 is reached" in caplog.text
    assert (completed / "epoch_2.pt").stat().st_mtime_ns == before


def test_a_resumed_run_logs_the_changes_of_its_config(
    completed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        make_trainer(completed, max_epoch=4, save_interval=2, optim_conf={"lr": 0.02})
    changes = [record.getMessage() for record in caplog.records if "changed" in record.getMessage()]
    assert changes == [
        "changed since the run began: optim_conf.lr: 0.01 -> 0.02",
        "changed since the run began: max_epoch: 3 -> 4",
    ]


def test_a_resume_with_another_feature_kernel_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trainer(tmp_path, max_epoch=1).run()
    monkeypatch.setattr(training, "feature_kernel", lambda: "torch and numpy, another processor")
    with caplog.at_level(logging.INFO):
        for epochs in (2, 3):  # the state after two epochs is of the other machine
            make_trainer(tmp_path, max_epoch=epochs).run()
    [line] = [line for line in caplog.messages if line.startswith("features on a CPU")]
    assert line == (
        f"features on a CPU were computed by {feature_kernel()}, and now by torch and numpy, another "
        "processor: they differ by rounding, so the run does not repeat bit for bit"
    )


def test_accumulated_batches_do_not_leak_into_the_next_epoch(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, accum_grad=2, max_epoch=2, log_interval=1)
    trainer.run()
    assert trainer.progress.step == 6
    assert [step for step, _ in series(tmp_path)["cv/loss"]] == [3, 6]


def test_validation_loss_is_the_mean_over_the_utterances(tmp_path: Path) -> None:
    cv = [tiny_batch([4, 2, 2], 1), tiny_batch([], 2), tiny_batch([5], 3)]
    trainer = make_trainer(tmp_path, cv=ListLoader(cv), max_epoch=1)
    trainer.run()
    model = trainer.engine.model.eval()
    with torch.no_grad():
        losses = [
            float(model(b.feats, b.feats_lengths, b.target, b.target_lengths)["loss"])
            for b in (cv[0], cv[2])
        ]
    record = yaml.safe_load((tmp_path / "epoch_0.yaml").read_text())
    assert record["loss_dict"]["loss"] == pytest.approx((3 * losses[0] + losses[1]) / 4)


def test_samples_left_out_are_counted_by_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [tiny_batch([4], seed) for seed in range(3)]
    batches[0].skipped = (
        Skipped("a", "unreadable"),
        Skipped("b", "token_max_length", filtered=True),
    )
    batches[2].skipped = (Skipped("c", "unreadable"),)
    batches[0].planned, batches[2].planned = 3, 2
    with caplog.at_level(logging.INFO):
        make_trainer(tmp_path, ListLoader(batches), max_epoch=1).run()
    assert (
        "6 utterances: 3 read, 1 filtered (1 token_max_length), 2 bad (2 unreadable)" in caplog.text
    )
    counts = {"all": 6, "read": 3, "filtered": {"token_max_length": 1}, "bad": {"unreadable": 2}}
    assert yaml.safe_load((tmp_path / "epoch_0.yaml").read_text())["samples"] == counts
    points = series(tmp_path)
    assert points["data/bad"] == points["data/bad_unreadable"] == [(3, 2.0)]


def test_an_epoch_that_does_not_add_up_stops_the_run(tmp_path: Path) -> None:
    batches = [tiny_batch([4, 3], seed) for seed in range(3)]
    batches[1].planned = 3
    with pytest.raises(
        RuntimeError, match=r"do not add up, which is a bug .*'planned': 7, 'read': 6"
    ):
        make_trainer(tmp_path, ListLoader(batches), max_epoch=1).run()


def test_steps_without_a_finite_gradient_are_skipped_up_to_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [tiny_batch([4], seed) for seed in range(6)]
    for number in (1, 3, 4):
        batches[number].feats[0, 0, 0] = float("inf")
    trainer = make_trainer(
        tmp_path / "enough", ListLoader(batches), max_epoch=1, max_nonfinite_steps=2
    )
    trainer.run()
    assert trainer.progress.step == 6
    assert "step 4 skipped: its gradient is not finite (utterances: 3-0; all in" in caplog.text
    with pytest.raises(
        ValueError, match=r"step 5: .* after 1 steps in a row.*max_nonfinite_steps is 1"
    ):
        make_trainer(
            tmp_path / "too many", ListLoader(batches), max_epoch=1, max_nonfinite_steps=1
        ).run()


def test_epochs_without_a_lower_validation_loss_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"max_epoch": 9, "patience": 2, "optim_conf": {"lr": 1e-30}}
    with caplog.at_level(logging.INFO):
        assert make_trainer(tmp_path, **keys).run()
    assert sorted(path.name for path in tmp_path.glob("epoch_*.pt")) == [
        "epoch_0.pt",
        "epoch_1.pt",
        "epoch_2.pt",
    ]
    assert "no lower validation loss in 2 epochs" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert make_trainer(tmp_path, **keys).run()
    assert "complete, no lower validation loss" in caplog.text
