"""Plan a group: deal its samples into random blocks, sort each block by length, cut the blocks into
batches, and a batch above the bound into pieces.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import Stored
from wenet_uio.dataset.plan.cutting import cut, cut_to_target, fewest_batches
from wenet_uio.dataset.plan.lanes import Division, Members
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.randomness import (
    AUGMENTATION,
    BLOCK,
    PLACE,
    ROW,
    SPEED,
    draw,
    key_of,
    uniform,
)

BLOCK_BATCHES = 256
"""Number of batches cut from one sorted block. Larger blocks pad less, smaller blocks shuffle
more."""
JITTER = 0.01
"""Largest random change of a length before sorting, as a share of the length. Every epoch then
groups samples in another way."""
SMALL_GROUP = 1024
"""A group of fewer batches has too few samples of like length for JITTER. They move by
`Measure.length_jitter`."""


@dataclass(frozen=True)
class Piece:
    """Samples that the model processes together, sorted by length. All arrays are (samples,)."""

    shards: np.ndarray
    """int32: shard of each sample in the corpus of the pass."""
    rows: np.ndarray
    """int32: row of each sample in its shard."""
    speeds: np.ndarray
    """float32: 1.1 is 10 % faster."""
    frames: np.ndarray
    """int32: frames of features at that speed."""
    units: np.ndarray
    """int64: units of the batch policy."""
    buckets: np.ndarray
    """int32. Samples of different buckets share no piece; NO_BUCKET may share a piece with all."""
    seeds: np.ndarray
    """uint64: seed of all random draws for a sample while it is read."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | np.ndarray) -> Piece:
        # by name: a plan cuts thousands of pieces, and `fields` takes longer than the slices
        return Piece(
            self.shards[chosen],
            self.rows[chosen],
            self.speeds[chosen],
            self.frames[chosen],
            self.units[chosen],
            self.buckets[chosen],
            self.seeds[chosen],
        )

    @property
    def cost(self) -> int:
        """Padded cost in units of the policy."""
        return len(self) * int(self.units.max(initial=0))

    @property
    def padded_frames(self) -> int:
        """Frames of the padded features."""
        return len(self) * int(self.frames.max(initial=0))


Pieces = tuple[Piece, ...]
"""The pieces of one batch: several if the whole batch would exceed the bound."""


class Batches:
    """Consecutive batches, stored in a few arrays: one object per piece would take more memory than
    its samples.
    """

    def __init__(self, batches: Sequence[Pieces]) -> None:
        pieces = list(itertools.chain.from_iterable(batches))
        columns: list[np.ndarray] = []
        for field in fields(Piece):
            parts = [getattr(piece, field.name) for piece in pieces]
            columns.append(np.concatenate(parts) if parts else np.empty(0, int))

        self._samples = Piece(*columns)
        self._samples_before = np.cumsum([0, *map(len, pieces)])
        """(pieces + 1,) number of samples before each piece; the last counts all."""
        self._pieces_before = np.cumsum([0, *map(len, batches)])
        """(batches + 1,) number of pieces before each batch; the last counts all."""

    def __len__(self) -> int:
        return len(self._pieces_before) - 1

    def __getitem__(self, number: int) -> Pieces:
        if not 0 <= number < len(self):
            raise IndexError(number)
        first_piece, end_piece = self._pieces_before[number], self._pieces_before[number + 1]
        edges_of_pieces = self._samples_before[first_piece : end_piece + 1].tolist()
        return tuple(self._samples[first:end] for first, end in itertools.pairwise(edges_of_pieces))

    def shards_from(self, number: int) -> np.ndarray:
        """Return the shard of each sample in batch `number` and all later batches."""
        first_piece = self._pieces_before[number]
        return self._samples.shards[self._samples_before[first_piece] :]


@dataclass(frozen=True)
class PlannedBatch:
    """Batch t of an epoch."""

    index: int
    pieces: Pieces

    def __len__(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    @property
    def cost(self) -> int:
        """Padded cost of all pieces in units of the policy."""
        return sum(piece.cost for piece in self.pieces)


def without_empty(pieces: Sequence[Piece]) -> Pieces:
    """Return the pieces that have samples; if none has, the first one."""
    return tuple(filter(len, pieces)) or tuple(pieces[:1])


def share_out(pieces: list[Piece], count: int) -> list[Pieces]:
    """Make exactly `count` batches of the pieces: merge the cheapest batches, or halve the largest
    pieces.
    """
    batches: list[Pieces] = [(piece,) for piece in pieces]
    # In both loops the list is sorted but for the batches that the round before appended. They are
    # put in order first; those of the last round stay last, which is part of the plan.
    if len(batches) > count:
        batches.sort(key=_negative_cost)

    while len(batches) > count:
        insort(batches, batches.pop(), key=_negative_cost)
        cheapest, second_cheapest = batches.pop(), batches.pop()
        batches.append(second_cheapest + cheapest)

    # Batches are halved only if none was merged, so each of them has one piece.
    if len(batches) < count:
        batches.sort(key=_count_samples)

    while len(batches) < count:
        halves = batches[-2:]
        del batches[-2:]
        for half in halves:
            insort(batches, half, key=_count_samples)

        (largest,) = batches.pop()
        middle = (len(largest) + 1) // 2
        batches += [(largest[:middle],), (largest[middle:],)]

    return batches


def _negative_cost(batch: Pieces) -> int:
    """Sort by this, and the cheapest batch comes last."""
    return -sum(piece.cost for piece in batch)


def _count_samples(batch: Pieces) -> int:
    return sum(map(len, batch))


class GroupPlanner:
    """Plans the groups of one epoch."""

    def __init__(self, corpus: Corpus, measure: Measure, *, key: int, division: Division) -> None:
        """Plan the groups of a division of the corpus with `key`."""
        self.corpus, self.measure, self.key, self._division = corpus, measure, key, division
        self._sources = corpus.shard_sources
        self._by_step = division.by_step and measure.length_order == "synced"

    def plan(self, lane: int, members: Members, first_row: int, count: int | None) -> Batches:
        """Return the batches of a group of shards, one for each row that it fills.

        Args:
            lane: number of the lane.
            members: (shard, first sample, one past the last sample) of each shard of the group.
            first_row: number of the first row that the group fills.
            count: number of batches; None makes as few as the bound allows.
        """
        samples, key_hashes = self._draw_samples(members)
        batches: list[Pieces] = []
        for block, count_of_block in self._deal_blocks(samples, key_hashes, count):
            batches += self._cut_block(block, count_of_block)

        batches.sort(key=_mean_frames)
        rows = np.arange(first_row, first_row + len(batches))
        order = self._length_ranks(lane, rows)
        if self._sources.take_turns:
            order = self._spread_sources(batches, order, lane, rows)

        return Batches([batches[number] for number in order])

    def _length_ranks(self, lane: int, rows: np.ndarray) -> np.ndarray:
        """Draw which batch each row of a lane gets -> (rows,): 0 is the batch of the shortest samples.

        Rows that one step reads get neighbours, so that its ranks wait little for each other.
        """
        division, length_order = self._division, self.measure.length_order
        if self._by_step:
            # Steps are in random order. Batches of a step are neighbours in the order of length,
            # because lexsort sorts by its last key first.
            batch_numbers = rows * division.lanes + lane
            steps = batch_numbers // division.synced
            within_step = draw(key_of(self.key, ROW, 1), batch_numbers)
            keys = [within_step, draw(key_of(self.key, ROW, 0), steps)]
        elif length_order == "rising":
            keys = [rows]
        else:
            # Lanes that are read in one step have one order.
            order_number = lane // division.synced if length_order == "synced" else lane
            keys = [draw(key_of(self.key, ROW, order_number), rows)]

        return np.argsort(np.lexsort(keys))

    def _spread_sources(
        self, batches: list[Pieces], order: np.ndarray, lane: int, rows: np.ndarray
    ) -> np.ndarray:
        """Reorder batches so that those of each source are spread evenly over the group.

        Args:
            batches: they rise in length.
            order: (batches,) numbers of batches in the order of the plan.
            lane: number of the lane.
            rows: (batches,) row of the lane that each of them fills.

        Returns:
            (batches,) the numbers in their new order.
        """
        # The first sample of a batch tells the source whose turn it is.
        first_shards = np.zeros(len(batches), int)
        for number, batch in enumerate(batches):
            first_piece = without_empty(batch)[0]
            if len(first_piece):
                first_shards[number] = first_piece.shards[0]

        sources = self._sources.entries(first_shards)[order]
        if self._division.turns_by_step:
            step_of_row = (rows * self._division.lanes + lane) // self._division.synced
            _, rows_of_steps = np.unique(step_of_row, return_counts=True)
            turns = _turns_by_step(sources, rows_of_steps)
        else:
            turns = _turns_by_batch(sources)

        order, sources = order[turns], sources[turns]
        # Each source takes turns of its own, so its batches need a new order of length.
        if self._by_step:
            for source in np.unique(sources):
                turns = np.flatnonzero(sources == source)
                from_short_to_long = np.sort(order[turns])
                order[turns] = from_short_to_long[self._length_ranks(lane, rows[turns])]

        return order

    def _draw_samples(self, members: Members) -> tuple[Piece, np.ndarray]:
        """Return the samples of a group that the filters keep, at the speeds that are drawn for
        them, and the hash (samples,) of each key.

        All draws of the plan depend on this hash, and not on the place of a sample: raw lists and
        shards give the same batches.
        """
        measure = self.measure
        shards, rows, stored, key_hashes = self._read_kept_rows(members)

        choices = np.asarray(measure.speeds)
        choice_of_sample = draw(key_of(self.key, SPEED), key_hashes) % np.uint64(len(choices))
        speeds = choices[choice_of_sample]

        lengths = measure.lengths(stored, speeds, self._entries_of_samples(shards, len(shards)))
        # Samples of two buckets never share a batch.
        buckets = self._sources.separate(shards, measure.policy.buckets(lengths))

        samples = Piece(
            shards,
            rows,
            speeds.astype(np.float32),
            lengths.frames.astype(np.int32),
            measure.policy.units(lengths),
            buckets.astype(np.int32),
            seeds=draw(key_of(self.key, AUGMENTATION), key_hashes),
        )
        return samples, key_hashes

    def _read_kept_rows(
        self, members: Members
    ) -> tuple[np.ndarray, np.ndarray, Stored, np.ndarray]:
        """Read the samples of a group from the index, without those that the filters leave out.

        Returns:
            Shards, rows in the shards, lengths, and hashes of the keys; each array is (samples,).
        """
        columns_of_shards: list[tuple[np.ndarray, ...]] = []
        for shard, first, last in members:
            rows = self.corpus.rows(shard).slice(first, last)
            is_kept, _ = self.measure.keep(rows, self._entries_of_samples(shard, len(rows)))
            kept = np.flatnonzero(is_kept)
            columns_of_shards.append(
                (
                    np.full(len(kept), shard, np.int32),
                    (kept + first).astype(np.int32),
                    rows.num_samples[kept],
                    rows.sample_rate[kept],
                    rows.text_length[kept],
                    rows.key_hash[kept],
                )
            )

        if not members:
            columns_of_shards.append((np.empty(0, np.int32),) * 6)

        columns = [np.concatenate(parts) for parts in zip(*columns_of_shards, strict=True)]
        shards, row_numbers, num_samples, sample_rate, text_length, key_hashes = columns
        stored = Stored(num_samples, sample_rate, text_length)
        return shards, row_numbers, stored, key_hashes.astype(np.uint64)

    def _entries_of_samples(self, shards: np.ndarray | int, count: int) -> np.ndarray | None:
        """Return the entry of each of `count` samples of some shards, if the policy differs between
        entries.
        """
        if not self.measure.needs_entries:
            return None
        return np.broadcast_to(self._sources.entries(shards), (count,))

    def _deal_blocks(
        self, samples: Piece, key_hashes: np.ndarray, count: int | None
    ) -> list[tuple[Piece, int | None]]:
        """Deal the samples into random blocks, like cards, and sort each block by length.

        Args:
            samples: all samples of the group.
            key_hashes: (samples,) the seeds of the draws.
            count: number of batches of the group; None if it is not given.

        Returns:
            The samples of each block, and how many of the `count` batches it gets.
        """
        expected_batches = count
        if expected_batches is None:
            bound_of_batch = self.measure.policy.bound * len(self._sources.joined)
            expected_batches = int(samples.units.sum()) // bound_of_batch

        num_blocks = max(1, round(expected_batches / BLOCK_BATCHES))
        if self.measure.noise is not None:
            num_blocks = 1  # semi-sorted batching sorts all samples of the group together

        random_moves = uniform(key_of(self.key, PLACE), key_hashes)
        sort_keys = self._jitter_lengths(samples, random_moves, expected_batches)
        shuffled = np.argsort(draw(key_of(self.key, BLOCK), key_hashes), kind="stable")

        blocks = []
        for number in range(num_blocks):
            block = shuffled[number::num_blocks]
            by_length = block[np.argsort(sort_keys[block], kind="stable")]
            count_of_block = None
            if count is not None:
                batches_before = count * number // num_blocks
                count_of_block = count * (number + 1) // num_blocks - batches_before
            blocks.append((samples[by_length], count_of_block))

        return blocks

    def _jitter_lengths(self, samples: Piece, random: np.ndarray, batches: int) -> np.ndarray:
        """Return what samples are sorted by (samples,): their lengths, changed a little at random, so
        that each epoch groups the samples of a bucket in another way.

        Args:
            samples: their frames are the lengths.
            random: (samples,) uniform in [0, 1).
            batches: expected number of batches.
        """
        measure, frames = self.measure, samples.frames
        if measure.noise is not None:
            spread = int(np.ptp(frames)) if len(frames) else 0
            return frames + (2 * random - 1) * (measure.noise / 2 * spread)
        if not measure.length_jitter:
            return frames
        if batches >= SMALL_GROUP:
            return frames * (1 + JITTER * (2 * random - 1))

        # Moves of mean 1, up to 4, mostly short and only to longer samples: at the same padding,
        # fewer batch mates meet again than with uniform moves. Unlike a logarithm, divisions give
        # the same bits on every machine.
        moves = random / (1.25 - random) * min(measure.length_jitter, JITTER * batches)
        positions = np.empty(len(frames))
        for bucket in np.unique(samples.buckets):
            rows = np.flatnonzero(samples.buckets == bucket)
            rows = rows[np.argsort(frames[rows], kind="stable")]
            batches_before = np.cumsum(samples.units[rows]) / measure.policy.bound
            positions[rows] = batches_before + moves[rows]

        return positions

    def _cut_block(self, block: Piece, count: int | None) -> list[Pieces]:
        """Cut samples, sorted by length, into batches.

        If the mixture joins its entries, each batch has samples of every entry, in pieces of their
        own.

        Args:
            block: the samples.
            count: number of batches; None makes as few as the bound allows.
        """
        if self._sources.are_joined:
            batches_of_entries = self._cut_equally(self._split_by_entry(block), count)
            joined_batches = []
            for batch_of_each_entry in zip(*batches_of_entries, strict=True):
                pieces = list(itertools.chain(*batch_of_each_entry))
                joined_batches.append(without_empty(pieces))
            return joined_batches

        if self._sources.take_turns and count is None:
            entries = self._split_by_entry(block)
            if len(entries) > 1:
                return list(itertools.chain(*self._cut_equally(entries, None)))

        return self._cut_samples(block, count)

    def _split_by_entry(self, block: Piece) -> list[Piece]:
        """Split samples by their entry of the mixture; no samples are one empty piece."""
        entry_of_sample = self._sources.entries(block.shards)
        entries = np.unique(entry_of_sample)
        if len(entries) <= 1:
            return [block]

        return [block[entry_of_sample == entry] for entry in entries]

    def _cut_equally(self, parts: list[Piece], count: int | None) -> list[list[Pieces]]:
        """Cut each part into `count` batches; None: as many as the part that needs the most, but no
        batch is empty.
        """
        if count is None:
            most_needed = max(len(self._cut_samples(part, None)) for part in parts)
            fewest_samples = min(map(len, parts))
            count = min(most_needed, fewest_samples)

        return [self._cut_samples(part, count) for part in parts]

    def _cut_samples(self, samples: Piece, count: int | None) -> list[Pieces]:
        """Cut sorted samples, of any entries, into `count` batches; None: as few as the bound allows.

        A batch above the bound becomes several pieces, and no piece has samples of two buckets.
        """
        buckets = np.unique(samples.buckets)
        if len(buckets) > 1:
            cut_bucket = self._cut_to_target if count is None else self._cut_to_bound
            pieces: list[Piece] = []
            for bucket in buckets:
                pieces += cut_bucket(samples[samples.buckets == bucket])

            return share_out(pieces, len(pieces) if count is None else count)

        if count is None:
            return [(piece,) for piece in self._cut_to_target(samples) if len(piece)]

        # The jitter moves samples, so units do not quite rise; `cut` needs units that do.
        runs = cut(np.maximum.accumulate(samples.units), count, self.measure.policy.bound)
        return [tuple(self._cut_to_bound(samples[first:end])) for first, end in runs]

    def _cut_to_target(self, samples: Piece) -> list[Piece]:
        """Cut sorted samples into as few pieces as the target of the policy allows."""
        policy = self.measure.policy
        if policy.target == policy.bound:
            return self._cut_to_bound(samples)

        # Each sample costs as much as the dearest up to it, because a batch is padded to that.
        units = np.maximum.accumulate(samples.units)
        return [samples[first:end] for first, end in cut_to_target(units, policy.target)]

    def _cut_to_bound(self, samples: Piece) -> list[Piece]:
        """Cut sorted samples into as few pieces as the bound allows; no samples are one empty
        piece.
        """
        bound = self.measure.policy.bound
        if samples.cost <= bound:
            return [samples]

        units = np.maximum.accumulate(samples.units)
        runs = cut(units, fewest_batches(units, bound), bound)
        return [samples[first:end] for first, end in runs]


def _turns_by_batch(sources: np.ndarray) -> np.ndarray:
    """Return the order in which the batches of each source are spread evenly.

    Args:
        sources: (batches,) the source of each batch.
    """
    # When a batch is due: n batches of a source are due at 0.5 / n, 1.5 / n, … of the group.
    due = np.zeros(len(sources))
    for source in np.unique(sources):
        batches = np.flatnonzero(sources == source)
        due[batches] = (np.arange(len(batches)) + 0.5) / len(batches)

    return np.lexsort((sources, due))


def _turns_by_step(sources: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the order in which every step has batches of one source, as long as a source has
    enough of them; the rest, less than a step of each source, comes last.

    Args:
        sources: (batches,) the source of each batch.
        sizes: (steps,) the number of batches of each step.
    """
    waiting = [np.flatnonzero(sources == source).tolist() for source in np.unique(sources)]
    totals = [len(batches) for batches in waiting]
    order: list[int] = []
    for size in sizes.tolist():
        enough = [number for number, batches in enumerate(waiting) if len(batches) >= size]
        if not enough:
            break

        # The source that has read the smallest share of its batches.
        turn = min(enough, key=lambda number: 1 - len(waiting[number]) / totals[number])
        order += waiting[turn][:size]
        del waiting[turn][:size]

    order += itertools.chain(*waiting)
    return np.array(order, int)


def _mean_frames(batch: Pieces) -> float:
    frames = np.concatenate([piece.frames for piece in batch])
    return float(np.mean(frames)) if len(frames) else 0.0
