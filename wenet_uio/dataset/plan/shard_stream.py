"""The shards of an epoch in permuted order, looked up by position or by cost without storing that
order.
"""

from __future__ import annotations

import numpy as np

from wenet_uio.dataset.randomness import Permutation

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
        totals = [int(self._costs_of(first).sum()) for first in range(0, len(costs), CHUNK)]
        self._before_chunk = np.concatenate([[0], np.cumsum(totals, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def total(self) -> int:
        """Total cost of all shards."""
        return int(self._before_chunk[-1])

    def shard_at(self, position: int) -> int:
        """Return the shard at a position of the stream."""
        return int(self._chunk(position // CHUNK)[0][position % CHUNK])

    def cost_before(self, position: int) -> int:
        """Return the total cost of the shards before a position."""
        if position >= len(self):
            return self.total
        return int(self._chunk(position // CHUNK)[1][position % CHUNK])

    def position_of(self, cost: int) -> int:
        """Return the first position whose preceding shards cost at least `cost`; the length of the
        stream for the total cost.
        """
        number = int(np.searchsorted(self._before_chunk, cost, side="left")) - 1
        if number < 0:
            return 0
        inside = int(np.searchsorted(self._chunk(number)[1], cost, side="left"))
        return min(number * CHUNK + inside, len(self))

    def _order_of(self, first: int) -> np.ndarray:
        """Return the shards of the chunk that begins at position `first`."""
        return self._permutation(np.arange(first, min(first + CHUNK, len(self))))

    def _costs_of(self, first: int) -> np.ndarray:
        """Return the costs of the shards of the chunk that begins at position `first`."""
        return self._costs[self._order_of(first)].astype(np.int64)

    def _chunk(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return shards of a chunk, and the cost of the stream before each; the chunks used last
        are kept.
        """
        chunk = self._chunks.pop(number, None)
        if chunk is None:
            order = self._order_of(number * CHUNK)
            costs = self._costs[order].astype(np.int64)
            chunk = order, self._before_chunk[number] + np.cumsum(costs) - costs
            if len(self._chunks) == KEPT_CHUNKS:
                del self._chunks[next(iter(self._chunks))]

        self._chunks[number] = chunk  # the last in the order of insertion
        return chunk
