"""Epochs of training and validation, from wherever the run was left to its end. The file to read first."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any, Protocol

from wenet_uio.config import Config
from wenet_uio.dataset.ledger import reconciled, tally
from wenet_uio.dataset.types import Batch
from wenet_uio.train.checkpoint import TOO_LARGE, RunFolder, differences
from wenet_uio.train.engine import Engine, StepOutcome
from wenet_uio.train.environment import environment
from wenet_uio.train.metrics import Totals, cost_bin
from wenet_uio.train.micro_batches import SizedBatches, steps, timed
from wenet_uio.train.observation import FirstUtterance, observe
from wenet_uio.train.progress import Progress
from wenet_uio.train.report import Reporter
from wenet_uio.train.run_report import write_run_report
from wenet_uio.train.stop import StopRequest
from wenet_uio.train.watchdog import Watchdog

log = logging.getLogger(__name__)


class Loader(SizedBatches, Protocol):
    """One epoch's batches of this rank, from a position that can be saved."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None: ...
    def left_out(self, epoch: int) -> Counter[str]: ...
    def utterance_seconds(self) -> dict[str, float]: ...


class Trainer:
    """Every rank runs one; they stay in step, and rank 0 writes."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        train: Loader,
        cv: Loader,
        folder: RunFolder,
        reporter: Reporter,
        watchdog: Watchdog,
        stop: StopRequest,
    ) -> None:
        self.config = config
        self.engine = engine
        self.world = engine.world
        self.train = train
        self.cv = cv
        self.folder = folder
        self.reporter = reporter
        self.watchdog = watchdog
        self.stop = stop
        self.progress = Progress()
        self.written: dict[str, Any] | None = None

    def run(self) -> bool:
        """Train to the end; False when a SIGTERM ended it before, with its state saved."""
        if not (complete := self._end_reached()) and not self._train():
            return False
        if complete:
            log.info("%s: complete, %s", self.folder.path, complete)
        if self.world.rank == 0:
            self.folder.keep(self.config.keep_last, self.config.keep_best)
            self.folder.finish(self.progress.epoch - 1)
            log.info("report: %s", write_run_report(self.folder.path, self.reporter.tensorboard_dir))
        return True

    def save(self) -> None:
        """Write the state of the run. A joint act of all ranks."""
        self.watchdog.beat(f"saving the state of step {self.progress.step}")
        progress = self.progress
        progress.samples, progress.costs = self._of_all_ranks(progress.samples, progress.costs)
        if self.world.rank:
            progress.samples, progress.costs = Counter(), Counter()
        state = self.engine.state_dict()
        if self.world.rank == 0:
            state |= {
                "data": self.train.state_dict(),
                "progress": self.progress.state_dict(),
                "tensorboard": self.reporter.mark(),
                "config": self.config.model_dump(mode="json"),
            }
            self.folder.save_state(self.progress.step, state)

    def load(self, state: dict[str, Any], *, allow_data_changes: bool = False) -> None:
        """Go on where `save` was called; `allow_data_changes` takes other data or batches within an epoch too.

        Raises:
            ValueError: the data or the model is not what the state was made with.
        """
        seed = self.engine.seed
        self.engine.load_state_dict(state)
        self.train.load_state_dict(state["data"], allow_changes=allow_data_changes)
        starts_pass_over = self.train.state_dict()["position"] != state["data"]["position"]
        for change in differences(
            {**state["config"], "seed": state["seed"]}, {**self.config.model_dump(mode="json"), "seed": seed}
        ):
            log.info("changed since the run began: %s", change)
        self.progress = Progress.from_state_dict(state["progress"])
        if self.world.rank or starts_pass_over:
            self.progress.samples, self.progress.costs = Counter(), Counter()
        self.written = state["tensorboard"]
        log.info("going on from step %d, in epoch %d", self.progress.step, self.progress.epoch)

    def _end_reached(self) -> str:
        """Why the run is complete; empty when it is not."""
        config, progress = self.config, self.progress
        if progress.trained:
            return ""
        if progress.epoch >= config.max_epoch:
            return f"max_epoch {config.max_epoch} is reached"
        if config.max_steps is not None and progress.step >= config.max_steps:
            return f"max_steps {config.max_steps} is reached"
        if config.patience is not None and progress.epochs_since_best >= config.patience:
            return f"no lower validation loss in {config.patience} epochs (patience)"
        return ""

    def _train(self) -> bool:
        try:
            self._begin()
            while not (reason := self._end_reached()):
                done = self.progress.epoch_step
                self.reporter.begin_epoch(self.progress.epoch, self.progress.step, done, done + self._steps_to_do())
                if not ((self.progress.trained or self._train_epoch()) and self._end_epoch()):
                    log.info("asked to stop: state saved after step %d", self.progress.step)
                    return False
            log.info("the end: %s", reason)
            return True
        finally:
            self.watchdog.stop()
            self.reporter.close()
            self.engine.disconnect()

    def _begin(self) -> None:
        found = self.world.gather(self.progress.step)
        if len(set(found)) > 1:
            raise ValueError(
                f"{self.folder.path}: ranks find the states of different steps there "
                f"({', '.join(map(str, found))}); put --model_dir where all machines see it"
            )
        self.watchdog.start()
        self.engine.connect()
        resumed = self.written is not None
        if self.world.rank == 0:
            self.folder.open(self.config, resumed=resumed)
            lengths = {"utterance_seconds": self.train.utterance_seconds()}
            self.folder.note_start(environment(self.world, self.progress.step + 1) | lengths)
            self.reporter.open(self.progress.step + 1, self.written)
        self.engine.size_limit.keep_in(self.folder.path / TOO_LARGE, self.world)
        if not resumed:
            self._save_weights("init")
            self.save()

    def _save_weights(self, name: str) -> None:
        weights = self.engine.weights()
        if self.world.rank == 0:
            self.folder.save_weights(name, weights)

    def _steps_to_do(self) -> int:
        """Optimizer steps from here to the end of the epoch."""
        if self.progress.trained:
            return 0
        steps_of_data = math.ceil(len(self.train) / self.config.accum_grad)
        return min(steps_of_data, (self.config.max_steps or sys.maxsize) - self.progress.step)

    def _train_epoch(self) -> bool:
        """The rest of the current epoch; False when a rank was asked to stop, with the state saved."""
        progress, config = self.progress, self.config
        began = time.perf_counter()
        self.watchdog.beat(f"reading the data of step {progress.step + 1}")
        for micro_batches, wait in timed(steps(self.train, config.accum_grad)):
            self.watchdog.beat(f"step {progress.step + 1}")
            also = {"wait": wait, "stop": float(self.stop.asked)}
            outcome = self.engine.step(micro_batches, progress.step + 1, also)
            stop = outcome.sums.pop("stop") > 0
            now = time.perf_counter()
            outcome.sums["elapsed"] = (now - began) * self.world.size
            began = now
            self._account(outcome, micro_batches)
            progress.trained = progress.step == config.max_steps
            if stop or (config.save_interval and progress.step % config.save_interval == 0):
                self.save()
            if stop:
                return False
            if progress.trained:
                break
            self.watchdog.beat(f"reading the data of step {progress.step + 1}")
        progress.trained = True
        return True

    def _account(self, outcome: StepOutcome, micro_batches: list[Batch]) -> None:
        progress = self.progress
        progress.step += 1
        progress.epoch_step += 1
        progress.samples += tally(micro_batches)
        progress.costs.update(cost_bin(batch) for batch in micro_batches if len(batch))
        self.reporter.step()
        if outcome.applied:
            progress.nonfinite = 0
            progress.interval.add(outcome.sums)
            progress.total.add(outcome.sums)
        else:
            self._skip(micro_batches)
        if progress.step % self.config.log_interval == 0:
            scalars = {**self._means(progress.interval), "lr": outcome.lrs[-1], "grad_norm": outcome.grad_norm}
            self.reporter.interval(progress.step, scalars)
            progress.interval = Totals()

    def _skip(self, micro_batches: list[Batch]) -> None:
        self.progress.nonfinite += 1
        self.progress.nonfinite_in_epoch += 1
        keys = " ".join(key for batch in micro_batches for key in batch.keys[:3])
        log.warning("step %d skipped: its gradient is not finite (here: %s …)", self.progress.step, keys)
        if self.progress.nonfinite > self.config.max_nonfinite_steps:
            raise ValueError(
                f"step {self.progress.step}: {self.progress.nonfinite} steps in a row without a finite gradient, "
                "max_nonfinite_steps allows no more; lower optim_conf.lr, or look at the utterances named above"
            )

    def _end_epoch(self) -> bool:
        """Validate, report and save; False when a rank was asked to stop meanwhile, with the state saved."""
        progress = self.progress
        cv = FirstUtterance(self.cv)
        sums = self.engine.validate(cv, self._asked_in_validation)
        if sums is None:
            self.save()
            return False
        validation = Totals(sums)
        lrs = self.engine.lrs(progress.step)
        train = {**self._means(progress.total), "lr": lrs[-1]}
        samples, costs = self._of_all_ranks(progress.samples + self.train.left_out(progress.epoch), progress.costs)
        account = reconciled(samples)
        self.reporter.end_epoch(progress.step, train, self._means(validation), account, costs)
        if self.config.observe_interval and progress.epoch % self.config.observe_interval == 0:
            self.watchdog.beat(f"pictures after step {progress.step}")
            self.reporter.observed(progress.step, observe(self.engine, cv.batch))
        loss = validation.losses()["loss"]
        weights = self.engine.weights()
        if self.world.rank == 0:
            measured = {
                "step": progress.step,
                "lrs": lrs,
                "loss_dict": validation.losses(),
                "train_loss_dict": progress.total.losses(),
                "samples": asdict(account),
                "nonfinite_steps": progress.nonfinite_in_epoch,
            }
            self.folder.save_epoch(progress.epoch, weights, measured)
        progress.end_epoch(loss)
        self.save()
        if self.world.rank == 0:
            self.folder.keep(self.config.keep_last, self.config.keep_best)
        return True

    def _asked_in_validation(self) -> bool:
        self.watchdog.beat(f"validation after step {self.progress.step}")
        return self.stop.asked

    def _of_all_ranks(self, *counts: Counter[Any]) -> list[Counter[Any]]:
        ranks = self.world.gather([dict(each) for each in counts])
        return [sum(map(Counter, each), Counter()) for each in zip(*ranks, strict=True)]

    def _means(self, totals: Totals) -> dict[str, float]:
        return {**totals.losses(), **totals.throughput(self.world.size)}
