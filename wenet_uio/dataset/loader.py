"""The loader: the batches of one rank, read by torch's DataLoader, with a state of a few
integers.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset, get_worker_info

from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.base.messages import warn_once
from wenet_uio.dataset.cursor import Cursor, ReadAhead, Work, works
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan.measure import utterance_seconds
from wenet_uio.dataset.storage.prefetch import Prefetch
from wenet_uio.dataset.types import AudioUtterance, Batch, CollatedBatch, SampleRef
from wenet_uio.dataset.workers import Workers

LEAST_BAD = 10
"""Bad samples that never stop a run, however small its corpus."""


class Loader:
    """Iterates over the batches of one rank, from its position to the end of the epoch.

    Every rank yields the same number of steps, apart from steps without utterances for a rank; see
    `LoaderOptions.empty_batches`. The state counts the batches that were yielded, so
    batches that workers have read and nobody has taken are read again after a restart. An epoch
    ends when its last step has been yielded: `epoch` then grows by one, and `len` is that of the
    next epoch.

    A loader has one iterator at a time. A new one continues after the last batch that was yielded;
    in evaluation it begins at the first batch.
    """

    def __init__(
        self,
        cursor: Cursor,
        reader: Dataset,
        options: LoaderOptions,
        *,
        max_bad_ratio: float = 1.0,
        restarts: bool = False,
    ) -> None:
        """Read the batches of `cursor` with `reader`, which turns each `Work` into a `Batch`.

        Args:
            max_bad_ratio: share of the samples of an epoch that may be bad before the run stops.
            restarts: an iterator after one that was left early begins at the first batch of the
                epoch.

        Raises:
            ListError: the index lists more bad samples than `max_bad_ratio` allows.
        """
        self.cursor, self.corpus, self.reader = cursor, cursor.corpus, reader
        self._options, self._ledger = options, options.ledger
        self._max_bad_ratio, self._restarts = max_bad_ratio, restarts

        self._newest_iterator: object | None = None
        """A mark of the iterator that may yield; None if the position was set after it began."""
        self._left_out: Counter[str] | None = None
        """The last result of `left_out`."""
        self._reported_noises: set[str] = set()
        """Keys of noises that cannot be read."""

        if self.corpus.bad:
            key, reason = self.corpus.bad[0]
            self._require_few_bad(
                len(self.corpus.bad) / cursor.world_size, f"the first is {key}: {reason}"
            )

        if options.rank == 0:
            for warning in self.corpus.warnings:
                warn_once(warning)

        self.prefetch: Prefetch | None = None
        if self.corpus.is_remote:
            self.prefetch = Prefetch()
            weakref.finalize(self, self.prefetch.close)

        # The work does not refer to this loader: without a cycle of references, workers end with
        # their loader.
        self._workers = Workers(reader, options, partial(_remaining_work, cursor, self.prefetch))

    @property
    def epoch(self) -> int:
        """Number of the current epoch, from 0."""
        return self.cursor.epoch

    @property
    def steps_done(self) -> int:
        """Steps of the current epoch before this position. With `len(self)` they are the steps of
        the whole epoch.
        """
        return self.cursor.steps_done

    def __len__(self) -> int:
        """Steps that a new iterator takes; equal on every rank.

        They are those from here to the end of the epoch; in evaluation, once iterated, those of a
        whole epoch.
        """
        return self.cursor.steps_of_epoch() if self._begins_again() else len(self.cursor)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the current position to the end of the epoch.

        Raises:
            RuntimeError: the position was set, or another iterator was begun, before the last step
                of this one; or this is a worker of another DataLoader.
        """
        _require_own_process(self.corpus.data_list)
        cursor = self.cursor
        if self._begins_again():
            cursor.set_epoch(cursor.epoch)

        this_iterator = self._newest_iterator = object()
        # Each rank counts its share of the samples that could not be indexed.
        bad_samples = len(self.corpus.bad) / cursor.world_size
        if (cursor.rank, cursor.data_pass, cursor.position, cursor.micro_batches) == (0, 0, 0, 0):
            for key, reason in self.corpus.bad:  # once in a run
                self._write_to_ledger(0, 0, key, NOT_INDEXED, reason)

        steps_left = len(cursor)
        if not steps_left:
            cursor.skip_epoch()

        batches = iter(self._workers) if steps_left else iter(())
        batches_to_yield = AllBatches() if self._options.empty_batches else FilledBatches()
        while steps_left:
            if self._newest_iterator is not this_iterator:
                raise RuntimeError(
                    f"{self.corpus.data_list}: a newer iterator has taken over, or the position "
                    "was set; a loader has one iterator at a time"
                )

            batch = next(batches)
            bad_samples = self._report_bad(batch, bad_samples)
            self._report_unreadable(batch)
            for ready_batch, micro_batches, closes_step in batches_to_yield.add(batch):
                cursor.advance(closes_step, micro_batches)
                steps_left -= closes_step
                if ready_batch is None:
                    self._warn_of_empty_step()
                elif isinstance(ready_batch, CollatedBatch):
                    yield ready_batch.collated
                else:
                    yield ready_batch

    def _warn_of_empty_step(self) -> None:
        """Warn that this rank has one step fewer than others may have."""
        if self.cursor.world_size > 1:
            warn_once(
                f"{self.corpus.data_list}: a step without utterances for rank {self.cursor.rank} is "
                "left out. Ranks that wait for each other in every step, as in "
                "DistributedDataParallel, need LoaderOptions(empty_batches=True), or "
                "torch.distributed.algorithms.Join"
            )

    def _begins_again(self) -> bool:
        """Tell whether a new iterator begins at the first batch of the epoch, because an earlier
        one has begun there.
        """
        return self._restarts and self._newest_iterator is not None

    def share(self, first: int, shares: int) -> Iterator[Batch]:
        """Yield the batches `first`, `first + shares`, … of this pass, for processes that do not
        step together.

        The loader does not move. Remote audio is fetched when it is read, not ahead.
        """
        plan = self.cursor.plan
        yielded = 0

        # Workers asks again after a crash. Each work gives one batch, so the batches that were
        # yielded are the works that are done.
        def rest_of_share() -> Iterator[Work]:
            batches = (plan.batch(index) for index in range(first, plan.num_batches, shares))
            all_works = chain.from_iterable(works(plan, batch) for batch in batches)
            return islice(all_works, yielded, None)

        for batch in Workers(self.reader, self._options, rest_of_share):
            yielded += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self._newest_iterator = None
        self.cursor.set_epoch(epoch)

    def left_out(self, epoch: int) -> Counter[str]:
        """Count the utterances of an epoch (`all`) and, by reason, those that were not planned.

        Only this rank's share is counted.

        Empty for an epoch that was not one whole pass over the data, or that has not ended.
        """
        cursor = self.cursor
        if cursor.epoch_steps is not None or cursor.epoch != epoch + 1:
            return Counter()

        return self._left_out_of(cursor.data_pass - 1)

    def left_out_of_pass(self) -> Counter[str]:
        """Count as `left_out` for the present pass, which has not ended.

        The accounts of nominal epochs have only what is planned.
        """
        return self._left_out_of(self.cursor.data_pass)

    def _left_out_of(self, data_pass: int) -> Counter[str]:
        """Count what a pass leaves out: {`filtered/REASON` or `bad/REASON`: utterances of this rank},
        and `all`, those that the pass would have.
        """
        cursor = self.cursor
        corpus = cursor.passes.corpus_of(data_pass)
        # A list that is no mixture leaves out the same utterances in every pass.
        if self._left_out is None or corpus is not self.corpus:
            filtered = cursor.measure.filtered(corpus, cursor.rank, cursor.world_size)
            bad = len(self.corpus.bad) if cursor.rank == 0 else 0
            samples_of_rank = corpus.samples[cursor.rank :: cursor.world_size]  # of its shards
            counts = Counter({f"filtered/{reason}": count for reason, count in filtered.items()})
            counts["all"] = int(samples_of_rank.sum(dtype="int64")) + bad
            counts[f"bad/{NOT_INDEXED}"] = bad
            self._left_out = counts

        return self._left_out

    def data_record(self) -> dict[str, Any]:
        """Return the data list, the number of its utterances, their hours, and the digests of the
        index and of the contents; of a mixture, those of all sources.
        """
        corpus = self.corpus
        hours = round(corpus.total_seconds / 3600, 4)
        return {
            "list": corpus.data_list,
            "utterances": corpus.num_samples,
            "hours": hours,
            "digest": corpus.identity,
            "contents": corpus.contents_digest,
        }

    def utterance_seconds(self) -> dict[str, float]:
        """Return the median, 95th percentile (`most`) and maximum (`longest`) of the lengths of
        utterances, in seconds.
        """
        return utterance_seconds(self.corpus)

    def audio_of(self, key: str) -> tuple[np.ndarray, int] | None:
        """Read the samples (T,) and the rate of an utterance; None for a key without audio, such
        as one of stored features.
        """
        corpus = self.corpus
        refs = (
            SampleRef(shard, row)
            for shard in range(corpus.num_shards)
            for row in range(corpus.samples[shard])
        )
        ref = next((ref for ref in refs if corpus.key(ref) == key), None)
        utterance = None if ref is None else corpus.read(ref)
        if not isinstance(utterance, AudioUtterance) or audio_info(utterance.audio).is_features:
            return None
        return read_audio(utterance.audio, utterance.start, utterance.end)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, valid for any world size and number of workers; see
        `Cursor.state_dict`.
        """
        return self.cursor.state_dict()

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Continue where `state` was taken, see `Cursor.load_state_dict`.

        The ledger drops the lines of samples that are read again.
        """
        cursor, self._newest_iterator = self.cursor, None
        cursor.load_state_dict(state, allow_changes=allow_changes)
        if self._ledger is not None and cursor.rank == 0:
            # Inside a step, the samples of its first micro-batches are not read again.
            kept: set[str] = set()
            for work in cursor.yielded_of_step():
                for shard, row in zip(work.shards, work.rows, strict=True):
                    kept.add(self.corpus.key(SampleRef(int(shard), int(row))))
            if kept:
                kept |= {key for key, _ in self.corpus.bad}

            self._ledger.forget(self.corpus.data_list, cursor.data_pass, cursor.position, kept)

    def _report_bad(self, batch: Batch, bad_before: float) -> float:
        """List the bad samples of a batch.

        Args:
            bad_before: this rank's bad samples of the epoch before this batch.

        Returns:
            Those after this batch.

        Raises:
            ListError: they are too many.
        """
        bad_samples = bad_before
        for sample in batch.skipped:
            if not sample.filtered:
                bad_samples += 1
                self._write_to_ledger(
                    self.cursor.data_pass, batch.index, sample.key, sample.reason, sample.detail
                )
                self._require_few_bad(
                    bad_samples, f"the last is {sample.key}: {sample.reason}, {sample.detail}"
                )

        return bad_samples

    def _report_unreadable(self, batch: Batch) -> None:
        """Log and list each noise that cannot be read, once in this process.

        The utterances that it was drawn for are read, with other noise.
        """
        for noise in batch.unreadable:
            if noise.key not in self._reported_noises:
                self._reported_noises.add(noise.key)
                warn_once(
                    f"noise {noise.key} cannot be read, other noise takes its place: {noise.detail}"
                )
                if self._ledger is not None:
                    place = self.cursor.data_pass, batch.index
                    self._ledger.write_once(
                        self.corpus.data_list, *place, noise.key, noise.reason, noise.detail
                    )

    def _write_to_ledger(
        self, data_pass: int, batch: int, key: str, reason: str, detail: str
    ) -> None:
        """Write a line about a sample that was left out, if the loader has a ledger."""
        if self._ledger is None:
            return

        if self.cursor.reshuffle:
            self._ledger.write(self.corpus.data_list, data_pass, batch, key, reason, detail)
        elif not data_pass:
            # Evaluation repeats the first pass, also after restarts: one line for each bad sample.
            self._ledger.write_once(self.corpus.data_list, data_pass, batch, key, reason, detail)

    def _require_few_bad(self, bad_samples: float, example: str) -> None:
        """Raise a ListError if this rank's share of the bad samples is above the limit."""
        samples = self.corpus.num_samples + len(self.corpus.bad)
        if bad_samples > max(LEAST_BAD, self._max_bad_ratio * samples / self.cursor.world_size):
            raise ListError(
                f"{self.corpus.data_list}: {math.ceil(bad_samples)} bad samples in epoch "
                f"{self.epoch}, more than max_bad_ratio {self._max_bad_ratio:g} allows; {example}"
            )


def _require_own_process(data_list: str) -> None:
    """Refuse to read in a worker of another DataLoader: each would read every batch.

    Raises:
        RuntimeError: this process is such a worker.
    """
    worker = get_worker_info()
    if worker is not None:
        raise RuntimeError(
            f"{data_list}: this loader would run in each of the {worker.num_workers} workers of "
            "another DataLoader, and each would read every utterance; iterate the loader itself, "
            f"with LoaderOptions(num_workers={worker.num_workers})"
        )


def _remaining_work(cursor: Cursor, prefetch: Prefetch | None) -> Iterator[Work]:
    """Return the work that is not yielded yet, from the cursor to the end of its epoch."""
    if prefetch is not None:
        return ReadAhead(cursor, prefetch).works()
    return (work for _, work in cursor.upcoming())


class Reached(NamedTuple):
    """A batch to yield, and how far the loader is after it."""

    batch: Batch | None
    """None: the step has no utterances."""
    micro_batches: int
    """Micro-batches up to here, with those that were left out."""
    closes_step: bool


class FilledBatches:
    """Passes on the micro-batches with utterances; the last of them in a step closes it.

    A micro-batch of a step that goes on is held back until it is known whether another follows.
    """

    def __init__(self) -> None:
        self._held: Batch | None = None
        self._micro_batches = 0

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Take the next micro-batch, and yield those that are known to go on or to close a step."""
        has_utterances = batch.planned > len(batch.skipped)
        if has_utterances:
            if self._held is not None:
                yield self._release(closes_step=False)
            self._held = batch

        self._micro_batches += 1
        if batch.closes_step:
            if self._held is not None:
                self._held.closes_step = True
            yield self._release(closes_step=True)

    def _release(self, closes_step: bool) -> Reached:
        """Return what is held, with the micro-batches since the last release; hold nothing."""
        reached = Reached(self._held, self._micro_batches, closes_step)
        self._held, self._micro_batches = None, 0
        return reached


class AllBatches:
    """Passes on every micro-batch."""

    def add(self, batch: Batch) -> Iterator[Reached]:
        """Yield the micro-batch."""
        yield Reached(batch, 1, batch.closes_step)
