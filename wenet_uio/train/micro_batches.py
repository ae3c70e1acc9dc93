"""Group the batches of a loader into the micro-batches of each optimizer step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import torch

from wenet_uio.dataset.types import Batch


class SizedBatches(Protocol):
    """Batches of an epoch; `len` is the number of loader steps, each of one or more batches."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


class Loader(SizedBatches, Protocol):
    """Batches of this rank for one epoch, with a position that can be saved; see wenet_uio.dataset.Loader."""

    def state_dict(self) -> dict[str, Any]:
        """Position and digests of the data."""
        ...

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Resume at the position of a state."""
        ...

    def left_out(self, epoch: int) -> Counter[str]:
        """Utterances that the plan of the epoch left out, by reason."""
        ...

    def data_record(self) -> dict[str, Any]:
        """The data list, the number of its utterances, and their hours."""
        ...

    def utterance_seconds(self) -> dict[str, float]:
        """Median, 95th percentile and longest utterance."""
        ...


def steps(batches: SizedBatches, accum_grad: int) -> Iterator[list[Batch]]:
    """Yield the micro-batches of each optimizer step: the batches of `accum_grad` loader steps.

    The last optimizer step of an epoch may have fewer loader steps. Batches are taken from the loader only when they
    are needed, so that the state of the loader matches the last list.
    """
    left = len(batches)
    held: list[Batch] = []
    closed = 0
    for batch in batches:
        held.append(batch)
        closed += batch.closes_step
        left -= batch.closes_step
        if batch.closes_step and (closed == accum_grad or left == 0):
            yield held
            held, closed = [], 0


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on `device`; its lengths stay on the CPU, where the losses of CTC and transducer need them."""
    moved = batch.to(device)
    return replace(moved, feats_lengths=batch.feats_lengths, target_lengths=batch.target_lengths)


def emptied(batch: Batch) -> Batch:
    """A batch of the same kind without utterances."""
    tensors = {name: getattr(batch, name)[:0] for name in ("feats", "feats_lengths", "target", "target_lengths")}
    return replace(batch, keys=(), texts=(), seconds=0.0, skipped=(), planned=0, other_feats=None, **tensors)


def timed(items: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Yield each item with the seconds of waiting for it."""
    iterator = iter(items)
    while True:
        began = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, time.perf_counter() - began
