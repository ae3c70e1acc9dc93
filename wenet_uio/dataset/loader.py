"""The loader: this rank's part of the plan, executed by torch's DataLoader, with a state of a few integers."""

from __future__ import annotations

import math
import os
import signal
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.passes import Passes, origin
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.ledger import NOT_INDEXED, Ledger
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, choose_lanes
from wenet_uio.dataset.plan.measure import Measure, utterance_seconds
from wenet_uio.dataset.plan.pieces import PlannedBatch
from wenet_uio.dataset.randomness import key_of
from wenet_uio.dataset.read_ahead import ReadAhead
from wenet_uio.dataset.storage.prefetch import Prefetch
from wenet_uio.dataset.types import Batch

LEAST_BAD = 10
"""Bad samples that no run stops for, however small its corpus."""


@dataclass(frozen=True)
class Work:
    """One piece of a planned batch, as it is sent to a worker."""

    index: int
    """t: the batch's place in the epoch."""
    closes_step: bool
    shards: np.ndarray
    rows: np.ndarray
    speeds: np.ndarray
    seeds: np.ndarray


class Loader:
    """Iterates over the batches of one rank from wherever its state stands to the end of the epoch.

    Every rank yields the same number of steps. Batches that were prefetched and not yielded are not lost: the state
    counts what was yielded. When an epoch is through, `epoch` moves on by one.

    An epoch is one pass over the data, unless `epoch_steps` makes it a number of steps: then the next one goes on where
    it stopped. With `partition` off every rank reads all the data, in an order of its own.
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
        epoch_steps: int | None = None,
        partition: bool = True,
        ledger: Ledger | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside a world of {world_size}")
        self.corpus, self.measure, self.reader = corpus, measure, reader
        self.passes = Passes(corpus)
        self.rank, self.world_size = (rank, world_size) if partition else (0, 1)
        self.seed, self.reshuffle, self.max_bad_ratio = seed, reshuffle, max_bad_ratio
        self.epoch_steps, self.partition = epoch_steps, partition
        self._own_order = () if partition else (rank,)
        self.epoch, self.data_pass, self.position, self.steps_done = 0, 0, 0, 0
        self.lanes = choose_lanes(self.passes.corpus_of(0), world_size)
        self.ledger = ledger
        self._left_out: Counter[str] | None = None
        if corpus.bad:
            key, reason = corpus.bad[0]
            self._check(len(corpus.bad) / self.world_size, f"the first is {key}: {reason}")
        self._plans: dict[int, EpochPlan] = {}
        self.prefetch: Prefetch | None = None
        if corpus.is_remote:
            self.prefetch = Prefetch()
            weakref.finalize(self, self.prefetch.close)
        self._data_loader = partial(
            DataLoader,
            reader,
            batch_size=None,
            num_workers=num_workers,
            prefetch_factor=prefetch if num_workers else None,
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
            worker_init_fn=_end_with_the_rank,
        )
        # Without a cycle of references workers end with their loader.
        self._loader = self._data_loader(sampler=_Schedule(weakref.proxy(self)))

    def work(self) -> Iterator[Work]:
        """What `reader` is given, from here to the end of the epoch."""
        return iter(_Schedule(self))

    @property
    def plan(self) -> EpochPlan:
        """The plan of the pass that the loader stands in."""
        return self.plan_of(self.data_pass)

    def plan_of(self, data_pass: int) -> EpochPlan:
        """The plan of a pass over the data; that of the current and the next are kept."""
        if data_pass not in self._plans:
            self._plans = {number: plan for number, plan in self._plans.items() if number == self.data_pass}
            self._plans[data_pass] = EpochPlan(
                self.passes.corpus_of(data_pass),
                self.measure,
                seed=key_of(self.seed, *self._own_order) if self._own_order else self.seed,
                epoch=data_pass if self.reshuffle else 0,
                lanes=self.lanes,
                same_length=not self.partition,
            )
        return self._plans[data_pass]

    def __len__(self) -> int:
        """Steps of this rank from here to the end of the epoch; the same on every rank."""
        if self.epoch_steps is not None:
            return self.epoch_steps - self.steps_done
        return self.plan.steps_from(self.position, self.world_size)

    def __iter__(self) -> Iterator[Batch]:
        bad = len(self.corpus.bad) / self.world_size
        if (self.rank, self.data_pass, self.position) == (0, 0, 0):
            for key, reason in self.corpus.bad:
                self._write(0, 0, key, NOT_INDEXED, reason)
        for batch in self._loader:
            self.advance(batch.closes_step)
            for sample in batch.skipped:
                if not sample.filtered:
                    bad += 1
                    self._write(self.data_pass, batch.index, sample.key, sample.reason, sample.detail)
                    self._check(bad, f"the last is {sample.key}: {sample.reason}, {sample.detail}")
            yield batch
        if self.epoch_steps is None:
            self.set_epoch(self.epoch + 1)
        else:
            self.epoch, self.steps_done = self.epoch + 1, 0

    def share(self, number: int, shares: int) -> Iterator[Batch]:
        """Every `shares`-th batch of this pass, from batch `number` on, whole; processes that share take no steps.

        Remote audio is fetched when it is read, not ahead.
        """
        plan = self.plan
        batches = (plan.batch(index) for index in range(number, plan.num_batches, shares))
        yield from self._data_loader(sampler=(work for batch in batches for work in _works(plan, batch)))

    def advance(self, closes_step: bool) -> None:
        """Count a batch as taken; with nominal epochs a pass that is through gives way to the next."""
        if self.position >= self.plan.num_batches:
            self.data_pass, self.position = self.data_pass + 1, 0
        if closes_step:
            self.steps_done += 1
            self.position = min(self.position + self.world_size, self.plan.num_batches)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch, and of the pass of that number."""
        self.epoch, self.data_pass, self.position, self.steps_done = epoch, epoch, 0, 0

    def left_out(self, epoch: int) -> Counter[str]:
        """For the account of an epoch: this rank's share of `all` there is, and of what the plan had no place for.

        Nothing for an epoch that was no whole pass over the data, or is not at its end.
        """
        if self.epoch_steps is not None or self.epoch != epoch + 1:
            return Counter()
        corpus = self.passes.corpus_of(epoch)
        if self._left_out is None or corpus is not self.corpus:  # a list leaves out the same in every pass
            filtered = self.measure.filtered(corpus, self.rank, self.world_size)
            bad = len(self.corpus.bad) if self.rank == 0 else 0
            own = corpus.samples[self.rank :: self.world_size]
            self._left_out = Counter({f"filtered/{reason}": count for reason, count in filtered.items()})
            self._left_out.update({"all": int(own.sum(dtype=np.int64)) + bad, f"bad/{NOT_INDEXED}": bad})
        return self._left_out

    def utterance_seconds(self) -> dict[str, float]:
        """As measure.utterance_seconds."""
        return utterance_seconds(self.corpus)

    def state_dict(self) -> dict[str, Any]:
        """Where the data stands, for any world size and number of workers; a few hundred bytes."""
        return {
            "epoch": self.epoch,
            "data_pass": self.data_pass,
            "position": self.position,
            "steps_done": self.steps_done,
            "seed": self.seed,
            "lanes": self.lanes,
            "partition": self.partition,
            "corpus": self.corpus.digest,
            "measure": self.measure.digest(),
            "offsets": self.passes.offsets(self.data_pass),
        }

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Go on where `state` was taken.

        A changed data set or batch policy is taken at the start of a pass; within one it is refused, unless
        `allow_changes` starts that pass over.

        Raises:
            ValueError: what changed, and what can be done.
        """
        now = self.state_dict()
        if missing := ", ".join(now.keys() - state.keys()):
            raise ValueError(f"the state of the data is of another version (it lacks {missing}): use --checkpoint")
        what = {
            "corpus": f"the data set {self.corpus.data_list}",
            "measure": "dataset_conf (batches, filters, speeds)",
            "partition": "partition",
        }
        changed = [name for name in what if state[name] != now[name]]
        if changed and state["position"] and not allow_changes:
            raise ValueError(
                f"{' and '.join(what[name] for name in changed)} changed since the checkpoint, which stands within "
                f"epoch {state['epoch']}: bring it back; or start that pass over the data again with "
                "--allow_data_changes; or start from the weights alone with --checkpoint"
            )
        self.epoch, self.data_pass, self.seed = state["epoch"], state["data_pass"], state["seed"]
        self.position = 0 if changed else state["position"]
        self.steps_done = 0 if changed and self.epoch_steps is None else state["steps_done"]
        self.passes = self.passes.starting_at(self.data_pass, state["offsets"])
        self.lanes = choose_lanes(self.passes.corpus_of(self.data_pass), self.world_size) if changed else state["lanes"]
        self._plans = {}
        if self.ledger is not None and self.rank == 0:
            self.ledger.forget(self.corpus.data_list, self.data_pass, self.position)

    def _write(self, data_pass: int, batch: int, key: str, reason: str, detail: str) -> None:
        if self.ledger is None:
            return
        if self.reshuffle:
            self.ledger.write(self.corpus.data_list, data_pass, batch, key, reason, detail)
        elif not data_pass:  # every pass is the first one again, in every start of a run that evaluates
            self.ledger.write_once(self.corpus.data_list, data_pass, batch, key, reason, detail)

    def _check(self, bad: float, example: str) -> None:
        """Stop where this rank's share of the bad samples is above what is allowed."""
        samples = self.corpus.num_samples + len(self.corpus.bad)
        if bad > max(LEAST_BAD, self.max_bad_ratio * samples / self.world_size):
            raise ListError(
                f"{self.corpus.data_list}: {math.ceil(bad)} bad samples in epoch {self.epoch}, more than max_bad_ratio "
                f"{self.max_bad_ratio:g} allows; {example}"
            )


def _end_with_the_rank(_: int) -> None:
    """A scheduler's SIGTERM may reach every process of a job; a worker heeds only that of its rank."""
    if not hasattr(signal, "sigwaitinfo"):  # macOS
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    rank = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo([signal.SIGTERM]).si_pid != rank:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


class _Schedule(Sampler):
    """What the DataLoader is to fetch: this rank's pieces, from the loader's position to the end of its epoch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Work]:
        loader = self._loader
        data_pass, position = loader.data_pass, loader.position
        ahead = ReadAhead(loader) if loader.prefetch else None
        for _ in range(len(loader)):
            plan = loader.plan_of(data_pass)
            if position >= plan.num_batches:
                data_pass, position = data_pass + 1, 0
                plan = loader.plan_of(data_pass)
            batch = plan.step(position, loader.world_size, loader.rank)
            for work in _works(plan, batch):
                if ahead:
                    ahead.read_on(data_pass, position, work.shards, work.rows)
                yield work
            position += loader.world_size


def _works(plan: EpochPlan, batch: PlannedBatch) -> Iterator[Work]:
    for number, piece in enumerate(batch.pieces, 1):
        shards, rows = origin(plan.corpus, piece.shards, piece.rows)
        yield Work(batch.index, number == len(batch.pieces), shards, rows, piece.speeds, piece.seeds)
