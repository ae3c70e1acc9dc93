"""Epochs of training and validation, from wherever the run was left to its end. The file to read first."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from wenet_uio.config import Config
from wenet_uio.dataset.ledger import reconciled, tally
from wenet_uio.dataset.types import Batch
from wenet_uio.train.checkpoint import RunFolder, differences
from wenet_uio.train.engine import DdpEngine, SizedBatches, StepOutcome, steps, timed
from wenet_uio.train.metrics import Totals
from wenet_uio.train.report import Reporter

log = logging.getLogger(__name__)


class Loader(SizedBatches, Protocol):
    """One epoch's batches of this rank, from a position that can be saved."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None: ...
    def left_out(self, epoch: int) -> Counter[str]: ...


@dataclass
class Progress:
    """How far the run is; sums are over all ranks."""

    epoch: int = 0
    """Epochs that are complete, or the number of the one under way."""
    step: int = 0
    """Optimizer steps since the start of the run."""
    epoch_step: int = 0
    """Optimizer steps since the start of the epoch."""
    nonfinite: int = 0
    """Steps in a row without a finite gradient."""
    interval: Totals = field(default_factory=Totals)
    """Since the last report."""
    total: Totals = field(default_factory=Totals)
    """Since the start of the epoch."""
    samples: Counter[str] = field(default_factory=Counter)
    """Tally of this epoch's samples: a rank's own, and on rank 0 that of all up to the last save."""

    def state_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("epoch", "step", "epoch_step", "nonfinite")}
        sums = {"interval": self.interval.sums, "total": self.total.sums, "samples": dict(self.samples)}
        return {**plain, **sums}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Progress:
        sums = {
            "interval": Totals(state["interval"]),
            "total": Totals(state["total"]),
            "samples": Counter(state["samples"]),
        }
        return cls(**{**state, **sums})


class Trainer:
    """Every rank runs one; they stay in step, and rank 0 writes."""

    def __init__(
        self, config: Config, engine: DdpEngine, train: Loader, cv: Loader, folder: RunFolder, reporter: Reporter
    ) -> None:
        self.config = config
        self.engine = engine
        self.world = engine.world
        self.train = train
        self.cv = cv
        self.folder = folder
        self.reporter = reporter
        self.progress = Progress()
        self.resumed = False
        self.stop_wanted = False

    def run(self) -> bool:
        """Train to `max_epoch`; False when a SIGTERM ended it before, with its state saved."""
        if self.progress.epoch >= self.config.max_epoch:
            log.info("%s: complete, max_epoch %d is reached", self.folder.path, self.config.max_epoch)
        elif not self._train():
            return False
        if self.world.rank == 0:
            self.folder.finish(self.progress.epoch - 1)
        return True

    def save(self) -> None:
        """Write the state of the run. A joint act of all ranks."""
        samples = self._of_all_ranks(self.progress.samples)
        self.progress.samples = samples if self.world.rank == 0 else Counter()
        if self.world.rank == 0:
            state = {
                **self.engine.state_dict(),
                "data": self.train.state_dict(),
                "progress": self.progress.state_dict(),
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
            self.progress.samples = Counter()
        self.resumed = True
        log.info("going on from step %d, in epoch %d", self.progress.step, self.progress.epoch)

    def _train(self) -> bool:
        previous = signal.signal(signal.SIGTERM, self._ask_to_stop)
        try:
            self._begin()
            while self.progress.epoch < self.config.max_epoch:
                if not self._train_epoch():
                    return False
                self._end_epoch()
            return True
        finally:
            signal.signal(signal.SIGTERM, previous)
            self.reporter.close()
            self.engine.disconnect()

    def _begin(self) -> None:
        self.engine.connect()
        if self.world.rank == 0:
            self.folder.open(self.config)
            self.reporter.open(self.progress.step + 1)
            if not self.resumed:
                self.folder.save_weights("init", self.engine.model)
        if not self.resumed:
            self.save()

    def _ask_to_stop(self, *_: Any) -> None:
        self.stop_wanted = True

    def _train_epoch(self) -> bool:
        """The rest of the current epoch; False when a rank was asked to stop."""
        progress, config = self.progress, self.config
        remaining = math.ceil(len(self.train) / config.accum_grad)
        self.reporter.begin_epoch(progress.epoch, progress.epoch_step, progress.epoch_step + remaining)
        began = time.perf_counter()
        for micro_batches, wait in timed(steps(self.train, config.accum_grad)):
            also = {"wait": wait, "stop": float(self.stop_wanted)}
            outcome = self.engine.step(micro_batches, progress.step + 1, also)
            stop = outcome.sums.pop("stop") > 0
            now = time.perf_counter()
            outcome.sums["elapsed"] = (now - began) * self.world.size
            began = now
            self._account(outcome, micro_batches)
            if stop or (config.save_interval and progress.step % config.save_interval == 0):
                self.save()
            if stop:
                log.info("asked to stop: state saved after step %d", progress.step)
                return False
        return True

    def _account(self, outcome: StepOutcome, micro_batches: list[Batch]) -> None:
        progress = self.progress
        progress.step += 1
        progress.epoch_step += 1
        progress.samples += tally(micro_batches)
        self.reporter.step()
        if outcome.applied:
            progress.nonfinite = 0
            progress.interval.add(outcome.sums)
            progress.total.add(outcome.sums)
        else:
            self._skip(micro_batches)
        if progress.step % self.config.log_interval == 0:
            scalars = {**self._means(progress.interval), "lr": outcome.lr, "grad_norm": outcome.grad_norm}
            self.reporter.interval(progress.step, scalars)
            progress.interval = Totals()

    def _skip(self, micro_batches: list[Batch]) -> None:
        self.progress.nonfinite += 1
        keys = " ".join(key for batch in micro_batches for key in batch.keys[:3])
        log.warning("step %d skipped: its gradient is not finite (here: %s …)", self.progress.step, keys)
        if self.progress.nonfinite > self.config.max_nonfinite_steps:
            raise ValueError(
                f"step {self.progress.step}: {self.progress.nonfinite} steps in a row without a finite gradient, "
                "max_nonfinite_steps allows no more; lower optim_conf.lr, or look at the utterances named above"
            )

    def _end_epoch(self) -> None:
        """Validate, report and save."""
        progress = self.progress
        validation = Totals(self.engine.validate(self.cv))
        train = {**self._means(progress.total), "lr": self.engine.lr(progress.step)}
        cv = self._means(validation)
        account = reconciled(self._of_all_ranks(progress.samples + self.train.left_out(progress.epoch)))
        self.reporter.end_epoch(progress.step, train, cv, account)
        if self.world.rank == 0:
            measured = {
                "step": progress.step,
                "lrs": [train["lr"]],
                "loss_dict": validation.losses(),
                "train_loss_dict": progress.total.losses(),
                "samples": asdict(account),
            }
            self.folder.save_epoch(progress.epoch, self.engine.model, measured)
        progress.epoch += 1
        progress.epoch_step = 0
        progress.total, progress.samples = Totals(), Counter()
        self.save()
        if self.world.rank == 0:
            self.folder.keep(self.config.keep_last, self.config.keep_best)

    def _of_all_ranks(self, counts: Counter[str]) -> Counter[str]:
        return sum(map(Counter, self.world.gather(dict(counts))), Counter())

    def _means(self, totals: Totals) -> dict[str, float]:
        return {**totals.losses(), **totals.throughput(self.world.size)}
