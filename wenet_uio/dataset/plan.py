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
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wenet_uio.dataset.batching import cut, fewest_batches
from wenet_uio.dataset.corpus import Corpus
from wenet_uio.dataset.index import Rows
from wenet_uio.dataset.measure import Measure
from wenet_uio.dataset.randomness import Permutation, draw, key_of, uniform

WHOLE_CORPUS = 1 << 18
"""Utterances up to which a corpus is planned at once, in a third of a second."""
LEAST_LANES = 8
GROUP_SHARDS = 8
"""Shards that a group has at least, so that batch-mates come from several."""
BLOCK_BATCHES = 256
"""Batches that are cut from one sorted block: more pad less, fewer shuffle more."""
JITTER = 0.01
"""Share of its length by which a sample's place in the sorted order is moved at most, so that mates change."""
FILL = {"static": 0.99, "dynamic": 0.94, "bucket": 0.94}
"""Share of the bound that a batch is planned to fill where its group is planned unseen; more would split batches."""
COST_UNIT = 1 << 20
"""Costs are integers, in this part of a batch: sums are exact on every machine."""
SHUFFLE, SPEED, PLACE, BLOCK, ROW, PHASE = range(6)
"""What a random number is drawn for."""


@dataclass(frozen=True)
class Piece:
    """Samples that go through the model together, sorted by length."""

    shards: np.ndarray
    rows: np.ndarray
    speeds: np.ndarray
    frames: np.ndarray
    units: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, span: slice) -> Piece:
        return Piece(self.shards[span], self.rows[span], self.speeds[span], self.frames[span], self.units[span])

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
    members: tuple[tuple[int, int, int], ...]
    """(shard, first sample, one past the last)."""


class EpochPlan:
    """All batches of one epoch, planned a group at a time."""

    def __init__(self, corpus: Corpus, measure: Measure, *, seed: int, epoch: int, lanes: int) -> None:
        self.corpus, self.measure = corpus, measure
        self.key = key_of(seed, epoch)
        """Of every draw in this epoch."""
        self.lanes = lanes
        self._planned: dict[int, tuple[_Group, list[PlannedBatch]]] = {}
        if lanes == 1 and corpus.num_samples <= WHOLE_CORPUS:
            members = tuple((shard, 0, int(count)) for shard, count in enumerate(corpus.samples))
            batches = self._plan(members, 0, None)
            self.rows = len(batches)
            self._planned[0] = (_Group(0, self.rows, members), batches)
        else:
            self.rows = -(-int(self._cumulative[-1]) // (lanes * COST_UNIT))

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
            batches = self._plan(group.members, group.first_row, group.last_row - group.first_row)
            self._planned[lane] = (group, batches)
        return PlannedBatch(index, batches[row - group.first_row].pieces)

    def step(self, position: int, world_size: int, rank: int) -> PlannedBatch:
        """What `rank` runs in the step that starts at batch `position`.

        The last step of an epoch may hold fewer batches than ranks: its largest are halved until each rank has one.
        """
        if position + world_size <= self.num_batches:
            return self.batch(position + rank)
        pieces = [piece for index in range(position, self.num_batches) for piece in self.batch(index).pieces]
        while len(pieces) < world_size:
            largest = max(range(len(pieces)), key=lambda number: len(pieces[number]))
            whole, middle = pieces[largest], (len(pieces[largest]) + 1) // 2
            pieces[largest : largest + 1] = [whole[slice(0, middle)], whole[slice(middle, None)]]
        return PlannedBatch(min(position + rank, self.num_batches - 1), tuple(pieces[rank::world_size]))

    def groups(self, lane: int) -> list[_Group]:
        """The groups of a lane in the order of their rows."""
        if self.lanes == 1 and 0 in self._planned:
            return [self._planned[0][0]]
        first_row, edges, start, end = self._lane_edges(lane)
        return [self._members_of(start, end, edges, first_row, number) for number in range(len(edges) - 1)]

    def filtered(self) -> Counter[str]:
        """Samples that the filters leave out, by reason; reads the whole index."""
        reasons: Counter[str] = Counter()
        for shard in range(self.corpus.num_shards):
            reasons += self.measure.keep(self.corpus.rows(shard))[1]
        return reasons

    # The stream of shards and its lanes.

    @cached_property
    def _order(self) -> np.ndarray:
        return Permutation(self.corpus.num_shards, key_of(self.key, SHUFFLE))(np.arange(self.corpus.num_shards))

    @cached_property
    def _cumulative(self) -> np.ndarray:
        """Cost of the permuted stream before each shard, and of all."""
        return np.concatenate([[0], np.cumsum(shard_costs(self.corpus, self.measure)[self._order])])

    def _lane_edges(self, lane: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        """First row of each group, place in the stream of each group edge, and where the lane starts and ends."""
        total = int(self._cumulative[-1])
        start, end = total * lane // self.lanes, total * (lane + 1) // self.lanes
        first, last = (int(np.searchsorted(self._cumulative, x, side="right")) - 1 for x in (start, end))
        last = min(last, self.corpus.num_shards)
        per_shard = max(1e-9, (end - start) / COST_UNIT / max(1, last - first))
        width = max(GROUP_SHARDS, round(BLOCK_BATCHES / per_shard))
        phase = key_of(self.key, PHASE, lane) % width
        edges = np.arange(first + 1 + phase, last, width)
        rows = self.rows * (self._cumulative[edges] - start) // (end - start)
        worth = np.flatnonzero(np.diff(np.concatenate([[0], rows])) > 0)  # a group without a row joins the next
        worth = worth[rows[worth] < self.rows]
        positions = np.concatenate([[first], edges[worth], [last]])
        return np.concatenate([[0], rows[worth], [self.rows]]), positions, start, end

    def _group_at(self, lane: int, row: int) -> _Group:
        first_row, edges, start, end = self._lane_edges(lane)
        number = int(np.searchsorted(first_row, row, side="right")) - 1
        return self._members_of(start, end, edges, first_row, number)

    def _members_of(self, start: int, end: int, edges: np.ndarray, first_row: np.ndarray, number: int) -> _Group:
        low, high = int(edges[number]), int(edges[number + 1])
        is_last = number == len(edges) - 2
        members = []
        for position in range(low, min(high + is_last, self.corpus.num_shards)):
            shard = int(self._order[position])
            first = self._sample_at(position, start) if position == low and number == 0 else 0
            last = self._sample_at(position, end) if is_last and position == high else int(self.corpus.samples[shard])
            if last > first:
                members.append((shard, first, last))
        return _Group(int(first_row[number]), int(first_row[number + 1]), tuple(members))

    def _sample_at(self, position: int, cost: int) -> int:
        """Sample of the shard at `position` of the stream at which the stream's cost passes `cost`."""
        before, after = int(self._cumulative[position]), int(self._cumulative[position + 1])
        if cost <= before:
            return 0
        seconds = np.cumsum(self.corpus.rows(int(self._order[position])).seconds)
        return int(np.searchsorted(seconds, seconds[-1] * ((cost - before) / (after - before)), side="left"))

    # A group's samples and their batches.

    def _plan(self, members: tuple[tuple[int, int, int], ...], first_row: int, count: int | None) -> list[PlannedBatch]:
        """Batches of a group, in the order of its rows; `count` None makes as few as the bound allows."""
        piece, keys = self._gather(members)
        blocks = self._deal(piece, keys, count)
        batches = [batch for block, share in blocks for batch in self._cut(block, share)]
        batches.sort(key=_mean_frames)
        quantile = uniform(key_of(self.key, ROW), np.arange(first_row, first_row + len(batches)))
        place = np.argsort(np.argsort(quantile, kind="stable"))
        return [PlannedBatch(-1, batches[rank]) for rank in place]

    def _gather(self, members: tuple[tuple[int, int, int], ...]) -> tuple[Piece, np.ndarray]:
        """All samples of a group that take part, in the order of their keys' draws; and those draws' counters."""
        columns: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.int64),) * 5]
        for shard, first, last in members:
            rows: Rows = self.corpus.rows(shard).slice(first, last)
            kept = np.flatnonzero(self.measure.keep(rows)[0])
            columns.append(
                (
                    np.full(len(kept), shard),
                    kept + first,
                    rows.key_hash[kept],
                    rows.num_samples[kept],
                    rows.sample_rate[kept],
                )
            )
        shards, places, keys, num_samples, rates = (
            np.concatenate(column[1:] or column) for column in zip(*columns, strict=True)
        )
        keys = keys.astype(np.uint64)
        choices = np.asarray(self.measure.speeds)
        speeds = choices[draw(key_of(self.key, SPEED), keys) % np.uint64(len(choices))]
        frames = self.measure.frames(num_samples, rates, speeds)
        piece = Piece(
            shards.astype(np.int64), places, speeds.astype(np.float32), frames, self.measure.policy.units(frames)
        )
        return piece, keys

    def _deal(self, piece: Piece, keys: np.ndarray, count: int | None) -> list[tuple[Piece, int | None]]:
        """Deal the samples into blocks at random, each sorted by length, with its share of `count` batches."""
        expected = count if count is not None else int(piece.units.sum()) // self.measure.policy.bound
        number = max(1, round(expected / BLOCK_BATCHES))
        turn = np.argsort(draw(key_of(self.key, BLOCK), keys), kind="stable")
        moved = piece.frames * (1 + JITTER * (2 * uniform(key_of(self.key, PLACE), keys) - 1))
        blocks = []
        for part in range(number):
            chosen = turn[part::number]
            chosen = chosen[np.argsort(moved[chosen], kind="stable")]
            block = Piece(*(getattr(piece, name)[chosen] for name in ("shards", "rows", "speeds", "frames", "units")))
            share = None if count is None else count * (part + 1) // number - count * part // number
            blocks.append((block, share))
        return blocks

    def _cut(self, block: Piece, count: int | None) -> list[tuple[Piece, ...]]:
        """Cut a sorted block into `count` batches; one over the bound becomes several pieces."""
        bound = self.measure.policy.bound
        units = np.maximum.accumulate(block.units)
        runs = cut(units, fewest_batches(units, bound) if count is None else count, bound) if count != 0 else []
        batches = []
        for first, last in runs:
            piece = block[slice(first, last)]
            if piece.cost > bound and len(piece) > 1:
                spans = cut(units[first:last], fewest_batches(units[first:last], bound), bound)
                batches.append(tuple(piece[slice(*span)] for span in spans))
            else:
                batches.append((piece,))
        return batches


def shard_costs(corpus: Corpus, measure: Measure) -> np.ndarray:
    """Batches that each shard is worth, as integers in parts of COST_UNIT.

    From the shard table; only shards that the filters may touch, and all for bucketed batches, are looked into.
    """
    policy = measure.policy
    if policy.kind == "static":
        costs = corpus.samples / (policy.bound * 1.0)
    else:
        frames = measure.frame_count
        per_second = frames.sample_rate / frames.shift * np.mean(1 / np.asarray(measure.speeds))
        costs = corpus.seconds * per_second / policy.bound
    looked_into = measure.shard_can_lose(corpus.shortest, corpus.longest) | (policy.kind == "bucket")
    for shard in np.flatnonzero(looked_into):
        rows = corpus.rows(int(shard))
        kept = measure.keep(rows)[0]
        costs[shard] = (
            measure.policy.units(measure.frames(rows.num_samples, rows.sample_rate))[kept].sum() / policy.bound
        )
    return np.ceil(costs / FILL[policy.kind] * COST_UNIT).astype(np.int64)


def choose_lanes(corpus: Corpus, world_size: int) -> int:
    """Lanes for a first run: a multiple of the world size where there are shards enough, one for a small corpus."""
    if corpus.num_samples <= WHOLE_CORPUS:
        return 1
    lanes = -(-LEAST_LANES // world_size) * world_size
    return max(1, min(lanes, corpus.num_shards // GROUP_SHARDS))


def _mean_frames(pieces: tuple[Piece, ...]) -> float:
    return float(np.mean(np.concatenate([piece.frames for piece in pieces]))) if any(map(len, pieces)) else 0.0
