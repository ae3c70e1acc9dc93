"""Runs with a budget of time: they end with it, and so do their learning rates."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.train.tiny import ListLoader, tiny_batch, tiny_config
from tests.support.train.training_corpus import write_corpus
from tests.train.test_trainer import CV, Killed, handler_of_sigterm, make_trainer
from wenet_uio.config import ConfigError
from wenet_uio.train import trainer as training
from wenet_uio.train.averaging import choose_epochs
from wenet_uio.train.timing import Place, Timing, schedule_steps
from wenet_uio.train.trainer import Trainer

ROOT = Path(__file__).parents[2]
HOUR = 3600.0
COSINE = {"scheduler": "WarmupCosine", "scheduler_conf": {"warmup_steps": 10, "max_steps": 10**6}}


@dataclass
class Simulated:
    """A run whose steps and validations take given times; the clock is a number."""

    config: Any
    step_seconds: Callable[[int], float]
    epoch_steps: int
    cv_steps: int
    unread: int = 0
    """Steps that are launched before the result of a step is read, as on an accelerator."""
    timing: Timing = field(default_factory=Timing)
    clock: float = 0.0
    step: int = 0
    epoch: int = 0
    epoch_step: int = 0
    places: list[float] = field(default_factory=list)
    """Place on the schedule of each step."""

    def place(self) -> Place:
        later = max(0, self.config.max_epoch - self.epoch - 1)
        rest = self.epoch_steps - self.epoch_step
        return Place(self.step, rest, self.epoch_steps, later, self.cv_steps)

    def start(self, seconds: float) -> None:
        """Begin, or begin again, with what a state keeps."""
        self.timing = Timing.from_state_dict(self.timing.state_dict())
        self.clock += seconds
        self.timing.begin(self.clock, self.step + 1)
        self.timing.extend(self.config, self.place())

    def train(self, until: float = float("inf")) -> None:
        """Take steps to the end of the run, or until a time at which it is stopped."""
        launched: list[tuple[int, float]] = []
        while self.epoch < self.config.max_epoch and not self.timing.is_over(self.config):
            self.timing.advance(self.config, self.place())
            launched.append((self.step + 1, self.clock))
            self.places.append(self.step + 1 + self.timing.ahead)
            self.clock += self.step_seconds(self.step)
            self.step += 1
            self.epoch_step += 1
            while len(launched) > self.unread:
                self.timing.begin_step(*launched.pop(0))

            if self.clock > until:
                return
            if self.epoch_step == self.epoch_steps:
                launched = self._read(launched)
                self._validate()
                self.epoch, self.epoch_step = self.epoch + 1, 0
                self.timing.end_epoch(self.clock, self.step + 1)
                if self.timing.is_up(self.config, self.place()):
                    self.timing.ended_by = self.config.max_hours
            elif self.timing.is_up(self.config, self.place()):
                launched = self._read(launched)
                self.timing.ended_by = self.config.max_hours
                self._validate()

    def _validate(self) -> None:
        self.clock += 5 + 0.35 * self.cv_steps * self.step_seconds(self.step)

    def _read(self, launched: list[tuple[int, float]]) -> list[tuple[int, float]]:
        for number, clock in launched:
            self.timing.begin_step(number, clock)
        return []


def steady(seconds: float) -> Callable[[int], float]:
    """Steps of about one length, the first ones of a run much longer."""
    drawn = random.Random(1)
    return lambda step: seconds * drawn.uniform(0.5, 1.5) * (10 if step < 3 else 1)


SPEEDS: dict[str, Callable[[float], Callable[[int], float]]] = {
    "steady": steady,
    "slower": lambda seconds: lambda step: seconds * (1 if step < 500 else 3),
    "faster": lambda seconds: lambda step: seconds * (3 if step < 300 else 1),
    "with stalls": lambda seconds: lambda step: seconds * (100 if step % 400 == 399 else 1),
}


@pytest.mark.parametrize("unread", [0, 1])
@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize(
    ("epoch_steps", "cv_steps"), [(40, 4), (40, 30), (300, 30), (5000, 500), (10**6, 50)]
)
def test_a_run_ends_with_its_time_and_so_do_the_learning_rates(
    epoch_steps: int, cv_steps: int, speed: str, unread: int
) -> None:
    config = tiny_config(max_hours=1.0, max_epoch=10**4, **COSINE)
    run = Simulated(config, SPEEDS[speed](2.0), epoch_steps, cv_steps, unread)
    run.start(10)
    run.train()
    assert run.timing.ended_by == 1.0
    assert 0.9 * HOUR < run.clock < 1.1 * HOUR
    end = schedule_steps(config, run.place())
    # Nobody foresees a stall of 200 s just before the end; half a cosine is at 1 % there.
    assert run.places[-1] > (0.93 if speed == "with stalls" else 0.99) * end
    assert all(later > earlier for earlier, later in pairwise(run.places))


@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_stopped_and_resumed_ends_with_its_time(seed: int) -> None:
    drawn = random.Random(seed)
    config = tiny_config(max_hours=1.0, max_epoch=10**4, **COSINE)
    run = Simulated(config, steady(1.0), drawn.choice((30, 200, 900)), drawn.randint(3, 20))
    run.start(10)
    for stop in sorted(drawn.uniform(0, HOUR) for _ in range(3)):
        run.train(until=stop)
        run.start(drawn.uniform(1, 20))
    run.train()
    assert 0.9 * HOUR < run.clock < 1.1 * HOUR
    assert run.places[-1] > 0.99 * schedule_steps(config, run.place())


@pytest.mark.parametrize("unread", [0, 1])
def test_time_that_suffices_changes_no_learning_rate(unread: int) -> None:
    config = tiny_config(max_hours=1.0, max_epoch=10, scheduler_conf={"warmup_steps": 20})
    run = Simulated(config, lambda _: 1.0, 100, 10, unread)
    run.start(10)
    run.train()
    assert (run.epoch, run.timing.ended_by) == (10, None)
    assert run.places == list(range(1, 1001))


def test_a_schedule_that_ends_before_the_run_is_not_stretched_to_the_time() -> None:
    config = tiny_config(
        max_hours=1.0,
        max_epoch=10**4,
        scheduler="tri_stage",
        scheduler_conf={"warmup_steps": 20, "hold_steps": 50, "decay_steps": 100},
    )
    run = Simulated(config, lambda _: 1.0, 100, 10)
    run.start(10)
    run.train()
    assert run.places == list(range(1, len(run.places) + 1))
    assert len(run.places) > 3000


def test_a_run_without_an_end_of_its_own_keeps_the_rates_of_its_steps() -> None:
    config = tiny_config(max_hours=1.0, max_epoch=10**9, scheduler_conf={"warmup_steps": 20})
    run = Simulated(config, lambda _: 1.0, 100, 10)
    run.start(10)
    run.train()
    assert run.timing.ended_by == 1.0
    assert run.places == list(range(1, len(run.places) + 1))


@pytest.mark.parametrize("max_epoch", [30, 10**3, 10**6])
def test_a_run_that_only_its_time_ends_has_a_warm_up(max_epoch: int) -> None:
    """However many epochs the config allows, a twentieth of the steps or more are the warm-up."""
    warmup = 1000
    config = tiny_config(
        max_hours=1.0, max_epoch=max_epoch, scheduler_conf={"warmup_steps": warmup}
    )
    run = Simulated(config, lambda _: 1.0, 200, 10)
    run.start(10)
    run.train()
    assert run.timing.ended_by == 1.0
    warming = sum(place <= warmup for place in run.places)
    assert 0.04 * len(run.places) < warming < 0.5 * len(run.places)
    assert run.places[-1] > 0.99 * min(20 * warmup, 200 * max_epoch)


def test_few_long_steps_take_the_whole_schedule() -> None:
    config = tiny_config(max_hours=1.0, max_epoch=10**4, **COSINE)
    run = Simulated(config, lambda _: 200.0, 1000, 1)
    run.start(10)
    run.train()
    assert 10 <= len(run.places) <= 18
    assert run.places[-1] > 0.99 * 10**6


def test_a_longer_run_goes_back_to_its_place_on_the_schedule() -> None:
    config = tiny_config(max_hours=1.0, max_epoch=10**4, **COSINE)
    run = Simulated(config, lambda _: 1.0, 100, 10)
    run.start(10)
    run.train()
    run.config = tiny_config(max_hours=2.0, max_epoch=10**4, **COSINE)
    first = len(run.places)
    run.start(10)
    run.train()
    assert run.timing.ended_by == 2.0
    assert 1.8 * HOUR < run.clock < 2.1 * HOUR
    assert 0.45 * 10**6 < run.places[first] < 0.55 * 10**6
    assert run.places[-1] > 0.99 * 10**6

    run.config = tiny_config(max_epoch=10**4, **COSINE)
    run.start(10)
    assert run.timing.ahead == 0


def test_a_validation_longer_than_the_time_still_leaves_half_of_it_for_training() -> None:
    config = tiny_config(max_hours=0.1, max_epoch=10**4, **COSINE)
    run = Simulated(config, lambda _: 1.0, 10**5, 10**4)
    run.start(1)
    run.train()
    assert 170 < len(run.places) < 190


# Real runs


@pytest.fixture(autouse=True)
def _without_report(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The report takes longer than the training."""
    monkeypatch.setattr(training, "show_complete", lambda *_, **__: None)
    with handler_of_sigterm():
        yield


FAST = {"observe_interval": 0, "log_interval": 1000, "max_epoch": 10**6, **COSINE}
LONG = [tiny_batch([6, 5, 3], seed) for seed in range(10)]
BUDGET = 60 / HOUR


def ticking() -> Callable[[], float]:
    """Return a clock that is a second later whenever it is read: a step takes a second, too."""
    return map(float, count()).__next__


def run_of(folder: Path, train: ListLoader, cv: ListLoader | None = None, **keys: Any) -> Trainer:
    """Return the trainer of a run that 60 steps fill, unless `keys` state another budget."""
    return make_trainer(folder, train, cv, ticking(), **{"max_hours": BUDGET, **FAST, **keys})


def rates(folder: Path) -> list[float]:
    """Learning rates at the ends of the epochs of a run."""
    records = sorted(folder.glob("epoch_*.yaml"), key=lambda path: path.stat().st_mtime_ns)
    return [yaml.safe_load(path.read_text())["lrs"][-1] for path in records]


def newest_state(folder: Path) -> dict[str, Any]:
    path = max(folder.glob("state_*.pt"), key=lambda path: int(path.stem.split("_")[1]))
    return torch.load(path)


def test_max_hours_ends_a_run_with_weights_a_validation_and_the_end_of_its_schedule(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = run_of(tmp_path, ListLoader(LONG))
    with caplog.at_level(logging.INFO):
        assert trainer.run()
    last = trainer.progress.newest_weights
    assert os.readlink(tmp_path / "final.pt") == f"epoch_{last}.pt"
    assert rates(tmp_path)[-1] < 0.01 * 0.01  # 1 % of optim_conf.lr
    assert choose_epochs(tmp_path, 5, val_best=True)
    assert f"training ends: max_hours {BUDGET:g} is reached" in caplog.text
    assert re.search(
        r"the whole run would take about [\d:]+, 10000000 steps, \S+ s a step; max_hours \S+ ends it "
        r"after about \d+ steps, in which the learning rates reach their end",
        caplog.text,
    )
    assert newest_state(tmp_path)["progress"]["timing"]["ended_by"] == BUDGET


def test_the_same_command_finds_a_run_complete_and_a_larger_budget_extends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = run_of(tmp_path, ListLoader(LONG))
    trainer.run()
    step = trainer.progress.step
    again = run_of(tmp_path, ListLoader(LONG))
    with caplog.at_level(logging.INFO):
        assert again.run()
    assert again.progress.step == step
    assert f"complete, max_hours {BUDGET:g} is reached" in caplog.text

    longer = run_of(tmp_path, ListLoader(LONG), max_hours=2 * BUDGET)
    assert longer.run()
    assert longer.progress.step > step
    assert rates(tmp_path)[-1] < 0.01 * 0.01


def test_a_budget_that_ends_in_the_first_epoch_leaves_an_epoch_to_average(tmp_path: Path) -> None:
    endless = ListLoader(LONG * 20)
    trainer = run_of(tmp_path, endless)
    assert trainer.run()
    assert (trainer.progress.epoch, trainer.progress.inside_pass) == (0, True)
    assert [epoch.number for epoch in choose_epochs(tmp_path, 5, val_best=True)] == [0]


def test_the_first_step_is_taken_even_if_the_budget_is_over_before_it(tmp_path: Path) -> None:
    trainer = run_of(tmp_path, ListLoader(LONG), max_hours=1e-9)
    assert trainer.run()
    assert trainer.progress.step == 1
    assert os.readlink(tmp_path / "final.pt") == "epoch_0.pt"


def test_the_time_of_all_starts_counts_and_a_state_keeps_it(tmp_path: Path) -> None:
    """Without a save_interval, states are written inside an epoch too."""

    class Killing(ListLoader):
        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                if newest_state(tmp_path)["progress"]["timing"]["seconds"] > HOUR * BUDGET / 2:
                    raise Killed
                yield batch

    with pytest.raises(Killed):
        run_of(tmp_path, Killing(LONG * 20)).run()
    before = newest_state(tmp_path)["progress"]
    assert not list(tmp_path.glob("epoch_*.pt"))

    trainer = run_of(tmp_path, ListLoader(LONG * 20))
    assert trainer.clock.before == before["timing"]["seconds"]
    assert trainer.progress.timing.ahead == before["timing"]["ahead"] > 0
    assert trainer.run()
    assert rates(tmp_path)[-1] < 0.01 * 0.01


def test_a_run_killed_in_its_last_validation_does_not_decide_anew(tmp_path: Path) -> None:
    class Killing(ListLoader):
        def __iter__(self) -> Iterator[Any]:
            raise Killed
            yield

    endless = ListLoader(LONG * 20)
    first = run_of(tmp_path, endless, Killing(CV))
    with pytest.raises(Killed):
        first.run()
    trainer = run_of(tmp_path, ListLoader(LONG * 20))
    assert trainer.run()
    assert trainer.progress.step == first.progress.step


@pytest.mark.parametrize("bound", ["max_epoch", "max_steps", "patience"])
def test_what_comes_first_ends_the_run(tmp_path: Path, bound: str) -> None:
    keys = {bound: 2, **({"optim_conf": {"lr": 1e-30}} if bound == "patience" else {})}
    trainer = run_of(tmp_path, ListLoader(LONG[:5]), max_hours=1.0, **keys)
    assert trainer.run()
    assert trainer.progress.end_reason(trainer.config).endswith(
        {"patience": "(patience)"}.get(bound, "2 is reached")
    )
    assert trainer.progress.timing.ended_by is None


def test_every_run_says_after_20_steps_how_long_it_will_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        make_trainer(tmp_path, ListLoader(LONG), max_epoch=3, observe_interval=0).run()
    said = (
        r"the whole run will take about \d\d:\d\d, 30 steps, \S+ s a step; max_hours \(--hours of a"
    )
    assert len(re.findall(said, caplog.text)) == 1


@pytest.mark.parametrize("hours", [0, -1, float("inf"), float("nan"), "two"])
def test_max_hours_is_a_number_above_0(hours: Any) -> None:
    with pytest.raises(ConfigError, match="max_hours: expected a"):
        tiny_config(max_hours=hours)


def test_a_forecast_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "exp"
    said = run_of(folder, ListLoader(LONG * 3), max_hours=None, max_epoch=4).forecast()
    # A step takes a second, and each of the four validations of three batches a little more.
    assert said.startswith("the whole run will take about 02:04, 120 steps, 1 s a step; max_hours")
    assert not folder.exists()

    bounded = run_of(folder, ListLoader(LONG * 3), max_epoch=4).forecast()
    assert re.search(r"would take about 02:0\d, .* ends it after about 5\d steps", bounded)
    few = run_of(folder, ListLoader(LONG[:2])).forecast()
    assert few == "an epoch has 2 steps, too few to tell how long the run will take"


LAUNCH = ["-m", "wenet_uio.bin.launch", "--standalone", "--nproc_per_node", "2"]
TRAIN = (
    "-m wenet_uio.bin.train --config train.yaml --train_data train.list --cv_data cv.list "
    "--model_dir exp --device cpu"
)


def test_two_ranks_end_together_after_a_kill_and_a_resume(tmp_path: Path) -> None:
    write_corpus(tmp_path, max_epoch=10**6, max_hours=6 / HOUR, log_interval=1000)
    command = [preloaded.python(), *LAUNCH, *TRAIN.split()]
    environment = preloaded.on_path({**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    first = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while first.poll() is None and not (tmp_path / "exp/epoch_0.pt").exists():
        time.sleep(0.05)
    rank = re.match(r"process (\d+)", (tmp_path / "exp/running.lock").read_text())
    assert rank is not None
    os.kill(int(rank[1]), signal.SIGKILL)
    assert first.wait(timeout=100) != 0

    done = preloaded.run(command[1:], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "max_hours 0.00166667 is reached" in done.stderr
    assert (tmp_path / "exp/final.pt").exists()
    assert choose_epochs(tmp_path / "exp", 5, val_best=True)

    again = preloaded.run(command[1:], cwd=tmp_path, env=environment)
    assert again.returncode == 0, again.stderr
    assert "complete, max_hours 0.00166667 is reached" in again.stderr


def test_two_ranks_say_once_how_long_a_run_will_take(tmp_path: Path) -> None:
    write_corpus(tmp_path, max_epoch=3)
    command = [*LAUNCH, *TRAIN.split(), "--forecast"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = preloaded.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(re.findall("an epoch has 3 steps, too few", done.stderr)) == 1
    assert not (tmp_path / "exp").exists()
