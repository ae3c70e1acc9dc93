"""The loader: this rank's part of the plan, executed by torch's DataLoader, with a state of a few integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from wenet_uio.dataset.corpus import Corpus
from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.measure import Measure
from wenet_uio.dataset.plan import EpochPlan, Piece, choose_lanes
from wenet_uio.dataset.types import Batch

LEAST_BAD = 10
"""Bad samples that no run stops for, however small its corpus."""


@dataclass(frozen=True)
class Work:
    """One piece of a planned batch, as it is sent to a worker."""

    index: int
    """t: the batch's place in the epoch."""
    piece: Piece
    closes_step: bool
    key: int
    """Of the epoch's randomness."""


class Loader:
    """Iterates over the batches of one rank from wherever its state stands to the end of the epoch.

    Every rank yields the same number of steps. Batches that were prefetched and not yielded are not lost: the state
    counts what was yielded. When an epoch is through, `epoch` moves on by one.
    """

    def __init__(
        self,
        corpus: Corpus,
        measure: Measure,
        reader: Dataset,
        *,
        seed: int,
        reshuffle: bool,
        rank: int,
        world_size: int,
        num_workers: int,
        prefetch: int,
        pin_memory: bool,
        max_bad_ratio: float,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside a world of {world_size}")
        self.corpus, self.measure = corpus, measure
        self.rank, self.world_size = rank, world_size
        self.seed, self.reshuffle, self.max_bad_ratio = seed, reshuffle, max_bad_ratio
        self.epoch, self.position = 0, 0
        self.lanes = choose_lanes(corpus, world_size)
        self.skipped: Counter[str] = Counter()
        """Samples of this epoch that were left out while reading, by reason."""
        self._plan: EpochPlan | None = None
        self._loader = DataLoader(
            reader,
            batch_size=None,
            sampler=_Schedule(self),
            num_workers=num_workers,
            prefetch_factor=prefetch if num_workers else None,
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
        )

    @property
    def plan(self) -> EpochPlan:
        """The plan of the current epoch."""
        if self._plan is None:
            epoch = self.epoch if self.reshuffle else 0
            self._plan = EpochPlan(self.corpus, self.measure, seed=self.seed, epoch=epoch, lanes=self.lanes)
        return self._plan

    def __len__(self) -> int:
        """Steps of this rank from here to the end of the epoch; the same on every rank."""
        return self.plan.steps_from(self.position, self.world_size)

    def __iter__(self) -> Iterator[Batch]:
        bad = 0
        for batch in self._loader:
            if batch.closes_step:
                self.position = min(self.position + self.world_size, self.plan.num_batches)
            for sample in batch.skipped:
                self.skipped[sample.reason] += 1
                bad += not sample.filtered
                self._check(bad, f"{sample.key}: {sample.reason}, {sample.detail}")
            yield batch
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch, self.position, self._plan = epoch, 0, None
        self.skipped = Counter()

    def state_dict(self) -> dict[str, Any]:
        """Where the data stands, for any world size and number of workers; a few hundred bytes."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.seed,
            "lanes": self.lanes,
            "corpus": self.corpus.digest,
            "measure": self.measure.digest(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            ValueError: the data set or the batch policy is another one; at the start of an epoch that is allowed.
        """
        changed = [
            name
            for name, digest in (("corpus", self.corpus.digest), ("measure", self.measure.digest()))
            if state[name] != digest
        ]
        if changed and state["position"]:
            what = {
                "corpus": f"the data set {self.corpus.data_list}",
                "measure": "dataset_conf (batches, filters, speeds)",
            }
            raise ValueError(
                f"{' and '.join(what[name] for name in changed)} changed since the checkpoint, which stands within "
                f"epoch {state['epoch']}: bring it back, or start from the weights alone with --checkpoint"
            )
        self.set_epoch(state["epoch"])
        self.position, self.seed = state["position"], state["seed"]
        self.lanes = choose_lanes(self.corpus, self.world_size) if changed else state["lanes"]

    def _check(self, bad: int, last: str) -> None:
        allowed = max(LEAST_BAD, self.max_bad_ratio * self.corpus.num_samples / self.world_size)
        if bad > allowed:
            raise ListError(
                f"{self.corpus.data_list}: {bad} bad samples in epoch {self.epoch}, more than max_bad_ratio "
                f"{self.max_bad_ratio:g} allows; the last is {last}"
            )


class _Schedule(Sampler):
    """What the DataLoader is to fetch: this rank's pieces, from the loader's position on."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Work]:
        plan, rank, world_size = self._loader.plan, self._loader.rank, self._loader.world_size
        for position in range(self._loader.position, plan.num_batches, world_size):
            batch = plan.step(position, world_size, rank)
            for number, piece in enumerate(batch.pieces, 1):
                yield Work(batch.index, piece, number == len(batch.pieces), plan.key)
