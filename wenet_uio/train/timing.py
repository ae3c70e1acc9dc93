"""Time of a run: what its steps take, how many steps `max_hours` allows, and how much earlier the
learning rates then reach their end.

Ranks      All times come from the clock of rank 0, which every rank gets with the sums of a step.
           So the ranks decide alike, without an exchange or a wait of its own.
The end    After each step, the time that is left is compared with that of another step and of the
           end of an epoch: validation, weights, state, pictures. The time of the first end is a
           guess from that of a step, and at most half of `max_hours`. One step is always taken.
Schedule   The steps that remain are estimated from the mean of the last steps. If they are fewer
           than those to the end of the schedule, each step moves the learning rates on by an equal
           share of what remains. Errors of the estimate correct themselves, and a stall costs its
           own share of the schedule. The end is that of the schedule (`max_steps` of WarmupCosine,
           `usual_end` of WarmupLR, which has no end) or the last step of a run without `max_hours`,
           whichever is earlier. A run without a last step keeps the rates of its steps, unless its
           schedule has an end.
States     A state keeps the time until it was written, the speed, the place on the schedule, and
           that the time has ended the run. Rates that depend on a clock are not equal bit for bit
           after a kill, but a resumed run goes on from what was decided. With a larger `max_hours`,
           a run that its time has ended goes back to the place on the schedule where a run of that
           length would be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from tqdm import tqdm

from wenet_uio.config.schedules import BEYOND_ANY_RUN
from wenet_uio.config.train import ENDLESS, TrainKeys

RECENT = 100
"""Steps whose mean time is the speed of a run."""
SETTLING = 2
"""First steps of a start that are not measured: they compile, allocate and fill caches."""
FIRST = 20
"""Steps after which the speed is known: it then changes learning rates, and is logged."""
SOON = 0.05
"""Share of `max_hours` after which the speed is known, too: of long steps there are few. Without a
save_interval, states are as far apart."""
LONGEST_FORECAST = 60
"""Seconds after which a forecast takes no further step."""
FORWARD = 0.4
"""Time of a validation batch before the first validation, in times of a training batch. Without a
backward pass it is a third; pictures and weights follow."""


class Stopwatch:
    """A call returns the seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        """Return the seconds since it was made."""
        return time.monotonic() - self._began


class RunClock:
    """A call returns the seconds of training in all starts of a run, by the clock of this rank."""

    def __init__(self, seconds_of_start: Callable[[], float]) -> None:
        self._seconds_of_start = seconds_of_start
        self.before = 0.0
        """Seconds in earlier starts, up to the loaded state."""

    def __call__(self) -> float:
        """Return the seconds so far."""
        return self.before + self._seconds_of_start()


@dataclass(frozen=True)
class Place:
    """The place of a run between two optimizer steps."""

    step: int
    """Optimizer steps so far."""
    rest: int
    """Optimizer steps to the end of this pass over the data."""
    epoch_steps: int
    """Optimizer steps of a whole pass."""
    later_epochs: int
    """Epochs after this one."""
    cv_steps: float
    """Batches of the validation set for each batch of an optimizer step."""


@dataclass
class Timing:
    """Times of a run, in all its starts; part of its state."""

    seconds: float = 0.0
    """Seconds of training when `next_step` began, or could have begun."""
    next_step: int = 1
    """Number of an optimizer step, from 1."""
    recent: list[float] = field(default_factory=list)
    """Seconds of the last RECENT steps."""
    epoch_end: float | None = None
    """Seconds of the last end of an epoch: validation, weights, state, pictures."""
    ahead: float = 0.0
    """Steps by which the learning rates are ahead of those of a run without `max_hours`."""
    ended_by: float | None = None
    """The `max_hours` that ended the run; the decision stays until the key grows."""

    def __post_init__(self) -> None:
        self._validation = 0.0
        """Seconds of the last validation, with the weights of its epoch."""
        self._measured = 0
        """Steps of this start whose end is known."""
        self._follows: Literal["start", "step", "epoch"] = "start"
        """What `seconds` is the time of: start of the run, of a step, or end of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all fields as plain values."""
        fields = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**fields, "recent": list(self.recent)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Timing:
        """Return the times of a `state_dict`."""
        return cls(**{**state, "recent": list(state["recent"])})

    # What a run measures

    def begin(self, seconds: float, next_step: int) -> None:
        """Note a start of the run."""
        self.seconds, self.next_step = seconds, next_step

    def begin_step(self, number: int, seconds: float) -> None:
        """Note the begin of an optimizer step `number` at a time, in seconds of training; the time
        since the step before, or since the validation before, is measured.
        """
        passed = seconds - self.seconds
        if self._follows == "step":
            self._measured += 1
            if self._measured > SETTLING:
                self.recent = [*self.recent, passed][-RECENT:]
        elif self._follows == "epoch":
            self.epoch_end = self._validation + passed  # state and pictures come meanwhile

        self.seconds, self.next_step, self._follows = seconds, number, "step"

    def end_epoch(self, seconds: float, next_step: int) -> None:
        """Note the end of a validation at a time, in seconds of training."""
        # The steps since the last known time are taken at the mean speed.
        step_seconds = self.step_seconds * (next_step - self.next_step)
        self._validation = max(0.0, seconds - self.seconds - step_seconds)
        self.epoch_end = max(self._validation, self.epoch_end or 0.0)
        self.seconds, self.next_step, self._follows = seconds, next_step, "epoch"

    @property
    def step_seconds(self) -> float:
        """Mean time of the recent steps; 0 if none is measured."""
        return sum(self.recent) / max(len(self.recent), 1)

    @property
    def is_known_here(self) -> bool:
        """Whether this start has taken enough steps to know the speed of the run."""
        return self._measured >= FIRST

    # What follows from it

    def is_over(self, config: TrainKeys) -> bool:
        """Tell whether the time has ended the run, and `max_hours` has not grown or gone since."""
        if self.ended_by is None or config.max_hours is None:
            return False
        return config.max_hours <= self.ended_by

    def is_up(self, config: TrainKeys, place: Place) -> bool:
        """Tell whether `max_hours` leaves no time for another step and the validation after it."""
        return self.steps_in_time(config, place) < 1

    def steps_in_time(self, config: TrainKeys, place: Place) -> float:
        """Return the number of steps that `max_hours` allows, so that the run ends with a validation
        in time; infinite without `max_hours`.
        """
        if config.max_hours is None:
            return math.inf

        # The next step begins now, or when the steps that still compute are done.
        now = self.seconds + self.step_seconds * (place.step + 1 - self.next_step)
        left = 3600 * config.max_hours - now
        end = self._end_seconds(place, most=1800 * config.max_hours)
        if not self.recent:  # the speed is not known: one step is taken if an end fits
            return math.inf if left > end else 0.0

        step = max(self.step_seconds, 1e-9)
        steps_of_this_pass = (left - end) / step
        if steps_of_this_pass <= place.rest:
            return steps_of_this_pass

        # The rest of this pass, whole epochs, and a part of an epoch; each with its end.
        left -= place.rest * step + end
        epochs, left = divmod(max(0.0, left), place.epoch_steps * step + end)
        return place.rest + epochs * place.epoch_steps + max(0.0, (left - end) / step)

    def _end_seconds(self, place: Place, most: float = math.inf) -> float:
        """Return the time from the last step of an epoch to the first one of the next; at most `most`
        if that is a guess.
        """
        if self.epoch_end is not None:
            return self.epoch_end
        # The end cannot be taken back, so one long step must not make the guess larger.
        usual = median(self.recent) if self.recent else 0.0
        return min(most, FORWARD * usual * place.cv_steps)

    def advance(self, config: TrainKeys, place: Place) -> None:
        """Choose the place of the next step on the schedule of learning rates.

        If `max_hours` does not allow all steps to the end of the schedule, each step takes an equal
        share of the schedule that remains.
        """
        if config.max_hours is None:
            return
        few_steps = len(self.recent) < FIRST - SETTLING
        if few_steps and sum(self.recent) < SOON * 3600 * config.max_hours:
            return

        in_time = self.steps_in_time(config, place)
        to_end = schedule_steps(config, place) - (place.step + self.ahead)
        if in_time < to_end < math.inf:
            self.ahead += to_end / max(1, math.floor(in_time)) - 1

    def extend(self, config: TrainKeys, place: Place) -> None:
        """Let a run that the time has ended go on with a larger `max_hours`, or without.

        The learning rates go back to the place where a run that began with it would be now.
        """
        if self.ended_by is None or self.is_over(config):
            return

        self.ended_by, self.ahead = None, 0.0
        steps = schedule_steps(config, place)
        if config.max_hours is not None and steps < math.inf:
            share = min(1.0, self.seconds / (3600 * config.max_hours))
            self.ahead = max(0.0, share * steps - place.step)

    def seconds_to_go(self, config: TrainKeys, place: Place) -> float:
        """Return the time to the end of the run; infinite if it is not known."""
        if config.max_hours is None:
            return self._natural_seconds(config, place)

        left = max(0.0, 3600 * config.max_hours - self.seconds)
        return min(left, self._natural_seconds(config, place))

    def forecast(self, config: TrainKeys, place: Place) -> str:
        """Say how long the whole run takes, and what `max_hours` leaves of it."""
        speed = f"{self.step_seconds:.2g} s a step"
        to_do = natural_steps(config, place)
        if not self.recent:
            return f"an epoch has {place.epoch_steps} steps, too few to tell how long the run will take"
        if to_do == math.inf:
            bound = f"max_hours {config.max_hours:g}" if config.max_hours else "nothing"
            return f"{speed}; {bound} ends this run"

        steps = place.step + round(to_do)
        whole = tqdm.format_interval(self.seconds + self._natural_seconds(config, place))
        if config.max_hours is None:
            return (
                f"the whole run will take about {whole}, {steps} steps, {speed}; max_hours (--hours "
                "of a recipe) can end it earlier"
            )

        in_time = self.steps_in_time(config, place)
        if in_time >= to_do:
            return f"the whole run will take about {whole}, {steps} steps, {speed}"

        return (
            f"the whole run would take about {whole}, {steps} steps, {speed}; max_hours "
            f"{config.max_hours:g} ends it after about {place.step + round(in_time)} steps, in which "
            "the learning rates reach their end"
        )

    def _natural_seconds(self, config: TrainKeys, place: Place) -> float:
        """Return the time from here to max_epoch or max_steps."""
        steps = natural_steps(config, place)
        if steps == math.inf or not self.recent:
            return math.inf

        later_epochs = max(0, math.ceil((steps - place.rest) / place.epoch_steps))
        return steps * self.step_seconds + (1 + later_epochs) * self._end_seconds(place)


def natural_steps(config: TrainKeys, place: Place) -> float:
    """Return the steps from here to max_epoch or max_steps; infinite if neither is set."""
    steps = math.inf
    if config.max_epoch < ENDLESS:
        steps = place.rest + place.later_epochs * place.epoch_steps
    if config.max_steps is not None:
        steps = min(steps, config.max_steps - place.step)

    return steps


def schedule_steps(config: TrainKeys, place: Place) -> float:
    """Return the step at which the learning rates reach their end without `max_hours`: the last one
    of the run, or an earlier one at which the schedule ends.
    """
    last = place.step + natural_steps(config, place)
    conf = config.scheduler_conf
    end = conf.end if last == math.inf else conf.usual_end
    return last if end is None or end >= BEYOND_ANY_RUN else min(last, end)
