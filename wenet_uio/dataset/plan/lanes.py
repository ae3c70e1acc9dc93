"""Lanes: equal cuts of the permuted stream of shards, and the groups of shards along each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.columns import release_pages
from wenet_uio.dataset.plan.measure import SHARDS_AT_ONCE, Measure
from wenet_uio.dataset.plan.shard_stream import ShardStream
from wenet_uio.dataset.randomness import PHASE, SHUFFLE, key_of

GROUP_SHARDS = 8
GROUP_UTTERANCES = 24_000
"""Shards and utterances that a group has at least: batches mix as many shards as a shuffle buffer of 10,000 does."""
GROUP_BATCHES = 256
"""Batches that a group is worth at least: enough to cut a sorted block from."""
COST_UNIT = 1 << 12
"""Costs are integers, in this part of a batch: sums are exact on every machine."""

Members = tuple[tuple[int, int, int], ...]
"""Runs of samples: shard, first sample, one past the last."""


@dataclass(frozen=True)
class Group:
    """Consecutive shards of a lane and the rows they fill."""

    first_row: int
    last_row: int
    members: Members


class Lanes:
    """The lanes of one epoch, each of the same number of rows; groups are found without keeping the order of shards."""

    def __init__(self, corpus: Corpus, measure: Measure, *, key: int, lanes: int) -> None:
        self.corpus, self.measure, self.key, self.lanes = corpus, measure, key, lanes

    @cached_property
    def rows(self) -> int:
        """Batches of each lane."""
        return -(-self._stream.total // (self.lanes * COST_UNIT))

    @cached_property
    def _stream(self) -> ShardStream:
        return ShardStream(shard_costs(self.corpus, self.measure), key_of(self.key, SHUFFLE))

    def group_at(self, lane: int, row: int) -> Group:
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
        width = max(shards_of_a_group(self.corpus), round(GROUP_BATCHES * COST_UNIT * max(1, last - first) / span))
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
        return Group(passed, last_row, self._members(low, high, start, end))

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


@lru_cache(maxsize=2)
def shard_costs(corpus: Corpus, measure: Measure) -> np.ndarray:
    """Batches that each shard is worth, in parts of COST_UNIT: the same for every epoch; uint32."""
    costs = np.empty(corpus.num_shards, np.uint32)
    unit = COST_UNIT / (measure.policy.bound * measure.policy.fill)
    for first in range(0, corpus.num_shards, SHARDS_AT_ONCE):
        part = slice(first, first + SHARDS_AT_ONCE)
        costs[part] = np.minimum(np.ceil(measure.shard_units(corpus, part) * unit), np.iinfo(np.uint32).max)
        release_pages(corpus.samples)
    return costs


def shards_of_a_group(corpus: Corpus) -> int:
    """Shards that batch-mates are drawn from at least."""
    return max(GROUP_SHARDS, -(-GROUP_UTTERANCES * corpus.num_shards // max(1, corpus.num_samples)))
