"""Lanes: cuts of equal cost of the permuted stream of shards, and the groups of shards along each
lane. The stream is looked up by position or by cost; its order is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.columns import release_pages
from wenet_uio.dataset.corpus.shard_corpus import OPEN_SHARDS
from wenet_uio.dataset.plan.measure import SHARDS_AT_ONCE, Measure
from wenet_uio.dataset.randomness import PHASE, SHUFFLE, Permutation, key_of

PLANNERS = (2, 3, 4)
"""Versions of the planner, one of which the state of a run names: that of divisions by row, that of
divisions by step, and that of divisions whose steps take turns. Raise all of them with every change
that changes a plan: positions inside a pass mean other samples then."""
GROUP_SHARDS = 8
GROUP_UTTERANCES = 24_000
"""A group has at least so many shards and utterances. Its batches then mix as many shards as a
shuffle buffer of 10,000 samples does."""
MOST_UTTERANCES = 1 << 17
"""A group of local shards grows to OPEN_SHARDS shards, which its readers keep open, but not beyond
so many utterances, which take 0.2 s to plan."""
GROUP_BATCHES = 256
"""A group has at least so many batches: enough to cut them from one sorted block."""
COST_UNIT = 1 << 12
"""Costs are integers: so many units are one full batch. Sums of integers are exact on every
machine."""


@dataclass(frozen=True)
class Division:
    """How the shards of a corpus are divided. The numbers are part of the state of a run: a plan
    depends on them.
    """

    lanes: int
    synced: int
    """Number of consecutive batches of similar length: those of so many lanes in a row, or those of
    a step if there are more than lanes."""
    group_shards: int = 1
    """Shards of a group, if that is more than the least number (`shards_of_a_group`)."""
    turns_by_step: bool = False
    """Sources that take turns do so by step: its ranks read one source. False: by batch."""

    @property
    def by_step(self) -> bool:
        """True if a step needs batches of several rows, so that the order of length is by step and
        not by row.
        """
        return self.synced > self.lanes

    @property
    def planner(self) -> int:
        """Version of the planner that plans this division: see `PLANNERS`."""
        if self.turns_by_step:
            return PLANNERS[2]
        return PLANNERS[1] if self.by_step else PLANNERS[0]


Members = tuple[tuple[int, int, int], ...]
"""Runs of samples: (shard, first sample, one past the last sample)."""


@dataclass(frozen=True)
class Group:
    """Consecutive shards of a lane and the rows that they fill: `first_row` up to, but not
    including, `last_row`.
    """

    first_row: int
    last_row: int
    members: Members


class ShardCosts:
    """Cost of each shard of a corpus. All epochs share the array, which is computed at first
    use.
    """

    def __init__(self, corpus: Corpus, measure: Measure) -> None:
        self.corpus, self.measure = corpus, measure

    @cached_property
    def array(self) -> np.ndarray:
        """Cost of each shard, (shards,) uint32: COST_UNIT for samples that fill one batch."""
        corpus, policy = self.corpus, self.measure.policy
        costs = np.empty(corpus.num_shards, np.uint32)
        cost_per_unit = COST_UNIT / (policy.bound * policy.fill)

        for first in range(0, corpus.num_shards, SHARDS_AT_ONCE):
            part = slice(first, first + SHARDS_AT_ONCE)
            costs_of_part = np.ceil(self.measure.shard_units(corpus, part) * cost_per_unit)
            costs[part] = np.minimum(costs_of_part, np.iinfo(np.uint32).max)
            release_pages(corpus.samples)

        return costs

    def of_entry(self, entry: int | None) -> np.ndarray:
        """Return (shards,) the costs of one entry of a mixture, and 0 for all other shards; None
        gives all costs.
        """
        if entry is None:
            return self.array
        entries = self.corpus.shard_sources.entries(np.arange(self.corpus.num_shards))
        return np.where(entries == entry, self.array, np.uint32(0))


class Lanes:
    """The lanes of one epoch, which all have the same number of rows.

    A group is computed from its row, without storing the order of the shards.
    """

    def __init__(
        self, costs: ShardCosts, *, key: int, division: Division, entry: int | None = None
    ) -> None:
        """Cut the shards, or those of one entry of a mixture, into lanes.

        Args:
            costs: of the shards.
            key: of all random draws of the epoch.
            division: how many lanes, and how large groups are.
            entry: number of the entry; None for all shards.
        """
        self._entry, self._sources = entry, costs.corpus.shard_sources
        self.corpus, self.key, self.lanes = costs.corpus, key, division.lanes
        self._group_shards = max(division.group_shards, shards_of_a_group(costs.corpus))
        self._costs = costs

    @cached_property
    def rows(self) -> int:
        """Number of batches in each lane."""
        return -(-self._stream.total // (self.lanes * COST_UNIT))

    @cached_property
    def _stream(self) -> ShardStream:
        return ShardStream(self._costs.of_entry(self._entry), key_of(self.key, SHUFFLE))

    def group_at(self, lane: int, row: int) -> Group:
        """Return the group that fills a row of a lane.

        The edges of groups lie on a grid of positions. Before position p of the lane there are
        rows * cost(p) // cost(lane) rows, so that the rows of all groups add up to the rows of the
        lane. A group that would have no row is merged with the next one.
        """
        stream = self._stream
        start_cost = stream.total * lane // self.lanes
        end_cost = stream.total * (lane + 1) // self.lanes
        lane_cost = end_cost - start_cost

        def first_position_after(rows: int) -> int:
            """Return the first position before which the lane has at least `rows` rows."""
            return stream.position_of(start_cost - (-rows * lane_cost // self.rows))

        def rows_before(position: int) -> int:
            return self.rows * (stream.cost_before(position) - start_cost) // lane_cost

        # Positions in the stream of the first and the last shard of the lane
        first, last = self._position_containing(start_cost), self._position_containing(end_cost)

        # The grid of edges: every `width` shards, staggered between lanes, so that not all of them
        # begin a group in one step.
        width_of_batches = round(GROUP_BATCHES * COST_UNIT * max(1, last - first) / lane_cost)
        width = max(self._group_shards, width_of_batches)
        first_edge = first + width + key_of(self.key, PHASE, lane) % width

        def edge_from(position: int) -> int:
            """Return the first edge at or after a position."""
            widths = max(0, -(-(position - first_edge) // width))
            return first_edge + widths * width

        # The grid ends here: the rest is too small for a group.
        no_edge = edge_from(last - width + 1)
        high = min(edge_from(first_position_after(row + 1)), no_edge)

        # The group begins at the first edge before which all earlier rows lie: groups without a row
        # between that edge and `high` are merged with this one.
        edge_before = high - width
        first_row = rows_before(edge_before) if edge_before >= first_edge else 0
        low = edge_from(first_position_after(first_row)) if first_row else first

        # The last group takes all that is left of the lane.
        last_row = rows_before(high)
        if high >= no_edge or last_row >= self.rows:
            high, last_row = last, self.rows

        return Group(first_row, last_row, self._find_members(low, high, start_cost, end_cost))

    def _position_containing(self, cost: int) -> int:
        """Return the position of the shard in which the summed cost exceeds `cost`; the stream's
        length for the total cost.
        """
        if cost >= self._stream.total:
            return len(self._stream)
        return self._stream.position_of(cost + 1) - 1

    def _find_members(self, low: int, high: int, start_cost: int, end_cost: int) -> Members:
        """Return the samples, as runs inside shards, from position `low` up to position `high` of the
        lane that extends from one cost of the stream to another.
        """
        members = []
        for position in range(low, min(high + 1, len(self._stream))):
            shard = self._stream.shard_at(position)
            if self._entry is not None and self._sources.entries(shard) != self._entry:
                continue

            # The shard at `high` belongs to the next group, or is cut where the lane ends.
            last = int(self.corpus.samples[shard])
            if position == high:
                if position != self._position_containing(end_cost):
                    break
                last = self._sample_at(position, end_cost)

            first = self._sample_at(position, start_cost)
            if last > first:
                members.append((shard, first, last))

        return tuple(members)

    def _sample_at(self, position: int, cost: int) -> int:
        """Return the sample of the shard at `position` at which the summed cost reaches `cost`; 0
        if earlier shards reach it.

        The cost of a shard is spread over its samples by their seconds.
        """
        cost_before = self._stream.cost_before(position)
        cost_after = self._stream.cost_before(position + 1)
        if cost <= cost_before:
            return 0

        share = (cost - cost_before) / (cost_after - cost_before)
        rows = self.corpus.rows(self._stream.shard_at(position))
        seconds = np.cumsum(rows.seconds)
        return int(np.searchsorted(seconds, seconds[-1] * share, side="left"))


def shards_of_a_group(corpus: Corpus) -> int:
    """Return the smallest number of shards in a group."""
    return max(GROUP_SHARDS, -(-GROUP_UTTERANCES * corpus.num_shards // max(1, corpus.num_samples)))


def most_shards_of_a_group(corpus: Corpus, lanes: int) -> int:
    """Return the largest number of shards in a group."""
    if corpus.is_remote:
        return 1  # the cache gets copies of whole groups
    within_bound = MOST_UTTERANCES * corpus.num_shards // max(1, corpus.num_samples)
    return min(OPEN_SHARDS, within_bound, corpus.num_shards // lanes)


CHUNK = 1 << 16
"""Positions whose order and costs are computed together. Only the total cost of every chunk is
stored."""
KEPT_CHUNKS = 4
"""Chunks that stay in memory after their last use."""


class ShardStream:
    """A keyed permutation of shards of known cost.

    It holds the costs in memory (4 bytes per shard, shared between epochs) and a few chunks.
    """

    def __init__(self, costs: np.ndarray, key: int) -> None:
        """Permute shards of `costs` (shards,), unsigned integers."""
        self._costs, self._permutation = costs, Permutation(max(1, len(costs)), key)
        self._chunks: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        totals = []
        for first in range(0, len(costs), CHUNK):
            costs_of_chunk = costs[self._order_of(first)].astype(np.int64)
            totals.append(int(costs_of_chunk.sum()))

        self._before_chunk = np.concatenate([[0], np.cumsum(totals, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def total(self) -> int:
        """Total cost of all shards."""
        return int(self._before_chunk[-1])

    def shard_at(self, position: int) -> int:
        """Return the shard at a position of the stream."""
        shards, _ = self._read_chunk(position // CHUNK)
        return int(shards[position % CHUNK])

    def cost_before(self, position: int) -> int:
        """Return the total cost of the shards before a position."""
        if position >= len(self):
            return self.total
        _, costs_before = self._read_chunk(position // CHUNK)
        return int(costs_before[position % CHUNK])

    def position_of(self, cost: int) -> int:
        """Return the first position whose preceding shards cost at least `cost`; the length of the
        stream for the total cost.
        """
        number = int(np.searchsorted(self._before_chunk, cost, side="left")) - 1
        if number < 0:
            return 0
        _, costs_before = self._read_chunk(number)
        position_in_chunk = int(np.searchsorted(costs_before, cost, side="left"))
        return min(number * CHUNK + position_in_chunk, len(self))

    def _order_of(self, first: int) -> np.ndarray:
        """Return the shards of the chunk that begins at position `first`."""
        return self._permutation(np.arange(first, min(first + CHUNK, len(self))))

    def _read_chunk(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return shards of a chunk, and the cost of the stream before each of them. The chunks that
        were used last are kept.
        """
        chunk = self._chunks.pop(number, None)
        if chunk is None:
            shards = self._order_of(number * CHUNK)
            costs = self._costs[shards].astype(np.int64)
            chunk = shards, self._before_chunk[number] + np.cumsum(costs) - costs
            if len(self._chunks) == KEPT_CHUNKS:
                used_longest_ago = next(iter(self._chunks))
                del self._chunks[used_longest_ago]

        self._chunks[number] = chunk  # the last in the order of insertion
        return chunk
