"""The loss of a trained model before its fine-tuning: what the epochs of the run are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wenet_uio.base.run_files import INIT
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.trainable_model import TrainableModel

BEFORE = -1
"""Number of the epoch before the first step."""
CTC_LOSSES = ("loss_ctc", "loss_interctc", "loss_cr")


def compared_losses(model: TrainableModel, *, ctc_is_new: bool) -> dict[str, float]:
    """Return {name of a loss: weight} of the sum that says whether a model becomes better.

    This is `loss`, without the share of CTC if the CTC layer is new: its first loss is that of
    random weights, and any training lowers it.
    """
    shares = model.loss_weights() if ctc_is_new else {}
    ctc_weights = {name: -shares[name] for name in CTC_LOSSES if shares.get(name, 0.0) > 0.0}
    return {"loss": 1.0, **ctc_weights}


def compared_loss(losses: Mapping[str, float], compared: Mapping[str, float]) -> float:
    """Return the weighted sum of the losses that are compared."""
    return sum(weight * losses[name] for name, weight in compared.items())


def describe_compared(compared: Mapping[str, float]) -> str:
    """Return the sum in words."""
    return "loss" if len(compared) == 1 else "loss without CTC"


@dataclass(frozen=True)
class Baseline:
    """The record init.yaml of a run that started from a trained model."""

    loss: float
    compared: Mapping[str, float]

    @classmethod
    def read(cls, folder: Path) -> Baseline | None:
        """Read the record of a run; None if the run did not start from a trained model.

        Raises:
            ValueError: the record is damaged.
        """
        path = folder / f"{INIT}.yaml"
        if not path.exists():
            return None

        record: Any = read_yaml(path)
        try:
            compared = {name: float(weight) for name, weight in record["compared"].items()}
            return cls(compared_loss(record["loss_dict"], compared), compared)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(
                f"{path}: expected loss_dict and compared, with numbers by name; remove the file "
                "to average without a comparison"
            ) from None

    @classmethod
    def require(cls, folder: Path, option: str) -> Baseline:
        """As `read`, for an option that needs the start.

        Raises:
            ValueError: the run did not start from a trained model, or the record is damaged.
        """
        baseline = cls.read(folder)
        if baseline is None:
            raise ValueError(
                f"{folder}: this run did not start from a trained model, so its start is random; leave "
                f"out {option}"
            )
        return baseline

    @property
    def has_new_ctc(self) -> bool:
        """Whether the run trains a CTC layer that the model before fine-tuning lacks."""
        return len(self.compared) > 1

    def is_better(self, losses: Mapping[str, float]) -> bool:
        """Tell whether the model before fine-tuning is better than one with these losses."""
        if not math.isfinite(self.loss):
            return False  # nothing is known of it
        return not compared_loss(losses, self.compared) <= self.loss  # NaN is worse, too
