"""The plan: every batch of an epoch, in order, as a pure function of (index, policy, seed, epoch).

    order    the shards, permuted by key
    lanes    L cuts of that stream, equal in cost; each lane has the same number of rows, by definition
    groups   runs of shards within a lane; a group's share of its lane's rows telescopes to the lane's total
    batches  a group's samples, dealt into blocks, sorted by length, cut into exactly as many runs as it has rows
    batch t  lane t mod L, row t div L

Only the group that holds a row is planned to find it, so any t is reached at once and memory does not grow with the
corpus. A corpus of no more than WHOLE_CORPUS utterances is one lane of one group: a full shuffle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from wenet_uio.dataset.batching import cut, fewest_batches
from wenet_uio.dataset.columns import release_pages
from wenet_uio.dataset.corpus import Corpus
from wenet_uio.dataset.measure import Measure, Stored
from wenet_uio.dataset.policies import NO_BUCKET
from wenet_uio.dataset.randomness import draw, key_of, uniform
from wenet_uio.dataset.stream import ShardStream

WHOLE_CORPUS = 1 << 18
"""Utterances up to which a corpus is planned at once, in a third of a second."""
LEAST_LANES = 8
GROUP_SHARDS = 8
GROUP_UTTERANCES = 24_000
"""Shards and utterances that a group has at least: batches mix as many shards as a shuffle buffer of 10,000 does."""
BLOCK_BATCHES = 256
"""Batches that are cut from one sorted block: more pad less, fewer shuffle more."""
JITTER = 0.01
"""Share of its length by which a sample's place in the sorted order is moved at most, so that mates change."""
COST_UNIT = 1 << 12
"""Costs are integers, in this part of a batch: sums are exact on every machine."""
SHARDS_AT_ONCE = 1 << 18
"""Shards whose costs are worked out together, to bound the memory that takes."""
SHUFFLE, SPEED, PLACE, BLOCK, ROW, PHASE, AUGMENTATION = range(7)
"""What a random number is drawn for."""


Members = tuple[tuple[int, int, int], ...]
"""Runs of samples: shard, first sample, one past the last."""


@dataclass(frozen=True)
class Piece:
    """Samples that go through the model together, sorted by length."""

    shards: np.ndarray
    rows: np.ndarray
    speeds: np.ndarray
    frames: np.ndarray
    units: np.ndarray
    buckets: np.ndarray
    """Samples of different buckets do not share a piece; NO_BUCKET where all may."""
    seeds: np.ndarray
    """Of all that is drawn for each sample while it is read."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | np.ndarray) -> Piece:
        return Piece(*(getattr(self, column.name)[chosen] for column in fields(self)))

    @property
    def cost(self) -> int:
        """Padded cost in units of the policy."""
        return len(self) * int(self.units.max(initial=0))

    @property
    def padded_frames(self) -> int:
        return len(self) * int(self.frames.max(initial=0))


@dataclass(frozen=True)
class PlannedBatch:
    """Batch t of an epoch: one piece, or several where one would exceed the bound."""

    index: int
    pieces: tuple[Piece, ...]

    def __len__(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    @property
    def cost(self) -> int:
        return sum(piece.cost for piece in self.pieces)


@dataclass(frozen=True)
class _Group:
    """Consecutive shards of a lane and the rows they fill."""

    first_row: int
    last_row: int
    members: Members


class EpochPlan:
    """All batches of one epoch, planned a group at a time."""

    def __init__(
        self,
        corpus: Corpus,
        measure: Measure,
        *,
        seed: int,
        epoch: int,
        lanes: int,
        same_length: bool = False,
        costs: np.ndarray | None = None,
    ) -> None:
        """Plan nothing yet, or all of a small corpus.

        Args:
            same_length: give plans of every seed and epoch as many batches; else a small corpus gets the fewest.
            costs: the shard_costs of the corpus, to share them between epochs.
        """
        self.corpus, self.measure, self._costs = corpus, measure, costs
        self.key = key_of(seed, epoch)
        """Of every draw in this epoch."""
        self.lanes = lanes
        self._planned: dict[int, tuple[_Group, list[PlannedBatch]]] = {}
        if lanes == 1 and corpus.num_samples <= WHOLE_CORPUS:
            members = tuple((shard, 0, int(count)) for shard, count in enumerate(corpus.samples))
            batches = self._plan(0, members, 0, self._rows_by_cost() if same_length else None)
            self.rows = len(batches)
            self._planned[0] = (_Group(0, self.rows, members), batches)
        else:
            self.rows = self._rows_by_cost()

    @property
    def num_batches(self) -> int:
        return self.lanes * self.rows

    def steps_from(self, position: int, world_size: int) -> int:
        """Steps that `world_size` ranks take from batch `position` to the end of the epoch."""
        return -(-(self.num_batches - position) // world_size)

    def batch(self, index: int) -> PlannedBatch:
        """Batch `index` of the epoch."""
        row, lane = divmod(index, self.lanes)
        group, batches = self._planned.get(lane, (None, []))
        if group is None or not group.first_row <= row < group.last_row:
            group = self._group_at(lane, row)
            batches = self._plan(lane, group.members, group.first_row, group.last_row - group.first_row)
            self._planned[lane] = (group, batches)
        return PlannedBatch(index, batches[row - group.first_row].pieces)

    def step(self, position: int, world_size: int, rank: int) -> PlannedBatch:
        """What `rank` runs in the step that starts at batch `position`.

        The last step of an epoch may hold fewer batches than ranks: its largest are halved until each rank has one.
        """
        if position + world_size <= self.num_batches:
            return self.batch(position + rank)
        pieces = [piece for index in range(position, self.num_batches) for piece in self.batch(index).pieces]
        shares = share_out(pieces, world_size)
        return PlannedBatch(min(position + rank, self.num_batches - 1), shares[rank])

    def filtered(self) -> Counter[str]:
        """Samples that the filters leave out, by reason; reads the whole index."""
        reasons: Counter[str] = Counter()
        for shard in range(self.corpus.num_shards):
            reasons += self.measure.keep(self.corpus.rows(shard))[1]
        return reasons

    # Lanes and groups.

    def _rows_by_cost(self) -> int:
        return -(-self._stream.total // (self.lanes * COST_UNIT))

    @cached_property
    def _stream(self) -> ShardStream:
        costs = self._costs if self._costs is not None else shard_costs(self.corpus, self.measure)
        return ShardStream(costs, key_of(self.key, SHUFFLE))

    def _group_at(self, lane: int, row: int) -> _Group:
        """The group that fills a row of a lane.

        Group edges lie on a grid of positions; the rows before position p are rows * cost(p) // cost(lane), so that the
        rows of all groups add up to the lane's. A group that would have no row joins the next.
        """
        stream = self._stream
        start, end = (stream.total * number // self.lanes for number in (lane, lane + 1))
        span = end - start

        def first_position_after(rows: int) -> int:
            """First position before which the lane has at least `rows` rows."""
            return stream.position_of(start - (-rows * span // self.rows))

        def rows_before(position: int) -> int:
            return self.rows * (stream.cost_before(position) - start) // span

        first, last = self._containing(start), self._containing(end)
        width = max(shards_of_a_group(self.corpus), round(BLOCK_BATCHES * COST_UNIT * max(1, last - first) / span))
        origin = first + width + key_of(self.key, PHASE, lane) % width

        def edge_from(position: int) -> int:
            """First edge at or after a position."""
            return origin + max(0, -(-(position - origin) // width)) * width

        no_edge = edge_from(last - width + 1)  # the first on the grid that would leave too small a group behind it
        high = min(edge_from(first_position_after(row + 1)), no_edge)
        low = high - width
        passed = rows_before(low) if low >= origin else 0
        low = edge_from(first_position_after(passed)) if passed else first
        if high >= no_edge or rows_before(high) >= self.rows:
            high, last_row = last, self.rows
        else:
            last_row = rows_before(high)
        return _Group(passed, last_row, self._members(low, high, start, end))

    def _containing(self, cost: int) -> int:
        """Position of the shard in which the stream's cost passes `cost`; the stream's length at its end."""
        if cost >= self._stream.total:
            return len(self._stream)
        return self._stream.position_of(cost + 1) - 1

    def _members(self, low: int, high: int, start: int, end: int) -> Members:
        """Runs of samples between two positions of the lane that goes from cost `start` to cost `end`."""
        members = []
        for position in range(low, min(high + 1, len(self._stream))):
            shard = self._stream.shard_at(position)
            first = self._sample_at(position, start)
            last = self._sample_at(position, end) if position == high == self._containing(end) else None
            if position == high and last is None:
                break
            last = int(self.corpus.samples[shard]) if last is None else last
            if last > first:
                members.append((shard, first, last))
        return tuple(members)

    def _sample_at(self, position: int, cost: int) -> int:
        """Sample of the shard at `position` at which the stream's cost passes `cost`; 0 where that is before it."""
        before, after = (self._stream.cost_before(edge) for edge in (position, position + 1))
        if cost <= before:
            return 0
        seconds = np.cumsum(self.corpus.rows(self._stream.shard_at(position)).seconds)
        return int(np.searchsorted(seconds, seconds[-1] * ((cost - before) / (after - before)), side="left"))

    # A group's samples and their batches.

    def _plan(self, lane: int, members: Members, first_row: int, count: int | None) -> list[PlannedBatch]:
        """Batches of a group, in the order of its rows; `count` None makes as few as the bound allows."""
        samples, keys = self._gather(members)
        batches = [batch for block, share in self._deal(samples, keys, count) for batch in self._cut(block, share)]
        batches.sort(key=_mean_frames)
        rows = np.arange(first_row, first_row + len(batches))
        if self.measure.length_order == "synced":
            rows = draw(key_of(self.key, ROW), rows)
        elif self.measure.length_order == "random":
            rows = draw(key_of(self.key, ROW, lane), rows)
        place = np.argsort(np.argsort(rows, kind="stable"))
        return [PlannedBatch(-1, batches[rank]) for rank in place]

    def _gather(self, members: Members) -> tuple[Piece, np.ndarray]:
        """All samples of a group that take part, and the counters of their draws."""
        columns: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.int64),) * 6]
        for shard, first, last in members:
            rows = self.corpus.rows(shard).slice(first, last)
            kept = np.flatnonzero(self.measure.keep(rows)[0])
            stored = (rows.num_samples, rows.sample_rate, rows.text_length, rows.key_hash)
            columns.append((np.full(len(kept), shard), kept + first, *(column[kept] for column in stored)))
        shards, rows, *stored, keys = (np.concatenate(column[1:] or column) for column in zip(*columns, strict=True))
        keys = keys.astype(np.uint64)
        choices = np.asarray(self.measure.speeds)
        speeds = choices[draw(key_of(self.key, SPEED), keys) % np.uint64(len(choices))]
        lengths = self.measure.lengths(Stored(*stored), speeds)
        buckets = self.corpus.separate(shards, self.measure.policy.buckets(lengths))
        seeds = draw(key_of(self.key, AUGMENTATION), keys)
        units = self.measure.policy.units(lengths)
        samples = Piece(shards, rows, speeds.astype(np.float32), lengths.frames, units, buckets, seeds)
        return samples, keys

    def _deal(self, samples: Piece, keys: np.ndarray, count: int | None) -> list[tuple[Piece, int | None]]:
        """Deal the samples into blocks at random, each sorted by length, with its share of `count` batches."""
        expected = count if count is not None else int(samples.units.sum()) // self.measure.policy.bound
        number = max(1, round(expected / BLOCK_BATCHES))
        shift = 2 * uniform(key_of(self.key, PLACE), keys) - 1
        if self.measure.noise is None:
            place = samples.frames * (1 + JITTER * shift)
        else:
            place = samples.frames + shift * (self.measure.noise / 2 * _range(samples.frames))
            number = 1
        turn = np.argsort(draw(key_of(self.key, BLOCK), keys), kind="stable")
        blocks = []
        for part in range(number):
            block = turn[part::number]
            share = None if count is None else count * (part + 1) // number - count * part // number
            blocks.append((samples[block[np.argsort(place[block], kind="stable")]], share))
        return blocks

    def _cut(self, block: Piece, count: int | None) -> list[tuple[Piece, ...]]:
        """Cut a sorted block into `count` batches; one over the bound becomes several pieces."""
        if len(block) and block.buckets[0] != NO_BUCKET:
            numbers = np.unique(block.buckets)
            pieces = [piece for number in numbers for piece in self._within_bound(block[block.buckets == number])]
            return share_out(pieces, len(pieces) if count is None else count)
        if count is None:
            return [(piece,) for piece in self._within_bound(block) if len(piece)]
        runs = cut(np.maximum.accumulate(block.units), count, self.measure.policy.bound) if count else []
        return [tuple(self._within_bound(block[slice(*run)])) for run in runs]

    def _within_bound(self, samples: Piece) -> list[Piece]:
        """Sorted samples in as few pieces as the bound allows; one, if empty."""
        if samples.cost <= self.measure.policy.bound:
            return [samples]
        units = np.maximum.accumulate(samples.units)
        runs = cut(units, fewest_batches(units, self.measure.policy.bound), self.measure.policy.bound)
        return [samples[slice(*run)] for run in runs]


def share_out(pieces: list[Piece], count: int) -> list[tuple[Piece, ...]]:
    """Make exactly `count` batches of pieces: the cheapest are put together, or the largest halved."""
    batches = [(piece,) for piece in pieces]
    while len(batches) > count:
        batches.sort(key=lambda batch: sum(piece.cost for piece in batch), reverse=True)
        batches[-2:] = [batches[-2] + batches[-1]]
    while len(batches) < count:
        batches.sort(key=lambda batch: len(batch[0]))
        (largest,) = batches.pop()
        middle = (len(largest) + 1) // 2
        batches += [(largest[:middle],), (largest[middle:],)]
    return batches


def shard_costs(corpus: Corpus, measure: Measure) -> np.ndarray:
    """Batches that each shard is worth, in parts of COST_UNIT: the same for every epoch; uint32."""
    costs = np.empty(corpus.num_shards, np.uint32)
    unit = COST_UNIT / (measure.policy.bound * measure.policy.fill)
    for first in range(0, corpus.num_shards, SHARDS_AT_ONCE):
        part = slice(first, first + SHARDS_AT_ONCE)
        costs[part] = np.minimum(np.ceil(measure.shard_units(corpus, part) * unit), np.iinfo(np.uint32).max)
        release_pages(corpus.samples)
    return costs


def choose_lanes(corpus: Corpus, world_size: int) -> int:
    """Lanes for a first run: a multiple of the world size where there are shards enough, one for a small corpus."""
    if corpus.num_samples <= WHOLE_CORPUS:
        return 1
    lanes = -(-LEAST_LANES // world_size) * world_size
    return max(1, min(lanes, corpus.num_shards // shards_of_a_group(corpus)))


def shards_of_a_group(corpus: Corpus) -> int:
    """Shards that batch-mates are drawn from at least."""
    return max(GROUP_SHARDS, -(-GROUP_UTTERANCES * corpus.num_shards // max(1, corpus.num_samples)))


def _range(values: np.ndarray) -> int:
    return int(np.ptp(values)) if len(values) else 0


def _mean_frames(pieces: tuple[Piece, ...]) -> float:
    return float(np.mean(np.concatenate([piece.frames for piece in pieces]))) if any(map(len, pieces)) else 0.0
