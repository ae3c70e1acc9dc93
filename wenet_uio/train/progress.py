"""Progress of a training run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from wenet_uio.config import Config
from wenet_uio.dataset.ledger import tally
from wenet_uio.dataset.types import Batch
from wenet_uio.train.metrics import Totals, cost_bin
from wenet_uio.train.timing import Place, Timing


@dataclass
class Progress:
    """Counters and sums of a run; sums are over all ranks unless stated otherwise."""

    epoch: int = 0
    """Number of complete epochs, which is also the number of the current epoch."""
    step: int = 0
    """Optimizer steps since the start of the run."""
    epoch_step: int = 0
    """Optimizer steps since the start of the epoch."""
    trained: bool = False
    """True if the steps of the epoch are complete and its validation is not."""
    inside_pass: bool = False
    """True if max_steps or max_hours ended the epoch before the end of its pass. A longer run goes on
    with the same epoch."""
    to_observe: int | None = None
    """Epoch that is saved and whose pictures are not written."""
    nonfinite: int = 0
    """Steps in a row without a finite gradient."""
    nonfinite_in_epoch: int = 0
    """Steps of this epoch without a finite gradient."""
    best_loss: float = math.inf
    """Lowest validation loss."""
    epochs_since_best: int = 0
    start_loss: float | None = None
    """Validation loss before the first step of a fine-tuning, of the parts that were trained."""
    interval: Totals = field(default_factory=Totals)
    """Sums since the last report."""
    total: Totals = field(default_factory=Totals)
    """Sums since the start of the epoch."""
    samples: Counter[str] = field(default_factory=Counter)
    """Samples of this epoch by `ledger.tally`. Each rank counts its own samples since the last
    save; rank 0 also has the samples of all ranks before that save."""
    costs: Counter[int] = field(default_factory=Counter)
    """Batches of this epoch by `metrics.cost_bin`, counted by the ranks like `samples`."""
    timing: Timing = field(default_factory=Timing)

    @property
    def newest_weights(self) -> int:
        """Number of the last epoch that has a validation and weights, complete or not."""
        return self.epoch if self.inside_pass else self.epoch - 1

    def steps_of_epoch(self, rest: int) -> int:
        """Return the number of optimizer steps of the whole epoch that the loader is in; `rest` are
        those that it still has.
        """
        is_in_next_epoch = self.trained and not self.inside_pass
        return rest if is_in_next_epoch else self.epoch_step + rest

    def place(self, config: Config, epoch_steps: int, cv_steps: float) -> Place:
        """Return the place of the run; arguments as in Place."""
        return Place(
            step=self.step,
            rest=max(0, epoch_steps - self.epoch_step),
            epoch_steps=epoch_steps,
            later_epochs=max(0, config.max_epoch - self.epoch - 1),
            cv_steps=cv_steps,
        )

    def count(self, micro_batches: list[Batch]) -> None:
        """Count a step, with the samples and costs of its micro-batches on this rank."""
        self.step += 1
        self.epoch_step += 1
        self.samples += tally(micro_batches)
        self.costs.update(cost_bin(batch) for batch in micro_batches if len(batch))

    def end_reason(self, config: Config) -> str:
        """Return the reason why the run is complete; empty if it is not."""
        if self.trained:
            return ""
        if self.epoch >= config.max_epoch:
            return f"max_epoch {config.max_epoch} is reached"
        if config.max_steps is not None and self.step >= config.max_steps:
            return f"max_steps {config.max_steps} is reached"
        if self.timing.is_over(config):
            return f"max_hours {config.max_hours:g} is reached"
        if config.patience is not None and self.epochs_since_best >= config.patience:
            return f"no lower validation loss in {config.patience} epochs (patience)"

        return ""

    def end_epoch(self, loss: float) -> None:
        """Go to the next epoch; `loss` is the validation loss of the current one.

        An epoch that ended inside its pass stays the current one, and its loss does not count for
        `patience`.
        """
        if self.inside_pass:
            self.trained = False
            return

        self.epochs_since_best += 1
        if loss < self.best_loss:
            self.best_loss, self.epochs_since_best = loss, 0

        self.epoch += 1
        self.epoch_step = self.nonfinite_in_epoch = 0
        self.trained = False
        self.total, self.samples, self.costs = Totals(), Counter(), Counter()

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all fields as plain values."""
        sums = {"interval": dict(self.interval.sums), "total": dict(self.total.sums)}
        counts = {"samples": dict(self.samples), "costs": dict(self.costs)}
        return {**vars(self), **sums, **counts, "timing": self.timing.state_dict()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Progress:
        """Return the progress of a `state_dict`."""
        sums = {
            "interval": Totals(state["interval"]),
            "total": Totals(state["total"]),
            "samples": Counter(state["samples"]),
            "costs": Counter(state["costs"]),
            "timing": Timing.from_state_dict(state["timing"]),
        }
        return cls(**{**state, **sums})
