"""A dry run of the data: what an epoch will be like, from the index alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.passes import Passes, sources_of
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, choose_lanes
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.pieces import Piece, PlannedBatch, share_out
from wenet_uio.dataset.types import SampleRef


@dataclass(frozen=True)
class PlanReport:
    """One epoch of a corpus under a policy."""

    utterances: int
    """Planned: the corpus less what is filtered."""
    hours: float
    """Audio of the planned utterances, as stored."""
    batches: int
    steps: int
    """Of each rank."""
    padding: float
    """Percent of the padded frames that hold no speech."""
    fill: float
    """Percent of the bound that batches cost on average."""
    filtered: dict[str, int]
    """Utterances that the filters leave out, by reason."""
    bad: int
    """Utterances of the list that have no place in its index."""
    lost: int
    """Utterances neither planned nor filtered."""
    duplicated: int
    """Utterances planned more than once."""
    over_bound: int
    """Pieces of batches that cost more than the bound; evaluation allows it where one utterance does."""
    skew: float
    """Cost of the dearest rank of a step over the mean of its ranks, averaged over the steps."""
    same_shard: float
    """Probability that two samples of one batch are of one shard."""
    order_correlation: float
    """Of the place of each sample in this epoch with that in the next."""
    sources: dict[str, int]
    """Planned utterances by source."""
    lanes: int
    seconds: float
    """Time it took to plan."""
    digest: str
    """SHA-256 over the keys of every batch, in order."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def report_plan(
    corpus: Corpus,
    measure: Measure,
    *,
    seed: int,
    epoch: int,
    world_size: int,
    on_batch: Callable[[PlannedBatch], None] | None = None,
) -> PlanReport:
    """Plan a whole epoch and account for every utterance in it; `on_batch` sees each batch, in order."""
    began = time.monotonic()
    corpus = Passes(corpus).corpus_of(epoch)
    sources = sources_of(corpus)
    lanes = choose_lanes(corpus, world_size)
    plan = EpochPlan(corpus, measure, seed=seed, epoch=epoch, lanes=lanes)
    starts = np.concatenate([[0], np.cumsum(corpus.samples.astype(np.int64))])
    times_planned = np.zeros(corpus.num_samples, np.uint8)
    digest = hashlib.sha256()
    costs = np.zeros(plan.num_batches, np.int64)
    same_shard = np.zeros(plan.num_batches)
    frames = padded = over_bound = 0
    for index in range(plan.num_batches):
        batch = plan.batch(index)
        keys = []
        for piece in batch.pieces:
            np.add.at(times_planned, starts[piece.shards] + piece.rows, 1)
            frames += int(piece.frames.sum())
            padded += piece.padded_frames
            over_bound += piece.cost > measure.policy.bound
            keys += [
                corpus.key(SampleRef(*ref)) for ref in zip(piece.shards.tolist(), piece.rows.tolist(), strict=True)
            ]
        digest.update(("\n".join(keys) + "\n\n").encode())
        costs[index] = batch.cost
        same_shard[index] = _chance_of_one_shard(np.concatenate([piece.shards for piece in batch.pieces]))
        if on_batch is not None:
            on_batch(batch)
    whole = plan.num_batches // world_size * world_size
    rest = [piece for index in range(whole, plan.num_batches) for piece in plan.batch(index).pieces]
    skew = skew_of_steps(costs, rest, world_size)
    filtered = plan.filtered()
    planned = int(np.count_nonzero(times_planned))
    shard_of = np.repeat(np.arange(corpus.num_shards), corpus.samples)
    by_source = np.bincount(sources.numbers(shard_of[times_planned > 0]), minlength=len(sources.names))
    stored = sum(
        float(corpus.rows(shard).seconds[times_planned[starts[shard] : starts[shard + 1]] > 0].sum())
        for shard in range(corpus.num_shards)
    )
    return PlanReport(
        utterances=planned,
        hours=round(stored / 3600, 4),
        batches=plan.num_batches,
        steps=plan.steps_from(0, world_size),
        padding=round(100 * (1 - frames / max(1, padded)), 3),
        fill=round(100 * float(costs.mean()) / measure.policy.bound, 2) if len(costs) else 0.0,
        filtered=dict(sorted(filtered.items())),
        bad=len(corpus.bad),
        lost=corpus.num_samples - planned - sum(filtered.values()),
        duplicated=int(np.count_nonzero(times_planned > 1)),
        over_bound=over_bound,
        skew=round(float(skew.mean()), 4) if len(skew) else 1.0,
        same_shard=round(float(np.nanmean(same_shard)), 4) if np.isfinite(same_shard).any() else 0.0,
        order_correlation=round(_order_correlation(plan, seed, epoch), 4),
        sources=dict(zip(sources.names, by_source.tolist(), strict=True)),
        lanes=lanes,
        seconds=round(time.monotonic() - began, 3),
        digest=digest.hexdigest(),
    )


def _chance_of_one_shard(shards: np.ndarray) -> float:
    """For two samples of a batch; not a number for a batch of one."""
    pairs = len(shards) * (len(shards) - 1)
    counts = np.unique(shards, return_counts=True)[1]
    return float((counts * (counts - 1)).sum() / pairs) if pairs else float("nan")


def _order_correlation(plan: EpochPlan, seed: int, epoch: int) -> float:
    """Correlation between the batch numbers of the same samples in this epoch and in the next."""
    if plan.num_batches < 2:
        return 0.0
    following = plan.of_epoch(seed, epoch + 1)
    starts = np.concatenate([[0], np.cumsum(plan.corpus.samples.astype(np.int64))])
    places = np.zeros((2, plan.corpus.num_samples))
    for row, one in enumerate((plan, following)):
        for index in range(one.num_batches):
            for piece in one.batch(index).pieces:
                places[row, starts[piece.shards] + piece.rows] = index + 1
    planned = (places > 0).all(axis=0)
    return float(np.corrcoef(places[:, planned])[0, 1]) if planned.sum() > 1 else 0.0


def skew_of_steps(costs: np.ndarray, rest: list[Piece], world_size: int) -> np.ndarray:
    """Cost of the dearest rank over the mean of all, for each step in which any has work, (steps,).

    Args:
        costs: (batches,) of the epoch.
        rest: the pieces of the last step, where it has fewer batches than ranks and will be split.
    """
    whole = len(costs) // world_size * world_size
    steps = costs[:whole].reshape(-1, world_size)
    if rest:
        shares = share_out(rest, world_size)
        steps = np.vstack([steps, [sum(piece.cost for piece in share) for share in shares]])
    steps = steps[steps.any(axis=1)]
    return steps.max(axis=1) / steps.mean(axis=1)
