"""The options of a loader that belong to the run, not to the yaml file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class LoaderOptions:
    """How one process of a run reads its share of the batches.

    `num_workers`, `prefetch` and `pin_memory` change the speed only, not the batches.
    """

    rank: int = 0
    """Number of this process among those that train together, from 0."""
    world_size: int = 1
    """Processes that train together."""
    num_workers: int = 0
    """Processes that read for this one; 0: this process reads."""
    prefetch: int = 8
    """Batches that each worker keeps ready."""
    pin_memory: bool = False
    """Copy batches to pinned memory, from where they move to a GPU asynchronously. Ignored without
    a GPU."""
    seed: int = 777
    """Seed of the order of the data and of augmentation; equal on all ranks."""
    epoch_steps: int | None = None
    """Steps of a training epoch; None: an epoch is one pass over the data."""
    defer_features: bool = False
    """Batches hold waveforms; `Batch.to` computes the features on its device."""
    ledger: Ledger | None = None
    """The file that lists bad samples; None lists them nowhere."""
    collate: Callable[[Sequence[Example]], Any] | None = None
    """Makes what the loader yields from the examples of a batch, in a data worker; examples that
    cannot be read are missing. None: a padded `Batch`."""

    def __post_init__(self) -> None:
        if self.collate is not None and self.defer_features:
            raise ValueError(
                "collate needs features that the data workers compute: defer_features must be False"
            )

        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is outside a world of {self.world_size}")
