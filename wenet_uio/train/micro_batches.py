"""Group the batches of a loader into the micro-batches of each optimizer step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch

from wenet_uio.dataset.types import Batch, PairBatch


class SizedBatches(Protocol):
    """Batches of an epoch; `len` is the number of loader steps, each of one or more batches."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


class Loader(SizedBatches, Protocol):
    """Batches of this rank for one epoch, with a position that can be saved.

    `wenet_uio.dataset.Loader` is one.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the position and digests of the data."""
        ...

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Resume at the position of a state."""
        ...

    def left_out(self, epoch: int) -> Counter[str]:
        """Return utterances that the plan of the epoch left out, by reason."""
        ...

    def left_out_of_pass(self) -> Counter[str]:
        """Return utterances that the plan of the present pass leaves out, by reason."""
        ...

    def data_record(self) -> dict[str, Any]:
        """Return the data list, the number of its utterances, their hours, and digests."""
        ...

    def audio_of(self, key: str) -> tuple[np.ndarray, int] | None:
        """Read the samples (T,) and the rate of an utterance; None for a key without audio."""
        ...

    def utterance_seconds(self) -> dict[str, float]:
        """Return the median, 95th percentile and longest utterance."""
        ...


def optimizer_steps(batches: SizedBatches, accum_grad: int) -> Iterator[list[Batch]]:
    """Yield the micro-batches of each optimizer step: the batches of `accum_grad` loader steps.

    The last optimizer step of an epoch may have fewer loader steps. Batches are taken from the
    loader only when they are needed, so that the state of the loader matches the last list.
    """
    remaining_steps = len(batches)
    micro_batches: list[Batch] = []
    closed_steps = 0

    for batch in batches:
        micro_batches.append(batch)
        closed_steps += batch.closes_step
        remaining_steps -= batch.closes_step
        if batch.closes_step and (closed_steps == accum_grad or remaining_steps == 0):
            yield micro_batches
            micro_batches, closed_steps = [], 0


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return the batch on `device`, with its lengths on the CPU.

    The losses of CTC and transducer need them there.

    A GPU copies it from pinned memory while it computes.
    """
    if batch.feats.device == device and batch.deferred is None:
        return batch
    moved = _copy_to_gpu(batch, device) if device.type == "cuda" else batch.to(device)
    return replace(moved, feats_lengths=batch.feats_lengths, target_lengths=batch.target_lengths)


def _copy_to_gpu(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch on a stream of its own, for which the computing stream then waits."""
    copying, computing = _copy_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(copying):
        moved = batch.copied_to(device)

    computing.wait_stream(copying)
    moved.used_on(computing)
    return moved.with_features()


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def group_micro_batches(
    batches: Sequence[Batch],
    device: torch.device,
    most_frames: int,
    fit: Callable[[Sequence[Batch]], bool],
) -> list[list[Batch]]:
    """Group micro-batches of a step that a device computes as one batch, see `join_on_device`.

    An accelerator computes few large batches faster than many small ones. So neighbours are a group
    while they `fit` and have at most `most_frames` frames with their padding. Texts without audio,
    conversations and pairs of texts stay apart. On a CPU all do.
    """
    if device.type == "cpu":
        return [[batch] for batch in batches]

    groups: list[list[Batch]] = []
    for batch in batches:
        group = [*groups[-1], batch] if groups else []
        if group and _can_join(group, most_frames) and fit(group):
            groups[-1] = group
        else:
            groups.append([batch])

    return groups


def _can_join(batches: Sequence[Batch], most_frames: int) -> bool:
    """Tell whether batches are of audio, and have at most `most_frames` padded frames together."""
    utterances = sum(len(batch) for batch in batches)
    padded_frames = utterances * max(batch.feats.size(1) for batch in batches)
    if padded_frames > most_frames:
        return False
    return all(
        len(batch) == len(batch.feats) and batch.feats.size(1) and not isinstance(batch, PairBatch)
        for batch in batches
    )


def join_on_device(device: torch.device, group: Sequence[Batch]) -> Batch:
    """Return the batches of a group as one batch on `device`."""
    moved = [on_device(batch, device) for batch in group]
    return join_batches(moved) if len(moved) > 1 else moved[0]


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Return one batch, longest utterance first, of batches on a device; see `group_micro_batches`."""

    def values(name: str) -> list[Any]:
        return [getattr(batch, name) for batch in batches]

    lengths = torch.cat(values("feats_lengths"))
    order = lengths.argsort(descending=True, stable=True)
    rows = order.to(batches[0].feats.device, non_blocking=True)

    tensors = {
        "feats": _concatenate_padded(values("feats"), 0)[rows],
        "target": _concatenate_padded(values("target"), -1)[rows],
    }
    if batches[0].other_feats is not None:
        tensors["other_feats"] = _concatenate_padded(values("other_feats"), 0)[rows]

    by_utterance = {
        name: _reorder_values(chain.from_iterable(values(name)), order.tolist())
        for name in ("keys", "texts", "extra")
    }
    return replace(
        batches[-1],
        feats_lengths=lengths[order],
        target_lengths=torch.cat(values("target_lengths"))[order],
        seconds=sum(values("seconds")),
        planned=sum(values("planned")),
        skipped=tuple(chain.from_iterable(values("skipped"))),
        **by_utterance,
        **tensors,
    )


def _reorder_values(values: Iterable[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the values of utterances in `order`; batches may lack a field, which stays empty."""
    rows = list(values)
    return tuple(rows[row] for row in order) if rows else ()


def _concatenate_padded(tensors: Sequence[torch.Tensor], value: float) -> torch.Tensor:
    """Concatenate tensors (B, L, ...), padded with `value` to the longest."""
    longest = max(tensor.size(1) for tensor in tensors)
    rows = sum(len(tensor) for tensor in tensors)
    result = tensors[0].new_full((rows, longest, *tensors[0].shape[2:]), value)
    first = 0
    for tensor in tensors:
        result[first : first + len(tensor), : tensor.size(1)] = tensor
        first += len(tensor)

    return result


def emptied_batch(batch: Batch) -> Batch:
    """Return a batch of the same kind without utterances.

    `deferred` stays: Batch.with_features takes the width of the features from it.
    """
    tensors = {name: getattr(batch, name) for name in batch.TENSORS}
    no_rows = {name: tensor[:0] for name, tensor in tensors.items() if tensor is not None}
    no_rows["other_feats"] = None
    return replace(
        batch, keys=(), texts=(), extra=(), seconds=0.0, skipped=(), planned=0, **no_rows
    )


def timed_items(items: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Yield each item with the seconds of waiting for it."""
    iterator = iter(items)
    while True:
        began = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, time.perf_counter() - began
