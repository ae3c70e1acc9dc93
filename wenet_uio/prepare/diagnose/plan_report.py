"""Plan a whole epoch from the index alone, without audio, and account for every utterance."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.groups import Piece, PlannedBatch, share_out
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.types import SampleRef


@dataclass(frozen=True)
class PlanReport:
    """One epoch of a corpus under a batch policy."""

    utterances: int
    """Planned utterances: those of the corpus without the filtered ones."""
    hours: float
    """Audio of the planned utterances, before speed perturbation."""
    batches: int
    steps: int
    """Steps of each rank."""
    padding: float
    """Percent of the padded frames that hold no speech."""
    fill: float
    """Mean cost of a batch, in percent of the bound."""
    filtered: dict[str, int]
    """Utterances that the filters leave out, by reason."""
    bad: int
    """Utterances of the list that could not be indexed."""
    lost: int
    """Utterances neither planned nor filtered."""
    duplicated: int
    """Utterances planned more than once."""
    over_bound: int
    """Pieces of batches that cost more than the bound; only evaluation allows them, for single long
    utterances."""
    skew: float
    """Cost of the most expensive rank of a step divided by the mean of its ranks, averaged over the
    steps."""
    frame_skew: float
    """Padded frames of the rank of a step that has most, divided by the mean of its ranks, averaged
    over the steps. Static batches have one cost, so that only their frames differ."""
    same_shard: float
    """Probability that two samples of one batch come from the same shard."""
    order_correlation: float
    """Correlation of the batch numbers of each sample in this epoch and in the next. For a mixture,
    both epochs are planned with the samples of this epoch."""
    mates_again: float
    """Probability that two samples of one batch are in one batch in the next epoch too."""
    length_correlation: float
    """Correlation of the mean lengths of two consecutive batches of one rank."""
    sources: dict[str, int]
    """Planned utterances by source."""
    lanes: int
    seconds: float
    """Time that planning took."""
    digest: str
    """SHA-256 of the keys of every batch, in order."""

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON-able values."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the report as text: a name and a value per line."""
        width = max(map(len, self.as_dict()))
        for name, value in self.as_dict().items():
            yield f"{name:{width}} {json.dumps(value) if isinstance(value, dict) else value}"


def report_plan(
    corpus: Corpus,
    measure: Measure,
    *,
    seed: int,
    epoch: int,
    world_size: int,
    on_batch: Callable[[PlannedBatch], None] | None = None,
) -> PlanReport:
    """Plan a whole epoch and account for every utterance.

    Args:
        on_batch: called with each batch, in order.
    """
    began = time.monotonic()
    corpus = Passes(corpus).corpus_of(epoch)
    plan = EpochPlan(corpus, measure, seed=seed, epoch=epoch, division=divide(corpus, world_size))
    account = _Account(plan)

    for index in range(plan.num_batches):
        batch = plan.batch(index)
        account.add(batch)
        if on_batch is not None:
            on_batch(batch)

    next_plan = plan.of_epoch(seed, epoch + 1)
    report = _summarise_plan(plan, account, next_plan, world_size)
    return replace(report, seconds=round(time.monotonic() - began, 3))


def _summarise_plan(
    plan: EpochPlan, account: _Account, next_plan: EpochPlan, world_size: int
) -> PlanReport:
    """Return the report of a plan whose batches are all in the account; it lacks the time."""
    corpus, filtered = plan.corpus, plan.filtered()
    planned = int(np.count_nonzero(account.times_planned))

    # The ranks share the batches of an incomplete last step.
    whole = plan.num_batches // world_size * world_size
    rest: list[Piece] = []
    for index in range(whole, plan.num_batches):
        rest += plan.batch(index).pieces

    skew = skew_of_steps(account.costs, rest, world_size)
    padded_frames = attrgetter("padded_frames")
    frame_skew = skew_of_steps(account.padded, rest, world_size, size_of=padded_frames)
    order_correlation, mates_again = _compare_epochs(account.batch_numbers, next_plan)
    lengths = account.lengths[:whole:world_size]  # of the batches of the first rank
    return PlanReport(
        utterances=planned,
        hours=round(account.stored_seconds() / 3600, 4),
        batches=plan.num_batches,
        steps=plan.steps_from(0, world_size),
        padding=round(100 * (1 - account.frames / max(1, account.padded.sum())), 3),
        fill=round(100 * _mean_or(account.costs, 0.0) / plan.measure.policy.bound, 2),
        filtered=dict(sorted(filtered.items())),
        bad=len(corpus.bad),
        lost=corpus.num_samples - planned - sum(filtered.values()),
        duplicated=int(np.count_nonzero(account.times_planned > 1)),
        over_bound=account.over_bound,
        skew=round(_mean_or(skew, 1.0), 4),
        frame_skew=round(_mean_or(frame_skew, 1.0), 4),
        same_shard=round(_mean_or(np.array(account.same_shard), 0.0), 4),
        order_correlation=round(order_correlation, 4),
        mates_again=round(mates_again, 4),
        length_correlation=round(_correlate(lengths[:-1], lengths[1:]), 4),
        sources=account.count_by_source(),
        lanes=plan.lanes,
        seconds=0.0,
        digest=account.digest.hexdigest(),
    )


class _Account:
    """Sums over the batches of a plan."""

    def __init__(self, plan: EpochPlan) -> None:
        self._corpus, self._bound = plan.corpus, plan.measure.policy.bound
        self._starts = first_samples(plan.corpus)
        self.times_planned = np.zeros(plan.corpus.num_samples, np.uint8)
        """(samples,) number of batches that have each sample."""
        self.batch_numbers = np.zeros(plan.corpus.num_samples, np.int64)
        """(samples,) number of the batch of each sample, from 1; 0 for one that is not planned."""
        self.costs = np.zeros(plan.num_batches, np.int64)
        self.padded = np.zeros(plan.num_batches, np.int64)
        """(batches,) padded frames."""
        self.same_shard: list[float] = []
        """Probability that two samples come from the same shard, of each batch of several samples."""
        self.lengths = np.zeros(plan.num_batches)
        """(batches,) mean frames of the samples."""
        self.frames = self.over_bound = 0
        self.digest = hashlib.sha256()

    def add(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch."""
        keys = []
        for piece in batch.pieces:
            samples = self._starts[piece.shards] + piece.rows
            np.add.at(self.times_planned, samples, 1)
            self.batch_numbers[samples] = batch.index + 1
            self.frames += int(piece.frames.sum())
            self.padded[batch.index] += piece.padded_frames
            self.over_bound += piece.cost > self._bound
            refs = zip(piece.shards.tolist(), piece.rows.tolist(), strict=True)
            keys += [self._corpus.key(SampleRef(*ref)) for ref in refs]

        self.digest.update(("\n".join(keys) + "\n\n").encode())
        self.costs[batch.index] = batch.cost
        frames = sum(int(piece.frames.sum()) for piece in batch.pieces)
        self.lengths[batch.index] = frames / max(1, len(keys))

        shards = np.concatenate([piece.shards for piece in batch.pieces])
        _, counts = np.unique(shards, return_counts=True)
        pairs = len(keys) * (len(keys) - 1)
        if pairs:
            self.same_shard.append((counts * (counts - 1)).sum() / pairs)

    def stored_seconds(self) -> float:
        """Return seconds of audio of the planned utterances, as stored."""
        total = 0.0
        for shard in range(self._corpus.num_shards):
            is_planned = self.times_planned[self._starts[shard] : self._starts[shard + 1]] > 0
            total += float(self._corpus.rows(shard).seconds[is_planned].sum())

        return total

    def count_by_source(self) -> dict[str, int]:
        """Return planned utterances by source."""
        sources = self._corpus.shard_sources
        # (samples,) shard of each sample
        shards = np.repeat(np.arange(self._corpus.num_shards), self._corpus.samples)
        numbers = sources.numbers(shards[self.times_planned > 0])
        counts = np.bincount(numbers, minlength=len(sources.names))
        return dict(zip(sources.names, counts.tolist(), strict=True))


def first_samples(corpus: Corpus) -> np.ndarray:
    """Return (shards + 1,) number of samples before each shard, and in all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(corpus.samples.astype(np.int64))])


def _mean_or(values: np.ndarray, if_empty: float) -> float:
    return float(values.mean()) if len(values) else if_empty


def _compare_epochs(batch_numbers: np.ndarray, next_plan: EpochPlan) -> tuple[float, float]:
    """Measure how alike an epoch and the next one are.

    Args:
        batch_numbers: (samples,) number of the batch of each sample in the first epoch, from 1; 0
            for a sample that is not planned.
        next_plan: the plan of the next epoch.

    Returns:
        correlation of the batch numbers of each sample in both epochs, and the share of the pairs
        of samples of one batch that are in one batch again.
    """
    starts = first_samples(next_plan.corpus)
    next_numbers = np.zeros_like(batch_numbers)
    for index in range(next_plan.num_batches):
        for piece in next_plan.batch(index).pieces:
            next_numbers[starts[piece.shards] + piece.rows] = index + 1

    in_both = (batch_numbers > 0) & (next_numbers > 0)
    first, second = batch_numbers[in_both], next_numbers[in_both]
    mates = _count_pairs(first)
    # Samples with one pair of batch numbers are together in both epochs: a number for each pair.
    batch_pairs = first * (next_plan.num_batches + 1) + second
    mates_in_both = _count_pairs(batch_pairs)

    return _correlate(first, second), mates_in_both / max(1, mates)


def _count_pairs(groups: np.ndarray) -> int:
    """Return the number of pairs of samples that are in the same group."""
    _, counts = np.unique(groups, return_counts=True)
    return int((counts * (counts - 1)).sum()) // 2


def _correlate(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation of two arrays; 0 for fewer than two values, or if all are equal."""
    if len(first) < 2 or not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def skew_of_steps(
    costs: np.ndarray,
    rest: list[Piece],
    world_size: int,
    size_of: Callable[[Piece], int] = attrgetter("cost"),
) -> np.ndarray:
    """Return the cost of each step's most expensive rank divided by the mean of all ranks.

    The result is (steps,), without the steps that cost nothing.

    Args:
        costs: (batches,) costs of the batches of the epoch.
        rest: pieces of an incomplete last step, which the ranks share; empty if every step is
            complete.
        size_of: the cost of a piece.
    """
    whole = len(costs) // world_size * world_size
    steps = costs[:whole].reshape(-1, world_size)  # (steps, ranks)
    if rest:
        last_step = [sum(map(size_of, share)) for share in share_out(rest, world_size)]
        steps = np.vstack([steps, last_step])

    steps = steps[steps.any(axis=1)]
    return steps.max(axis=1) / steps.mean(axis=1)
