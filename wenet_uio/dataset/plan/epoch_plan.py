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

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import GroupPlanner
from wenet_uio.dataset.plan.lanes import Group, Lanes, shards_of_a_group
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.pieces import Batches, PlannedBatch, share_out
from wenet_uio.dataset.randomness import key_of

WHOLE_CORPUS = 1 << 18
"""Utterances up to which a corpus is planned at once, in a third of a second."""
LEAST_LANES = 8


class EpochPlan:
    """All batches of one epoch, planned a group at a time."""

    def __init__(
        self, corpus: Corpus, measure: Measure, *, seed: int, epoch: int, lanes: int, same_length: bool = False
    ) -> None:
        """`same_length` gives plans of every seed and epoch as many batches; else a small corpus gets the fewest."""
        self.corpus, self.measure, self.lanes = corpus, measure, lanes
        key = key_of(seed, epoch)
        self._lanes = Lanes(corpus, measure, key=key, lanes=lanes)
        self._planner = GroupPlanner(corpus, measure, key=key)
        self._planned: dict[int, tuple[Group, Batches]] = {}
        if lanes == 1 and corpus.num_samples <= WHOLE_CORPUS:
            members = tuple((shard, 0, int(count)) for shard, count in enumerate(corpus.samples))
            batches = self._planner.plan(0, members, 0, self._lanes.rows if same_length else None)
            self.rows = len(batches)
            self._planned[0] = (Group(0, self.rows, members), batches)
        else:
            self.rows = self._lanes.rows

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
            group = self._lanes.group_at(lane, row)
            batches = self._planner.plan(lane, group.members, group.first_row, group.last_row - group.first_row)
            self._planned[lane] = (group, batches)
        return PlannedBatch(index, batches[row - group.first_row])

    def step(self, position: int, world_size: int, rank: int) -> PlannedBatch:
        """What `rank` runs in the step that starts at batch `position`.

        The last step of an epoch may hold fewer batches than ranks: its largest are halved until each rank has one.
        """
        if position + world_size <= self.num_batches:
            return self.batch(position + rank)
        pieces = [piece for index in range(position, self.num_batches) for piece in self.batch(index).pieces]
        shares = share_out(pieces, world_size)
        return PlannedBatch(min(position + rank, self.num_batches - 1), shares[rank])

    def shards_ahead(self, position: int, lanes: Sequence[int]) -> Iterator[tuple[int, int, np.ndarray]]:
        """What batches from `position` on of some lanes are read from, in the order in which it is needed.

        Yields:
            first batch and one past the last of each group, and its shards.
        """
        row = position // self.lanes
        if 0 in self._planned and self._planned[0][0].last_row == self.rows and self.lanes == 1:
            shards, first_use = np.unique(self._planned[0][1].shards_from(row), return_index=True)
            yield row, self.rows, shards[np.argsort(first_use)]
            return
        coming = [(row, lane) for lane in lanes]
        heapq.heapify(coming)
        while coming:
            row, lane = heapq.heappop(coming)
            group = self._lanes.group_at(lane, row)
            yield row * self.lanes + lane, group.last_row * self.lanes, np.asarray([run[0] for run in group.members])
            if group.last_row < self.rows:
                heapq.heappush(coming, (group.last_row, lane))

    def filtered(self) -> Counter[str]:
        """Samples that the filters leave out, by reason."""
        return self.measure.filtered(self.corpus)


def choose_lanes(corpus: Corpus, world_size: int) -> int:
    """Lanes for a first run: a multiple of the world size where there are shards enough, one for a small corpus."""
    if corpus.num_samples <= WHOLE_CORPUS:
        return 1
    lanes = -(-LEAST_LANES // world_size) * world_size
    return max(1, min(lanes, corpus.num_shards // shards_of_a_group(corpus)))
