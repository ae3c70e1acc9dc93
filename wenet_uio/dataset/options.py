"""The options of a loader that belong to the run, not to the yaml file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import distributed

from wenet_uio.dataset.chain.tokens import CtcFrames
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class LoaderOptions:
    """How one process of a run reads its share of the batches.

    `num_workers`, `prefetch` and `pin_memory` change the speed only, not the batches.
    """

    rank: int = -1
    """Number of this process among those that train together, from 0. Without rank and world_size,
    both are those of torch.distributed, or else of the variables RANK and WORLD_SIZE that launchers
    set, or else 0 of 1: a loop that forgets them does not read all data on every rank."""
    world_size: int = 0
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
    ctc_frames: CtcFrames | None = None
    """Frames of CTC in the model: utterances whose labels need more are left out, and counted as
    filtered (`no_ctc_path`). None: not checked. `wenet_uio.models.lengths.ctc_frames` makes it."""
    most_labels: int | None = None
    """Labels that the decoder of the model has positions for: utterances with more are left out,
    and counted as filtered (`too_many_tokens`). None: any number."""
    empty_batches: bool = False
    """Yield batches without utterances, too. A rank gets one where the last step of an epoch has
    fewer utterances than ranks, or where all samples of a batch are bad. With them every rank takes
    the same steps, which ranks need that wait for each other in each step. A `collate` is not asked
    for them: the loader yields None."""

    def __post_init__(self) -> None:
        if self.collate is not None and self.defer_features:
            raise ValueError(
                "collate needs features that the data workers compute: defer_features must be False"
            )

        rank, world_size = _complete_rank(self.rank, self.world_size)
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "world_size", world_size)


def _complete_rank(rank: int, world_size: int) -> tuple[int, int]:
    """Return rank and world size. For -1 and 0 they are those of the process group, or else those
    that a launcher gave.

    Raises:
        ValueError: they do not fit together, or not to the process group.
    """
    group: tuple[int, int] | None = None
    if distributed.is_available() and distributed.is_initialized():
        group = distributed.get_rank(), distributed.get_world_size()

    if (rank, world_size) == (-1, 0):
        rank, world_size = group or _rank_of_launcher()
    elif rank == -1 or world_size == 0:
        raise ValueError("rank and world_size belong together: give both or none")
    elif group and group[1] == world_size and group[0] != rank:
        raise ValueError(
            f"rank {rank} of {world_size}, but torch.distributed says that this is rank "
            f"{group[0]}: leave both out"
        )

    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is outside a world of {world_size}")
    return rank, world_size


def _rank_of_launcher() -> tuple[int, int]:
    """Return rank and world size that a launcher gave this process, or 0 and 1.

    Raises:
        ValueError: one variable is missing, or is no number.
    """
    values = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    if not any(values):
        return 0, 1
    if not all(value.isdecimal() for value in values):
        raise ValueError(
            f"the variables RANK and WORLD_SIZE are {values[0]!r} and {values[1]!r}, not two "
            "numbers: unset them, or give rank and world_size"
        )
    return int(values[0]), int(values[1])
