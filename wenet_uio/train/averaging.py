"""Average the weights of several epochs of one run into one model (Polyak and Juditsky 1992).

Runs that started from one trained model have a mean, too (Wortsman et al. 2022,
https://arxiv.org/abs/2203.05482). `running_weights` takes the running average of a run, or that of
a range of its epochs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from wenet_uio.base.files import written_aside
from wenet_uio.base.run_files import INIT, RUNNING
from wenet_uio.config.train import LoraConf
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.lora import is_lora, merge_lora
from wenet_uio.models.weights import read_weights
from wenet_uio.train.baseline import BEFORE, Baseline
from wenet_uio.train.checkpoint import numbered_files

log = logging.getLogger(__name__)

EPOCHS = 5
"""Epochs that are averaged by default."""
NEAR = 1.25
"""An epoch counts if its validation loss is at most this times the lowest. A mean of weights is good
where the loss is about as low at each of them; an epoch of the warm-up, say, is elsewhere. The limit
depends on the best epoch alone, so that no other epoch changes it."""
NEAR_ZERO = 0.1
"""An epoch also counts if its loss is at most this above the lowest: near 0, losses of epochs that are
equally good differ by large factors."""


@dataclass(frozen=True)
class Epoch:
    """The weights of an epoch in the folder of a run."""

    number: int
    weights: Path
    loss: float | None = None
    """Validation loss; None if it was not read."""


def choose_epochs(
    folder: str | Path,
    num: int,
    *,
    val_best: bool,
    min_epoch: int = 0,
    max_epoch: int | None = None,
) -> list[Epoch]:
    """Choose `num` epochs of a run: those with the lowest validation loss, or the newest.

    Epochs whose validation loss is infinite, not a number, or far above the lowest one are left out.
    Of a run that started from a trained model, epochs that are worse than this model are left out.
    If all are, the result is the weights of the start alone, with the number BEFORE.

    Args:
        num: at most this many; the result is shorter if the run has fewer epochs.
        val_best: choose by validation loss.
        min_epoch: first epoch that may be chosen.
        max_epoch: last epoch that may be chosen; None: no limit.

    Returns:
        The best (or newest) epoch first.

    Raises:
        OSError: the yaml of an epoch cannot be opened.
        ValueError: no epoch is left to choose from, or a yaml has no loss.
    """
    epochs = [Epoch(number, path) for number, path in numbered_files(Path(folder), "epoch_*.pt")]
    last = math.inf if max_epoch is None else max_epoch
    allowed = [epoch for epoch in epochs if min_epoch <= epoch.number <= last]
    baseline = Baseline.read(Path(folder))
    if baseline and allowed:
        allowed = _leave_out_worse(allowed, baseline, Path(folder))
    allowed = _leave_out_spoilt(allowed, Path(folder))

    ordered = sorted(allowed, key=lambda epoch: epoch.number, reverse=True)
    if val_best:
        ordered = _sort_by_loss(allowed)
    if not ordered:
        upper = "" if max_epoch is None else max_epoch
        raise ValueError(
            f"{folder}: no epoch_N.pt to average (N in {min_epoch}..{upper}), {len(epochs)} in all; "
            "train first"
        )

    return _first_near_ones(ordered, num, Path(folder))


def _first_near_ones(epochs: Sequence[Epoch], num: int, folder: Path) -> list[Epoch]:
    """Return the first `num` epochs whose validation loss is near the lowest one, see NEAR and
    NEAR_ZERO; name those among the first that are not.

    An epoch without a recorded loss, as of runs of other packages, is taken.
    """
    losses: dict[Epoch, float] = {}
    for epoch in epochs:
        loss = _recorded_loss(epoch.weights.with_suffix(".yaml"))
        if isinstance(loss, float | int):
            losses[epoch] = loss

    lowest = min(losses.values(), default=0.0)
    limit = lowest + max((NEAR - 1) * abs(lowest), NEAR_ZERO)
    far = [epoch for epoch in epochs if losses.get(epoch, lowest) > limit]

    left_out = [
        f"{epoch.weights.name} ({losses[epoch]:.4g})" for epoch in epochs[:num] if epoch in far
    ]
    if left_out:
        log.warning(
            "%s: left out, validation loss far above the lowest, %.4g: %s",
            folder,
            lowest,
            ", ".join(left_out),
        )

    return [epoch for epoch in epochs if epoch not in far][:num]


def add_start(epochs: Sequence[Epoch], folder: str | Path) -> list[Epoch]:
    """Add the trained model that a run started from, unless it is there: the last, number BEFORE.

    Raises:
        ValueError: the run did not start from a trained model.
    """
    Baseline.require(Path(folder), "--with_start")
    if any(epoch.number == BEFORE for epoch in epochs):
        return [*epochs]
    return [*epochs, _start_epoch(Path(folder))]


def check_common_start(folders: Sequence[str | Path], *, merges_lora: bool = False) -> None:
    """Check that runs started from one trained model: the mean of unlike models is no model.

    Layers that are new in each run, such as that of CTC, may differ; a warning names them.

    Args:
        merges_lora: low-rank weights are merged before the mean is taken.

    Raises:
        OSError, ValueError: a run is named twice or did not start from a trained model, or the
            weights of a start cannot be read; or low-rank weights are not merged, whose product is
            another one after a mean of each factor.
    """
    runs = [Path(folder) for folder in folders]
    _check_runs(runs)
    first = read_weights(_start_epoch(runs[0]).weights)
    without_lora = {name: value for name, value in first.items() if not is_lora(name)}
    if len(without_lora) < len(first) and not merges_lora:
        raise ValueError(
            f"{runs[0]}: low-rank weights (LoRA) of several runs have no mean; --merge_lora merges "
            "those of each run before"
        )

    for run in runs[1:]:
        _compare_start(run, runs[0], without_lora)


def _check_runs(runs: Sequence[Path]) -> None:
    """Raise a ValueError for a run that is named twice or did not start from a trained model."""
    places = [run.resolve() for run in runs]
    for run, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"{run}: named twice; its epochs would count twice")
        if Baseline.read(run) is None:
            raise ValueError(
                f"{run}: this run did not start from a trained model; only runs that started from "
                "the same one have a mean"
            )


def _compare_start(run: Path, other: Path, start_of_other: Mapping[str, torch.Tensor]) -> None:
    """Warn if some weights that a run started with differ from those of another run.

    Raises:
        ValueError: more than half of them differ, so that the runs started from two models.
    """
    start = read_weights(_start_epoch(run).weights)
    unlike = [
        name
        for name, value in start_of_other.items()
        if name not in start or not torch.equal(start[name], value)
    ]
    if len(unlike) > len(start_of_other) / 2:  # CMVN and the like may be equal by chance
        raise ValueError(
            f"{run}: did not start from the model that {other} started from, so they have no mean"
        )
    if unlike:
        log.warning(
            "%s: started with other weights than %s in %d of %d, such as %s; those of new layers "
            "may differ, others may not",
            run,
            other,
            len(unlike),
            len(start_of_other),
            unlike[0],
        )


def _leave_out_worse(epochs: Sequence[Epoch], baseline: Baseline, folder: Path) -> list[Epoch]:
    """Return the epochs that are no worse than the start of the run, or the start if all are."""
    worse = [
        epoch
        for epoch in epochs
        if epoch.weights.with_suffix(".yaml").exists()
        and baseline.is_better(_validation_losses(epoch.weights))
    ]
    if worse:
        names = ", ".join(epoch.weights.name for epoch in worse)
        log.warning("%s: left out, worse than before fine-tuning: %s", folder, names)
    if len(worse) < len(epochs):
        return [epoch for epoch in epochs if epoch not in worse]

    log.warning("%s: no epoch is better than the model before fine-tuning, which is taken", folder)
    return [_start_epoch(folder)]


def _start_epoch(folder: Path) -> Epoch:
    """Return the weights of a run before its first step."""
    return Epoch(BEFORE, folder / f"{INIT}.pt")


def _validation_losses(weights: Path) -> dict[str, float]:
    """Return the validation losses in the yaml beside the weights.

    Raises:
        ValueError: the yaml has none.
    """
    record = read_yaml(weights.with_suffix(".yaml"))
    losses = record.get("loss_dict") if isinstance(record, dict) else None
    if not isinstance(losses, dict):
        raise ValueError(f"{weights.with_suffix('.yaml')}: expected numbers under loss_dict")
    return losses


def _leave_out_spoilt(epochs: Sequence[Epoch], folder: Path) -> list[Epoch]:
    """Leave out the epochs whose validation loss is not finite, with a warning.

    Raises:
        ValueError: all are left out.
    """
    spoilt = [epoch for epoch in epochs if _has_spoilt_validation(epoch.weights)]
    if spoilt and len(spoilt) == len(epochs):
        raise ValueError(
            f"{folder}: the validation loss of no epoch is finite, {len(epochs)} in all; the log of "
            "the training says why"
        )
    if spoilt:
        names = ", ".join(epoch.weights.name for epoch in spoilt)
        log.warning("%s: left out, the validation loss is not finite: %s", folder, names)

    return [epoch for epoch in epochs if epoch not in spoilt]


def _has_spoilt_validation(weights: Path) -> bool:
    """Tell whether the yaml beside the weights has a validation loss that is not finite."""
    loss = _recorded_loss(weights.with_suffix(".yaml"))
    return isinstance(loss, float) and not math.isfinite(loss)


def _recorded_loss(path: Path) -> Any:
    """Read the validation loss from the yaml of an epoch; None if there is no yaml, or no loss in it.

    Older runs of WeNet have it as `cv_loss`, newer ones as `loss_dict: {loss}`.
    """
    record = read_yaml(path) if path.exists() else None
    if not isinstance(record, dict):
        return None
    losses = record.get("loss_dict")
    return losses.get("loss") if isinstance(losses, dict) else record.get("cv_loss")


def _sort_by_loss(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Return the epochs by their validation loss, best first; those without a yaml are left out.

    Of equal losses the newest is first.
    """
    # The weights of an epoch are written before its yaml.
    unfinished = [epoch for epoch in epochs if not epoch.weights.with_suffix(".yaml").exists()]
    if unfinished:
        names = ", ".join(epoch.weights.name for epoch in unfinished)
        log.warning("%s: left out, its validation loss is not written yet", names)

    losses = {epoch: _validation_loss(epoch.weights) for epoch in epochs if epoch not in unfinished}
    ordered = sorted(losses, key=lambda epoch: (losses[epoch], -epoch.number))
    return [replace(epoch, loss=losses[epoch]) for epoch in ordered]


def _validation_loss(weights: Path) -> float:
    """Read the validation loss from the yaml beside the weights.

    Raises:
        ValueError: the yaml has none.
    """
    path = weights.with_suffix(".yaml")
    loss = _recorded_loss(path)
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise ValueError(
            f"{path}: expected a number as loss_dict.loss or cv_loss, found {loss!r}"
        ) from None


def average_weights(paths: Sequence[Path], lora: LoraConf | None = None) -> dict[str, torch.Tensor]:
    """Return the mean of state dicts, in the types of the first.

    Integer buffers are copied from the first. Sums are float64. Weights that are one tensor in the
    first, such as a decoder's embedding that is its output layer, stay one tensor, also in a file.

    Args:
        lora: merge the low-rank weights of each before.

    Raises:
        OSError, ValueError: a file cannot be read, is not a state dict, is of another model than
            the first, or has no low-rank weights to merge.
    """
    first = merge_if_lora(read_weights(paths[0]), lora)
    shapes = {name: value.shape for name, value in first.items()}
    sums = {name: value.double() for name, value in first.items() if value.is_floating_point()}
    for path in paths[1:]:
        weights = merge_if_lora(read_weights(path), lora)
        if {name: value.shape for name, value in weights.items()} != shapes:
            raise ValueError(
                f"{path}: not of the same model as {paths[0]}; names or shapes of the weights "
                "differ"
            )

        for name, total in sums.items():
            total += weights[name]

    means = {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}
    return tie_weights({**first, **means}, first)


def merge_if_lora(
    weights: dict[str, torch.Tensor], lora: LoraConf | None
) -> dict[str, torch.Tensor]:
    """Return weights with low-rank weights merged, if `lora` is their config."""
    return weights if lora is None else merge_lora(weights, lora)


def tie_weights(
    weights: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights; names that share one tensor in `like` share one tensor again."""
    memories = {
        name: (weight.data_ptr(), weight.shape, weight.stride()) for name, weight in like.items()
    }
    # Of the names that share a tensor, the last one gives its value to all of them.
    name_by_memory = {memory: name for name, memory in memories.items()}
    return {name: weights[name_by_memory[memory]] for name, memory in memories.items()}


def usual_range(folder: str | Path, last: int) -> int | None:
    """Return how many epochs up to `last` `running_weights` should average by default.

    An average over a whole run contains the weights of its first steps, and is often worse than the
    newest weights. So this is `EPOCHS`, or as few more as the files that were kept allow. None, for
    all epochs: the average is exponential or has a first step, or no earlier average was kept.
    """
    folder = Path(folder)
    record = _read_record(folder, last)
    if record["decay"] is not None or record["since"]:
        return None

    kept = [
        epoch for epoch, _ in numbered_files(folder, f"{RUNNING}_*.pt") if epoch <= last - EPOCHS
    ]
    return last - max(kept) if kept else None


def running_weights(
    folder: str | Path, last: int, num: int | None = None
) -> dict[str, torch.Tensor]:
    """Return the running average at the end of epoch `last`, or of its last `num` epochs alone.

    An average of n weights up to one epoch and of m weights up to an earlier one give the average
    of the n - m weights between them.

    Raises:
        OSError, ValueError: the run has no running average of these epochs, or a file cannot be
            read.
    """
    folder = Path(folder)
    weights, record = _read_running_average(folder, last)
    before = -1 if num is None else last - num
    if before < 0:
        return weights

    if record["decay"] is not None:
        raise ValueError(
            f"{folder}: model_avg.decay {record['decay']}: an exponential average has no ranges of "
            "epochs; leave out --num"
        )

    earlier_weights, earlier_record = _read_running_average(folder, before)
    count, earlier_count = record["count"], earlier_record["count"]
    if not earlier_count:
        return weights

    if count <= earlier_count:
        raise ValueError(
            f"{folder}: no weights were averaged in epochs {before + 1} to {last}; give a larger "
            "--num"
        )

    # The mean of the weights in between is (n * mean - m * earlier_mean) / (n - m). It is computed
    # as a correction of the mean.
    share = earlier_count / (count - earlier_count)
    means = {}
    for name, value in weights.items():
        if value.is_floating_point():
            mean = value.double()
            means[name] = (mean + share * (mean - earlier_weights[name])).to(value.dtype)

    return {**weights, **means}


def _read_running_average(
    folder: Path, epoch: int
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the running average at the end of an epoch, and its record.

    The average is empty if nothing is averaged yet.
    """
    record = _read_record(folder, epoch)
    weights = read_weights(folder / f"{RUNNING}_{epoch}.pt") if record["count"] else {}
    return weights, record


def _read_record(folder: Path, epoch: int) -> dict[str, Any]:
    """Read the record of the running average from the yaml of an epoch."""
    values = read_yaml(folder / f"epoch_{epoch}.yaml")
    record = values.get("model_avg") if isinstance(values, dict) else None
    if record is None:
        raise ValueError(f"{folder}: epoch {epoch} has no running average; train with model_avg")
    return record


def newest_running(folder: str | Path, min_epoch: int = 0, max_epoch: int | None = None) -> int:
    """Return the newest epoch that has a running average and a finite validation loss.

    Raises:
        ValueError: no epoch within the limits has one.
    """
    folder = Path(folder)
    last = math.inf if max_epoch is None else max_epoch
    averaged = [
        Epoch(number, folder / f"epoch_{number}.pt")
        for number, _ in numbered_files(folder, f"{RUNNING}_*.pt")
        if min_epoch <= number <= last
    ]
    epochs = [epoch.number for epoch in _leave_out_spoilt(averaged, folder)]
    if not epochs:
        raise ValueError(
            f"{folder}: no {RUNNING}_N.pt; train with model_avg, with an interval of fewer steps "
            "than an epoch has"
        )

    return max(epochs)


def save_average(
    weights: dict[str, torch.Tensor], destination: str | Path, *, only_lora: bool = False
) -> None:
    """Write weights; with `only_lora`, low-rank weights alone.

    Raises:
        ValueError: there are no low-rank weights.
    """
    if only_lora:
        weights = {name: value for name, value in weights.items() if is_lora(name)}
        if not weights:
            raise ValueError("no low-rank weights: the model was trained without use_lora")
    with written_aside(destination) as file:
        torch.save(weights, file)
