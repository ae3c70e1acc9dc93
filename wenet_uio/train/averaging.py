"""Average the weights of several epochs of one run into one model (Polyak and Juditsky 1992)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from wenet_uio.files import written_aside
from wenet_uio.models.weights import read_weights
from wenet_uio.train.checkpoint import numbered


@dataclass(frozen=True)
class Epoch:
    """Weights that a run kept."""

    number: int
    weights: Path
    loss: float | None = None
    """Validation loss; None where it was not asked for."""


def choose_epochs(
    folder: str | Path, num: int, *, val_best: bool, min_epoch: int = 0, max_epoch: int | None = None
) -> list[Epoch]:
    """The `num` epochs of a run with the lowest validation loss, or the newest; the best of them first.

    Fewer come back where the run has fewer. Epochs beyond min_epoch .. max_epoch do not count, nor with `val_best`
    those whose loss is not a number.

    Raises:
        OSError: when the yaml beside an epoch_N.pt cannot be read.
        ValueError: when there is none, or a yaml tells no loss.
    """
    found = [Epoch(number, path) for number, path in numbered(Path(folder), "epoch_*.pt")]
    chosen = [
        epoch for epoch in found if min_epoch <= epoch.number and (max_epoch is None or epoch.number <= max_epoch)
    ]
    if val_best:
        measured = [Epoch(epoch.number, epoch.weights, _validation_loss(epoch.weights)) for epoch in chosen]
        chosen = [epoch for epoch in measured if math.isfinite(epoch.loss)]
        chosen.sort(key=lambda epoch: (epoch.loss, -epoch.number))
    else:
        chosen.sort(key=lambda epoch: -epoch.number)
    if not chosen:
        upper = "" if max_epoch is None else max_epoch
        raise ValueError(
            f"{folder}: no epoch_N.pt to average (N in {min_epoch}..{upper}), {len(found)} in all; train first"
        )
    return chosen[:num]


def _validation_loss(weights: Path) -> float:
    """From the yaml beside the weights: `loss_dict: {loss}`, or `cv_loss` in older runs of WeNet."""
    path = weights.with_suffix(".yaml")
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    record = record if isinstance(record, dict) else {}
    losses = record.get("loss_dict")
    loss = losses.get("loss") if isinstance(losses, dict) else record.get("cv_loss")
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: expected a number as loss_dict.loss or cv_loss, found {loss!r}") from None


def average_weights(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Mean of state dicts, summed in float64 and kept in the first one's types; integers are the first one's.

    Raises:
        OSError, ValueError: for a file that is not a state dict, or not of the same model.
    """
    first = read_weights(paths[0])
    sums = {name: value.double() for name, value in first.items() if value.is_floating_point()}
    for path in paths[1:]:
        weights = read_weights(path)
        if {name: value.shape for name, value in weights.items()} != {
            name: value.shape for name, value in first.items()
        }:
            raise ValueError(f"{path}: not of the same model as {paths[0]}")
        for name, total in sums.items():
            total += weights[name]
    means = {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **means}


def average_checkpoints(epochs: Sequence[Epoch], destination: str | Path) -> None:
    """Write the mean of the epochs' weights; integer buffers are those of the first epoch."""
    weights = average_weights([epoch.weights for epoch in epochs])
    with written_aside(destination) as file:
        torch.save(weights, file)
