"""The plan: every batch of an epoch, in order, as a pure function of (index, batch policy, seed,
epoch).

    order    the shards, permuted by a key
    lanes    L cuts of that order, of equal cost; all lanes get the same number of rows
    groups   runs of shards within a lane, with their share of the rows of the lane
    batches  the samples of a group, dealt into random blocks; each block is sorted by length
             and cut into batches, one batch for each row of the group
    batch t  the batch in row t div L of lane t mod L

To find a batch, only its group is planned: every t is reached at once, and memory does not grow
with the corpus. A corpus of up to WHOLE_CORPUS utterances is one lane with one group: all its
samples are shuffled together.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import (
    Batches,
    GroupPlanner,
    Piece,
    Pieces,
    PlannedBatch,
    share_out,
    without_empty,
)
from wenet_uio.dataset.plan.lanes import (
    Division,
    Group,
    Lanes,
    ShardCosts,
    most_shards_of_a_group,
    shards_of_a_group,
)
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.randomness import key_of

WHOLE_CORPUS = 1 << 18
"""Largest number of utterances of a corpus that is planned as a whole, which takes about 0.3 s."""
LEAST_LANES = 8
"""Smallest number of lanes of a larger corpus, if it has enough shards."""


class EpochPlan:
    """All batches of one epoch, planned one group at a time."""

    def __init__(
        self,
        corpus: Corpus,
        measure: Measure,
        *,
        seed: int,
        epoch: int,
        division: Division,
        same_length: bool = False,
    ) -> None:
        """Plan an epoch.

        Args:
            corpus: one pass over the data.
            measure: filters, speeds and the batch policy.
            seed: of the run.
            epoch: number of the epoch; epochs differ in everything that is random.
            division: see `divide`.
            same_length: plans of all seeds and epochs have the same number of batches. Otherwise a
                small corpus has as few batches as the bound allows.
        """
        self.corpus, self.measure = corpus, measure
        self.division, self.lanes = division, division.lanes
        self.same_length = same_length
        self._costs = ShardCosts(corpus, measure)
        self._start_epoch(key_of(seed, epoch))

    def of_epoch(self, seed: int, epoch: int) -> EpochPlan:
        """Return the plan of another seed and epoch; it shares the costs of the shards with this
        plan.
        """
        other = copy.copy(self)
        other._start_epoch(key_of(seed, epoch))
        return other

    def _start_epoch(self, key: int) -> None:
        """Prepare the plan of the epoch with the random key `key`; a small corpus is planned now."""
        self._planner = GroupPlanner(self.corpus, self.measure, key=key, division=self.division)
        self._planned: dict[tuple[int, int], tuple[Group, Batches]] = {}
        """The group that was used last, by number of the stream and lane."""
        self._streams: list[Lanes] = []
        """One for all samples, or one for each entry if batches are joined."""
        for entry in self.corpus.shard_sources.joined:
            self._streams.append(Lanes(self._costs, key=key, division=self.division, entry=entry))

        if self.lanes > 1 or self.corpus.num_samples > WHOLE_CORPUS:
            self.rows = self._equalise_rows()
            return

        # The whole corpus is one group; its planner joins the entries, so one stream is left.
        members = tuple((shard, 0, int(count)) for shard, count in enumerate(self.corpus.samples))
        num_batches = self._equalise_rows() if self.same_length else None
        batches = self._planner.plan(0, members, 0, num_batches)
        self.rows = len(batches)
        self._streams = self._streams[:1]
        self._planned[0, 0] = (Group(0, self.rows, members), batches)

    def _equalise_rows(self) -> int:
        """Give all streams as many rows as the one that needs the most, and return their number."""
        rows = max(stream.rows for stream in self._streams)
        for stream in self._streams:
            stream.rows = rows
        return rows

    @property
    def groups_of_a_row(self) -> int:
        """Groups that a row of a lane takes samples from: one, or one for each joined entry."""
        return len(self._streams)

    @property
    def num_batches(self) -> int:
        """Batches of the epoch, of all lanes together."""
        return self.lanes * self.rows

    def steps_from(self, position: int, world_size: int) -> int:
        """Return steps that `world_size` ranks take from batch `position` to the end of the epoch."""
        return -(-(self.num_batches - position) // world_size)

    def batch(self, index: int) -> PlannedBatch:
        """Batch `index` of the epoch."""
        row, lane = divmod(index, self.lanes)
        if len(self._streams) == 1:
            return PlannedBatch(index, self._find_pieces(0, lane, row))

        pieces: list[Piece] = []
        for stream in range(len(self._streams)):
            pieces += self._find_pieces(stream, lane, row)
        return PlannedBatch(index, without_empty(pieces))

    def _find_pieces(self, stream: int, lane: int, row: int) -> Pieces:
        """Return the batch in a row of a lane of a stream; plan its group unless that was used last."""
        group, batches = self._planned.get((stream, lane), (None, []))
        if group is None or not group.first_row <= row < group.last_row:
            group = self._streams[stream].group_at(lane, row)
            num_rows = group.last_row - group.first_row
            batches = self._planner.plan(lane, group.members, group.first_row, num_rows)
            self._planned[stream, lane] = (group, batches)

        return batches[row - group.first_row]

    def step(self, position: int, world_size: int, rank: int) -> PlannedBatch:
        """Return the batch of `rank` in the step that starts at batch `position`.

        The last step of an epoch may have fewer batches than ranks: its largest are halved until
        every rank has one.
        """
        if position + world_size <= self.num_batches:
            return self.batch(position + rank)

        last_pieces: list[Piece] = []
        for index in range(position, self.num_batches):
            last_pieces += self.batch(index).pieces

        pieces_of_rank: list[Piece] = []
        entries = self._split_by_entry(last_pieces)
        for pieces in entries:
            pieces_of_rank += share_out(pieces, world_size)[rank]
        if len(entries) > 1:
            pieces_of_rank = list(without_empty(pieces_of_rank))

        return PlannedBatch(min(position + rank, self.num_batches - 1), tuple(pieces_of_rank))

    def _split_by_entry(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Return the pieces of each joined entry of the mixture; in other plans all together."""
        sources = self.corpus.shard_sources
        if not sources.are_joined:
            return [pieces]

        pieces_of_entry: dict[int, list[Piece]] = {}
        for piece in filter(len, pieces):
            entry = int(sources.entries(piece.shards[0]))
            pieces_of_entry.setdefault(entry, []).append(piece)

        return [pieces_of_entry[entry] for entry in sorted(pieces_of_entry)] or [pieces]

    def shards_ahead(
        self, position: int, lanes: Sequence[int]
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield the shards that batches from `position` on are read from, in the order in which
        they are needed.

        Args:
            position: number of a batch.
            lanes: the lanes whose shards are wanted.

        Yields:
            (first batch, one past the last batch, shards) of each group.
        """
        first_row = position // self.lanes
        if self.lanes == 1 and len(self._streams) == 1 and (0, 0) in self._planned:
            group, batches = self._planned[0, 0]
            if group.last_row == self.rows:
                # All that is left is planned: the batches tell which shard is needed first.
                samples = batches.shards_from(first_row)
                shards, first_use = np.unique(samples, return_index=True)
                yield first_row, self.rows, shards[np.argsort(first_use)]
                return

        # The next group of each lane and stream, by the row at which it begins.
        coming = list(itertools.product([first_row], lanes, range(len(self._streams))))
        heapq.heapify(coming)
        while coming:
            row, lane, stream = heapq.heappop(coming)
            group = self._streams[stream].group_at(lane, row)
            shards = np.asarray([shard for shard, _, _ in group.members], np.int64)
            yield row * self.lanes + lane, group.last_row * self.lanes, shards
            if group.last_row < self.rows:
                heapq.heappush(coming, (group.last_row, lane, stream))

    def filtered(self) -> Counter[str]:
        """Return the number of samples that the filters leave out, by reason."""
        return self.measure.filtered(self.corpus)


def divide(corpus: Corpus, world_size: int) -> Division:
    """Return the division of a corpus for passes that begin with `world_size` ranks. A small corpus
    has one lane.

    A larger corpus has LEAST_LANES lanes or more, a multiple of the world size; fewer if there are
    too few shards. The ranks of a step take batches of similar length: from as many lanes, or from
    all lanes if there are fewer. Lanes that take their turns in other steps have orders of their
    own, or consecutive steps would be alike.

    With fewer lanes than ranks, sources take turns by step: turns by batch would give each rank the
    same sources again and again.
    """
    take_turns = corpus.shard_sources.take_turns
    if corpus.num_samples <= WHOLE_CORPUS:
        return Division(1, world_size, turns_by_step=take_turns and world_size > 1)

    multiple_of_ranks = -(-LEAST_LANES // world_size) * world_size
    most_lanes = max(1, corpus.num_shards // shards_of_a_group(corpus))
    lanes = min(multiple_of_ranks, most_lanes)
    lanes -= lanes % min(lanes, world_size)
    turns_by_step = take_turns and world_size > lanes
    return Division(lanes, world_size, most_shards_of_a_group(corpus, lanes), turns_by_step)
