"""The source of each shard, which the planner needs when a batch must hold samples of one source only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wenet_uio.config.mixture import PerBatch


@dataclass(frozen=True)
class ShardSources:
    """Sources of the shards of a corpus; the shards of one source are consecutive."""

    names: tuple[str, ...]
    first_shard: np.ndarray
    """(sources,) ascending; a source without shards has the first shard of the next source."""
    per_batch: PerBatch = False
    """How batches are shared; see `MixtureConf.per_batch`."""

    def numbers(self, shards: np.ndarray | int) -> np.ndarray:
        """Number of the source of each shard, int64."""
        return np.searchsorted(self.first_shard, shards, side="right") - 1

    @property
    def take_turns(self) -> bool:
        """Whether consecutive batches come from alternating sources."""
        return self.per_batch == "round_robin"

    def separate(self, shards: np.ndarray, buckets: np.ndarray) -> np.ndarray:
        """Split the length buckets of samples by source, if a batch must hold samples of one source only.

        Args:
            shards: (samples,) the shard of each sample.
            buckets: (samples,) the length bucket of each sample; NO_BUCKET is -1.
        """
        if not self.per_batch or not len(shards):
            return buckets
        kinds = int(buckets.max()) + 2
        return self.numbers(shards) * kinds + buckets + 1
