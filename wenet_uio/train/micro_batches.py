"""Group the batches of a loader into the micro-batches of each optimizer step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from wenet_uio.dataset.types import Batch


class SizedBatches(Protocol):
    """Batches of an epoch; `len` is the number of loader steps, each of one or more batches."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


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


def emptied(batch: Batch) -> Batch:
    """A batch of the same kind without utterances."""
    tensors = {name: getattr(batch, name)[:0] for name in ("feats", "feats_lengths", "target", "target_lengths")}
    return replace(batch, keys=(), texts=(), seconds=0.0, skipped=(), planned=0, **tensors)


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
