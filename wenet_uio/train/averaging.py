"""Average the weights of several epochs of one run into one model (Polyak and Juditsky 1992)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from wenet_uio.config.train import LoraConf
from wenet_uio.files import written_aside
from wenet_uio.models.lora import merge_lora
from wenet_uio.models.weights import read_weights
from wenet_uio.train.checkpoint import numbered


@dataclass(frozen=True)
class Epoch:
    """The weights of an epoch in the folder of a run."""

    number: int
    weights: Path
    loss: float | None = None
    """Validation loss; None if it was not read."""


def choose_epochs(
    folder: str | Path, num: int, *, val_best: bool, min_epoch: int = 0, max_epoch: int | None = None
) -> list[Epoch]:
    """Choose `num` epochs of a run: those with the lowest validation loss, or the newest.

    Args:
        num: at most this many; the result is shorter if the run has fewer epochs.
        val_best: choose by validation loss; epochs whose loss is infinite or not a number are left out.
        min_epoch: first epoch that may be chosen.
        max_epoch: last epoch that may be chosen; None: no limit.

    Returns:
        The best (or newest) epoch first.

    Raises:
        OSError: the yaml of an epoch cannot be read.
        ValueError: no epoch is left to choose from, or a yaml has no loss.
    """
    found = [Epoch(number, path) for number, path in numbered(Path(folder), "epoch_*.pt")]
    last = math.inf if max_epoch is None else max_epoch
    allowed = [epoch for epoch in found if min_epoch <= epoch.number <= last]
    chosen = _by_loss(allowed) if val_best else sorted(allowed, key=lambda epoch: -epoch.number)
    if not chosen:
        upper = "" if max_epoch is None else max_epoch
        raise ValueError(
            f"{folder}: no epoch_N.pt to average (N in {min_epoch}..{upper}), {len(found)} in all; train first"
        )
    return chosen[:num]


def _by_loss(epochs: Sequence[Epoch]) -> list[Epoch]:
    """The epochs with a finite validation loss, best first; of equal losses the newest first."""
    losses = {epoch: _validation_loss(epoch.weights) for epoch in epochs}
    finite = [epoch for epoch in epochs if math.isfinite(losses[epoch])]
    finite.sort(key=lambda epoch: (losses[epoch], -epoch.number))
    return [replace(epoch, loss=losses[epoch]) for epoch in finite]


def _validation_loss(weights: Path) -> float:
    """Read the yaml of the weights: `loss_dict: {loss}`, or `cv_loss` as older runs of WeNet have it."""
    path = weights.with_suffix(".yaml")
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    record = record if isinstance(record, dict) else {}
    losses = record.get("loss_dict")
    loss: Any = losses.get("loss") if isinstance(losses, dict) else record.get("cv_loss")
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: expected a number as loss_dict.loss or cv_loss, found {loss!r}") from None


def average_weights(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Mean of state dicts, in the types of the first; integer buffers are copied from the first. Sums are float64.

    Raises:
        OSError, ValueError: a file cannot be read, is not a state dict, or is of another model than the first.
    """
    first = read_weights(paths[0])
    sums = {name: value.double() for name, value in first.items() if value.is_floating_point()}
    for path in paths[1:]:
        weights = read_weights(path)
        if {name: value.shape for name, value in weights.items()} != {
            name: value.shape for name, value in first.items()
        }:
            raise ValueError(f"{path}: not of the same model as {paths[0]}; names or shapes of the weights differ")
        for name, total in sums.items():
            total += weights[name]
    means = {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **means}


def average_checkpoints(epochs: Sequence[Epoch], destination: str | Path, lora: LoraConf | None = None) -> None:
    """Write the mean of the weights of the epochs; see `average_weights`. With `lora`, low-rank weights are merged."""
    weights = average_weights([epoch.weights for epoch in epochs])
    if lora is not None:
        weights = merge_lora(weights, lora)
    with written_aside(destination) as file:
        torch.save(weights, file)
