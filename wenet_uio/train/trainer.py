"""The loop over epochs: train, validate, save; from the newest state to the end of the run.

Read this file first.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any

from wenet_uio.base.messages import warn_once
from wenet_uio.base.run_files import FRAMES, INIT, NONFINITE, TOO_LARGE, record_of_board
from wenet_uio.base.uris import shown_values
from wenet_uio.config import Config
from wenet_uio.dataset.ledger import reconciled
from wenet_uio.dataset.types import Batch
from wenet_uio.train.baseline import BEFORE, Baseline, compared_loss, describe_compared
from wenet_uio.train.checkpoint import RunFolder, changed_lists, changes_since
from wenet_uio.train.distributed import StopRequest
from wenet_uio.train.engine import Engine
from wenet_uio.train.environment import describe_start, feature_kernel
from wenet_uio.train.metrics import Totals
from wenet_uio.train.micro_batches import Loader, optimizer_steps, timed_items
from wenet_uio.train.nonfinite import NonfiniteGuard
from wenet_uio.train.observation import FirstUtterance, observe_utterance
from wenet_uio.train.progress import Progress
from wenet_uio.train.report import Reporter, only_shows, show_complete
from wenet_uio.train.running_average import RunningAverage
from wenet_uio.train.timing import LONGEST_FORECAST, SOON, Place, RunClock, Stopwatch
from wenet_uio.train.units import NO_CTC_LOSS, count_without_ctc_loss
from wenet_uio.train.update import LaunchedStep, StepOutcome
from wenet_uio.train.validation import validate
from wenet_uio.train.watchdog import Watchdog

log = logging.getLogger(__name__)


class Trainer:
    """Trains a model.

    Every rank runs one trainer in step with the others; rank 0 writes the files.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        folder: RunFolder,
        *,
        train: Loader,
        cv: Loader,
        reporter: Reporter,
        watchdog: Watchdog,
        stop: StopRequest,
        compared: Mapping[str, float] | None = None,
        started_from: Mapping[str, Any] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Prepare a run that starts at step 0; `load` resumes one.

        Args:
            compared: of a run that starts from a trained model, {name of a loss: its weight} of the
                losses that say whether it becomes better. The run begins with a validation.
            started_from: of this model, for the records of the run: `from`, its path or its
                address on a hub, and `from_commit`.
            train: training set.
            cv: validation set.
            clock: returns the seconds since this process began to prepare the run; None: since
                now.
        """
        self.config = config
        self.engine = engine
        self.world = engine.world
        self.folder = folder
        self.train = train
        self.cv = cv
        self.reporter = reporter
        self.watchdog = watchdog
        self.stop = stop
        self.compared = compared
        self.started_from = started_from
        self.progress = Progress()
        self.clock = RunClock(clock or Stopwatch())
        self.saved_at = 0.0
        """Seconds of training at the last state."""
        self.said_how_long = False
        """Whether the log has how long the run will take."""
        self.average = RunningAverage(config.model_avg) if config.model_avg else None
        self.guard = NonfiniteGuard(engine, config, folder.path / NONFINITE)
        self.launched: deque[tuple[LaunchedStep, list[Batch]]] = deque()
        """Steps that are not accounted for, with their micro-batches."""
        self.most_unread = int(self.world.device.type != "cpu")
        """Most steps whose results may be unread when the next one is launched: an accelerator still
        computes one then."""
        self.tensorboard_mark: dict[str, Any] | None = None
        """Mark of the TensorBoard files in the loaded state; None in a new run."""

    def run(self) -> bool:
        """Train to the end of the run.

        Returns:
            False if a signal ended training early, with the state saved.
        """
        complete = self.progress.end_reason(self.config)
        if complete and self.progress.to_observe is None:
            log.info("%s: complete, %s", self.folder.path, complete)
        elif not self._train_to_end():
            return False

        if self.world.rank == 0:
            self.folder.keep(self.config.keep_last, self.config.keep_best)
            self.folder.finish(self.progress.newest_weights)
            board = self.reporter.tensorboard_dir
            show_complete(self.folder.path, board, report=self.config.report)

        return True

    def forecast(self) -> str:
        """Train some first steps, and say how long the whole run will take; writes no file."""
        if self.config.store_frames:
            return "no forecast with store_frames, because later epochs compute less than the first"

        timing = self.progress.timing
        self._begin_time()
        self.engine.connect()
        self.engine.begin_epoch(self.progress.epoch)

        until = timing.seconds + LONGEST_FORECAST
        for micro_batches in optimizer_steps(self.train, self.config.accum_grad):
            self._launch_step(micro_batches, {})
            launched, _ = self.launched.popleft()
            timing.begin_step(launched.number, launched.outcome().sums["clock"])
            if timing.is_known_here or timing.seconds > until:
                break

        self.engine.disconnect()
        return timing.forecast(self.config, self._current_place())

    def save(self, *, meanwhile: bool = False, needed: bool = True) -> None:
        """Write the state of the run, or let a thread write it `meanwhile`.

        All ranks must call this together.

        Args:
            meanwhile: a thread writes the state while training goes on.
            needed: raise an error of the system, such as that of a full disk; only the states with
                which this process ends are needed.
        """
        self.guard.refuse_spoilt_weights()
        self._save_checked(meanwhile=meanwhile, needed=needed)

    def _save_checked(self, *, meanwhile: bool = False, needed: bool = True) -> None:
        """Write the state of the run, of weights that are known to be finite; see `save`."""
        self.watchdog.beat(f"saving the state of step {self.progress.step}")
        # Rank 0 takes over the counts of all ranks, which then start again at 0.
        progress = self.progress
        progress.samples, progress.costs = self.world.add_up(progress.samples, progress.costs)
        if self.world.rank:
            progress.samples, progress.costs = Counter(), Counter()

        state = self.engine.state_dict()
        if self.world.rank == 0:
            if meanwhile and self.world.device.type == "cpu":
                state = deepcopy(state)  # it has the weights that the next step changes

            # The other ranks have no clock: they read the time of the state when they load it.
            timing = replace(progress.timing, seconds=self.clock(), next_step=progress.step + 1)
            state |= {
                "data": self.train.state_dict(),
                "progress": replace(progress, timing=timing).state_dict(),
                "tensorboard": self.reporter.mark(),
                "config": shown_values(self.config.model_dump(mode="json")),
                "lists": self._list_records,
                "feature_kernel": feature_kernel(),
            }
            if self.average:
                state["model_avg"] = self.average.state_dict()

            self.folder.save_state(self.progress.step, state, meanwhile=meanwhile, needed=needed)

        self.saved_at = progress.timing.seconds

    def load(self, state: dict[str, Any], *, allow_data_changes: bool = False) -> None:
        """Resume from a state of `save`.

        Args:
            allow_data_changes: accept other data or batches; the pass over the data then starts
                again.

        Raises:
            ValueError: the data or the model differs from those of the state.
        """
        seed = self.engine.seed
        self.engine.load_state_dict(state)
        self.train.load_state_dict(state["data"], allow_changes=allow_data_changes)
        # With other data the loader does not go to the position of the state.
        starts_pass_over = self.train.state_dict()["position"] != state["data"]["position"]
        changes = changes_since(state, self.config, seed)
        changes += changed_lists(state["lists"], self._list_records)
        for change in changes:
            log.info("changed since the run began: %s", change)

        former_kernel, kernel = state["feature_kernel"], feature_kernel()
        if kernel != former_kernel:
            log.info(
                "features on a CPU were computed by %s, and now by %s: they differ by rounding, so "
                "the run does not repeat bit for bit",
                former_kernel,
                kernel,
            )
        self.progress = Progress.from_state_dict(state["progress"])
        self.clock.before = self.saved_at = self.progress.timing.seconds
        # The state has the counts of all ranks, which rank 0 keeps on.
        if self.world.rank or starts_pass_over:
            self.progress.samples, self.progress.costs = Counter(), Counter()
        if self.average and not self.world.rank:
            self.average.load_state_dict(state.get("model_avg"))

        baseline = Baseline.read(self.folder.path)
        self.compared = baseline and baseline.compared
        self.tensorboard_mark = state["tensorboard"]
        log.info("resuming after step %d, in epoch %d", self.progress.step, self.progress.epoch)

    @cached_property
    def _list_records(self) -> dict[str, dict[str, Any]]:
        return {"train_data": self.train.data_record(), "cv_data": self.cv.data_record()}

    def _train_to_end(self) -> bool:
        """Train until the run ends; False if it was asked to stop."""
        try:
            self._begin_run()
            while not self.progress.end_reason(self.config):
                done = self.progress.epoch_step
                self.epoch_steps = self._steps_of_epoch()
                self.engine.begin_epoch(self.progress.epoch)
                self._place_learning_rates()
                self.reporter.begin_epoch(self.progress.epoch, done, done + self._steps_to_do())
                # A run that resumes may have only the validation of its epoch to do.
                trained = self.progress.trained or self._train_epoch()
                if not (trained and self._end_epoch()):
                    log.info(
                        "%s received: state saved after step %d",
                        self.stop.signal_name,
                        self.progress.step,
                    )
                    return False

            log.info("training ends: %s", self.progress.end_reason(self.config))
            return True
        finally:
            self.folder.settle()
            self.watchdog.stop()
            self.reporter.close(complete=bool(self.progress.end_reason(self.config)))
            self.engine.disconnect()

    def _begin_run(self) -> None:
        """Connect the ranks and open the folder; a new run saves its first state."""
        ranks_steps = self.world.gather(self.progress.step)
        if len(set(ranks_steps)) > 1:
            raise ValueError(
                f"{self.folder.path}: the newest states that the ranks find are of different steps "
                f"({', '.join(map(str, ranks_steps))}); use a --model_dir that all machines share"
            )

        self._begin_time()
        self.watchdog.start()
        self.engine.connect()
        resumed = self.tensorboard_mark is not None

        if self.world.rank == 0:
            self.folder.open(self.config, resumed=resumed)
            self.guard.file.begin(self.progress.step if resumed else -1)
            seconds = {"utterance_seconds": self.train.utterance_seconds()}
            start = describe_start(self.world, self.progress.step + 1)
            source = self.started_from or {}
            curves = record_of_board(self.folder.path, self.reporter.tensorboard_dir)
            self.folder.note_start({**start, **self._list_records, **seconds, **source, **curves})
            self.reporter.open(self.progress.step + 1, self.tensorboard_mark)

        self.engine.size_limit.keep_in(self.folder.path / TOO_LARGE, self.world)
        if self.engine.stored_frames is not None:
            self.engine.stored_frames.open(
                self.folder.path / FRAMES, self.world.rank, self.progress.epoch
            )
        if not resumed:
            weights = self.engine.weights()
            if self.world.rank == 0:
                self.folder.save_weights(INIT, weights)
            if self.compared:
                self._validate_start(self.compared)
            self.save()
        if self.config.epoch_steps is not None:
            self._tell_left_out()
        self._observe_saved_epoch()

    def _tell_left_out(self) -> None:
        """Say what no pass will read: the accounts of nominal epochs have only what is planned."""
        counts, _ = self.world.add_up(self.train.left_out_of_pass(), Counter())
        if left_out := counts.total() - counts["all"]:
            counts["read"] = counts["all"] - left_out
            log.info("a pass over the training data: %s", reconciled(counts))

    def _validate_start(self, compared: Mapping[str, float]) -> None:
        """Validate the weights that the run starts from, and keep their loss."""
        nonfinite: list[str] = []
        sums = validate(self.engine, self.cv, self._asked_in_validation, nonfinite=nonfinite)
        if sums is None:  # a SIGTERM: the first step saves the state and ends the run
            return

        if unread := self._unread_validation(sums, nonfinite):
            raise ValueError(unread)

        validation = Totals(sums)
        losses = self.guard.finite_losses(validation, nonfinite, self.progress.step)
        if math.isfinite(losses["loss"]):
            self.progress.start_loss = compared_loss(losses, compared)
        self.reporter.log_start(self._reported_means(validation) | losses)
        if self.world.rank == 0:
            measured = {"step": 0, "loss_dict": losses, "compared": dict(compared)}
            self.folder.save_measured(INIT, BEFORE, measured)

    def _warn_if_worse(self, losses: Mapping[str, float]) -> None:
        """Warn if the model of a fine-tuning is worse than the one that the run started from."""
        start = self.progress.start_loss
        if start is None or not self.compared:
            return

        if Baseline(start, self.compared).is_better(losses):
            log.warning(
                "epoch %d: worse than before fine-tuning: cv %s %.4g, before %.4g; lower "
                "optim_conf.lr, freeze modules, or check the texts. average_model.py leaves this "
                "epoch out",
                self.progress.epoch,
                describe_compared(self.compared),
                compared_loss(losses, self.compared),
                start,
            )

    def _begin_time(self) -> None:
        """Let the ranks agree on the time at which this start begins."""
        timing = self.progress.timing
        self.epoch_steps = self._steps_of_epoch()
        timing.begin(self.world.gather(self.clock())[0], self.progress.step + 1)
        timing.extend(self.config, self._current_place())

    def _steps_of_epoch(self) -> int:
        rest = math.ceil(len(self.train) / self.config.accum_grad)
        return self.progress.steps_of_epoch(rest)

    def _current_place(self) -> Place:
        cv_steps = len(self.cv) / self.config.accum_grad
        return self.progress.place(self.config, self.epoch_steps, cv_steps)

    def _place_learning_rates(self) -> None:
        """Tell the engine where the next step is on the schedule of learning rates."""
        ahead = self.progress.timing.ahead
        self.engine.ahead_steps, self.engine.ahead_epochs = ahead, ahead / self.epoch_steps

    def _steps_to_do(self) -> int:
        """Return the number of optimizer steps from here to the end of the epoch."""
        if self.progress.trained:
            return 0
        steps_of_data = math.ceil(len(self.train) / self.config.accum_grad)
        return min(steps_of_data, (self.config.max_steps or sys.maxsize) - self.progress.step)

    def _train_epoch(self) -> bool:
        """Train to the end of the current epoch.

        Returns:
            False if a rank was asked to stop; the state is saved.
        """
        progress, config = self.progress, self.config
        self.read_at = time.perf_counter()
        remaining_steps = self._steps_to_do()
        ends_inside_pass = remaining_steps < math.ceil(len(self.train) / config.accum_grad)
        progress.inside_pass = False
        self.watchdog.beat(f"reading the data of step {progress.step + 1}")

        for micro_batches, wait in timed_items(optimizer_steps(self.train, config.accum_grad)):
            self.watchdog.beat(f"step {progress.step + 1}")
            progress.timing.advance(config, self._current_place())
            self._place_learning_rates()
            self._launch_step(micro_batches, {"wait": wait, "stop": float(self.stop.asked)})

            # Set before the state is saved: the loader of a state of the last step is in the next
            # epoch, unless max_steps or the time ends the training inside of this pass over the
            # data.
            remaining_steps -= 1
            progress.trained = remaining_steps == 0
            progress.inside_pass = progress.trained and ends_inside_pass

            save = self._state_is_due()
            stop = self._read_results(may_wait=self._most_unread_now(saves=save))
            self._average_weights()
            if self._is_out_of_time():
                progress.timing.ended_by = config.max_hours
                progress.trained = progress.inside_pass = True
                save = True

            if stop or save:
                self._read_results(may_wait=0)
                self.save(meanwhile=not stop, needed=stop)
            if stop:
                return False
            if progress.trained:
                break

            self.watchdog.beat(f"reading the data of step {progress.step + 1}")

        progress.trained = True  # also if the data ended before the steps
        return True

    def _state_is_due(self) -> bool:
        """Tell whether a state is due after this step, inside of an epoch."""
        config, progress = self.config, self.progress
        if config.save_interval is not None:
            return progress.step % config.save_interval == 0
        if config.max_hours is None:
            return False
        return progress.timing.seconds - self.saved_at >= SOON * 3600 * config.max_hours

    def _is_out_of_time(self) -> bool:
        """Tell whether `max_hours` ends the epoch here: there is no time for another step of it."""
        progress = self.progress
        return not progress.trained and progress.timing.is_up(self.config, self._current_place())

    def _say_how_long(self) -> None:
        """Log once how long the run will take, when enough steps of this start are measured."""
        timing, config = self.progress.timing, self.config
        if self.said_how_long or not timing.is_known_here:
            return

        self.said_how_long = True
        log.info("%s", timing.forecast(config, self._current_place()))

    def _launch_step(self, micro_batches: list[Batch], extra_sums: dict[str, float]) -> None:
        """Start the next step; `extra_sums` are numbers to sum over the ranks."""
        # The clock of rank 0 comes back with the results, so that it costs no exchange of its own.
        extra_sums = {**extra_sums, "clock": 0.0 if self.world.rank else self.clock()}
        launched = self.engine.launch(micro_batches, self.progress.step + 1, extra_sums)
        if count_without_ctc_loss(self.engine, micro_batches):
            warn_once(f"training has {NO_CTC_LOSS}")
        self.launched.append((launched, micro_batches))
        self.progress.count(micro_batches)

    def _read_results(self, *, may_wait: int) -> bool:
        """Account for the oldest steps until at most `may_wait` are not read.

        Returns:
            True if a rank was asked to stop by then.
        """
        stop = False
        while len(self.launched) > may_wait:
            launched, micro_batches = self.launched.popleft()
            outcome = launched.outcome()
            stop |= outcome.sums.pop("stop") > 0
            self.progress.timing.begin_step(outcome.number, outcome.sums.pop("clock"))
            self._say_how_long()
            now = time.perf_counter()
            outcome.sums["elapsed"] = (now - self.read_at) * self.world.size
            self.read_at = now
            self._account_for_step(outcome, micro_batches)

        return stop

    def _account_for_step(self, outcome: StepOutcome, micro_batches: list[Batch]) -> None:
        """Add the result of a step to the sums, and report them every `log_interval` steps."""
        progress, number = self.progress, outcome.number
        self.reporter.step()
        keys = [key for batch in micro_batches for key in batch.keys]
        self.guard.check(outcome, keys, progress)
        if outcome.applied:
            progress.interval.add(outcome.sums)
            progress.total.add(outcome.sums)

        if number % self.config.log_interval == 0:
            scalars = {
                **self._reported_means(progress.interval),
                "lr": outcome.lrs[-1],
                "grad_norm": outcome.grad_norm,
            }
            to_go = progress.timing.seconds_to_go(self.config, self._current_place())
            self.reporter.interval(number, scalars, to_go)
            progress.interval = Totals()

    def _most_unread_now(self, *, saves: bool) -> int:
        """Return how many of the launched steps may have unread results.

        The results of the last steps are read later, so that no step waits for the device. A state,
        the end of an epoch and the running average need all of them.
        """
        needs_all = saves or self.progress.trained or self._average_is_due()
        return 0 if needs_all else self.most_unread

    def _average_is_due(self) -> bool:
        return self.average is not None and self.average.is_due(self.progress.step)

    def _average_weights(self) -> None:
        """Update the running average, if it is on and the step is one of those that count.

        A step that was skipped does not count.
        """
        if self.average and self._average_is_due() and not self.progress.nonfinite:
            weights = self.engine.weights()
            if self.world.rank == 0:
                self.average.add(weights)

    def _end_epoch(self) -> bool:
        """Validate, report and save.

        Returns:
            False if a rank was asked to stop during validation; the state is saved.
        """
        progress = self.progress
        cv = FirstUtterance(self.cv)
        self.guard.refuse_spoilt_weights()
        nonfinite: list[str] = []
        sums = validate(
            self.engine, cv, self._asked_in_validation, progress.step + 1, nonfinite=nonfinite
        )
        if sums is None:
            self._save_checked()
            return False

        if unread := self._unread_validation(sums, nonfinite):
            self._save_checked()  # the next start begins with this validation
            raise ValueError(unread)

        validation = Totals(sums)
        losses = self.guard.finite_losses(validation, nonfinite, self.progress.step)
        lrs = self.engine.lrs(progress.step)
        train = {**self._reported_means(progress.total), "lr": lrs[-1]}
        samples, costs = self.world.add_up(
            progress.samples + self.train.left_out(progress.epoch), progress.costs
        )
        account = reconciled(samples)
        cv_means = self._reported_means(validation) | losses
        weights = self.engine.weights()
        if self.world.rank == 0:
            measured = {
                "step": progress.step,
                "lrs": lrs,
                "loss_dict": losses,
                "train_loss_dict": progress.total.losses(),
                "samples": account.to_dict(),
                "nonfinite_steps": progress.nonfinite_in_epoch,
            }
            self.folder.save_epoch(progress.epoch, weights, measured, self.average)

        self.reporter.end_epoch(progress.step, train, cv_means, account, costs)
        self._warn_if_worse(losses)
        if self.config.observe_interval and progress.epoch % self.config.observe_interval == 0:
            progress.to_observe = progress.epoch

        progress.end_epoch(losses["loss"])
        progress.timing.end_epoch(self.world.gather(self.clock())[0], progress.step + 1)
        if not progress.end_reason(self.config) and progress.timing.is_up(
            self.config, self._current_place()
        ):
            progress.timing.ended_by = self.config.max_hours
        self._save_checked(needed=bool(progress.end_reason(self.config)))
        if self.world.rank == 0:
            self.folder.keep(self.config.keep_last, self.config.keep_best)

        if progress.to_observe is not None:
            self._write_pictures(progress.to_observe, cv)

        return True

    def _observe_saved_epoch(self) -> None:
        """Write the pictures that the end of an earlier start left out."""
        if self.progress.to_observe is None:
            return

        cv = FirstUtterance(self.cv)
        for _ in cv:
            self.watchdog.beat("reading an utterance for pictures")
        self._write_pictures(self.progress.to_observe, cv)

    def _write_pictures(self, epoch: int, cv: FirstUtterance) -> None:
        """Write the pictures of an epoch whose state is saved, and its audio once in a run."""
        self.watchdog.beat(f"pictures after step {self.progress.step}")
        assert cv.batch is not None, "a loader without batches is refused before training"
        with only_shows("pictures"):
            observation = observe_utterance(self.engine, cv.batch)
            audio = None
            if observation is not None and epoch == 0:
                with only_shows("audio"):
                    audio = self.cv.audio_of(observation.key)
                    if audio is None:
                        log.info("no dev/audio in TensorBoard: %s has no audio", observation.key)
            self.reporter.write_observation(self.progress.step, observation, audio)

        self.progress.to_observe = None
        if self.progress.end_reason(
            self.config
        ):  # no later state says that the pictures are written
            self._save_checked()

    def _unread_validation(self, sums: Mapping[str, float], nonfinite: list[str]) -> str:
        """Return an error message if no utterance of the validation set was read, else nothing.

        Such a set says nothing about a model. `sums` and `nonfinite` are those of `validate`.
        """
        if sums["utterances"] or nonfinite:
            return ""
        return (
            f"{self._list_records['cv_data']['list']}: no utterance of the validation set was read, and the "
            "log says why: mend the set, and run the same command again"
        )

    def _asked_in_validation(self) -> bool:
        self.watchdog.beat(f"validation after step {self.progress.step}")
        return self.stop.asked

    def _reported_means(self, totals: Totals) -> dict[str, float]:
        return {**totals.losses(), **totals.throughput(self.world.size)}
