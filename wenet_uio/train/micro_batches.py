"""Batches of the loader -> micro-batches of each optimizer step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from wenet_uio.dataset.types import Batch


class SizedBatches(Protocol):
    """Batches, and into how many steps they close."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


def steps(batches: SizedBatches, accum_grad: int) -> Iterator[list[Batch]]:
    """Micro-batches of each optimizer step: `accum_grad` steps of the loader, what is left at the end of an epoch.

    No batch is taken from the loader before it is needed, so that the loader's state is that of the last list.
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
    """The batch without its utterances."""
    tensors = {name: getattr(batch, name)[:0] for name in ("feats", "feats_lengths", "target", "target_lengths")}
    return replace(batch, keys=(), texts=(), seconds=0.0, skipped=(), planned=0, **tensors)


def timed(items: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Each item with the seconds that were spent waiting for it."""
    iterator = iter(items)
    while True:
        began = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, time.perf_counter() - began
