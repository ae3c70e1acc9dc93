"""How far a run is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from wenet_uio.train.metrics import Totals


@dataclass
class Progress:
    """How far the run is; sums are over all ranks."""

    epoch: int = 0
    """Epochs that are complete, or the number of the one under way."""
    step: int = 0
    """Optimizer steps since the start of the run."""
    epoch_step: int = 0
    """Optimizer steps since the start of the epoch."""
    trained: bool = False
    """The steps of the epoch are done, its validation is not."""
    nonfinite: int = 0
    """Steps in a row without a finite gradient."""
    nonfinite_in_epoch: int = 0
    """Steps of the epoch without one."""
    best_loss: float = math.inf
    """Lowest validation loss."""
    epochs_since_best: int = 0
    interval: Totals = field(default_factory=Totals)
    """Since the last report."""
    total: Totals = field(default_factory=Totals)
    """Since the start of the epoch."""
    samples: Counter[str] = field(default_factory=Counter)
    """Tally of this epoch's samples: a rank's own, and on rank 0 that of all up to the last save."""
    costs: Counter[int] = field(default_factory=Counter)
    """Batches of this epoch by `metrics.cost_bin`; whose, as of `samples`."""

    def end_epoch(self, loss: float) -> None:
        """Count the epoch, whose validation loss was `loss`."""
        self.epochs_since_best += 1
        if loss < self.best_loss:
            self.best_loss, self.epochs_since_best = loss, 0
        self.epoch += 1
        self.epoch_step = self.nonfinite_in_epoch = 0
        self.trained = False
        self.total, self.samples, self.costs = Totals(), Counter(), Counter()

    def state_dict(self) -> dict[str, Any]:
        sums = {"interval": self.interval.sums, "total": self.total.sums}
        return {**vars(self), **sums, "samples": dict(self.samples), "costs": dict(self.costs)}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Progress:
        sums = {
            "interval": Totals(state["interval"]),
            "total": Totals(state["total"]),
            "samples": Counter(state["samples"]),
            "costs": Counter(state["costs"]),
        }
        return cls(**{**state, **sums})
