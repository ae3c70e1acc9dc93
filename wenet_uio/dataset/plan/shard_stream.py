"""The shards of an epoch in their permuted order, found by position or by cost without keeping that order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wenet_uio.dataset.randomness import Permutation

CHUNK = 1 << 16
"""Positions whose order and costs are worked out together; only the totals of chunks are kept."""


class ShardStream:
    """A keyed permutation of shards of known cost.

    Memory is that of the costs (4 bytes a shard, shared between epochs) and of a few chunks.
    """

    def __init__(self, costs: np.ndarray, key: int) -> None:
        """`costs` of each shard, unsigned integers."""
        self._costs, self._permutation = costs, Permutation(max(1, len(costs)), key)
        self.chunk = lru_cache(maxsize=4)(self._work_out)
        totals = [int(self._costs_of(first).sum()) for first in range(0, len(costs), CHUNK)]
        self._before_chunk = np.concatenate([[0], np.cumsum(totals, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def total(self) -> int:
        """Cost of all shards."""
        return int(self._before_chunk[-1])

    def shard_at(self, position: int) -> int:
        """The shard at a position of the stream."""
        return int(self.chunk(position // CHUNK)[0][position % CHUNK])

    def cost_before(self, position: int) -> int:
        """Cost of all shards before a position."""
        if position >= len(self):
            return self.total
        return int(self.chunk(position // CHUNK)[1][position % CHUNK])

    def position_of(self, cost: int) -> int:
        """First position with at least `cost` before it; the length of the stream for the cost of all."""
        number = int(np.searchsorted(self._before_chunk, cost, side="left")) - 1
        if number < 0:
            return 0
        inside = int(np.searchsorted(self.chunk(number)[1], cost, side="left"))
        return min(number * CHUNK + inside, len(self))

    def _order_of(self, first: int) -> np.ndarray:
        return self._permutation(np.arange(first, min(first + CHUNK, len(self))))

    def _costs_of(self, first: int) -> np.ndarray:
        return self._costs[self._order_of(first)].astype(np.int64)

    def _work_out(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Shards of a chunk, and the cost of the stream before each."""
        order = self._order_of(number * CHUNK)
        costs = self._costs[order].astype(np.int64)
        return order, self._before_chunk[number] + np.cumsum(costs) - costs
