"""The source of each shard, which the planner needs when a batch must hold samples of one source
only.

Sources may form entries of a mixture, such as the members of one group. Sources of one entry share
batches.
"""

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
    entry_of: tuple[int, ...] | None = None
    """(sources,) entry of each source; None: every source is an entry of its own."""

    def numbers(self, shards: np.ndarray | int) -> np.ndarray:
        """Return the number of the source of each shard, int64."""
        return np.searchsorted(self.first_shard, shards, side="right") - 1

    def entries(self, shards: np.ndarray | int) -> np.ndarray:
        """Return the entry of each shard, int64."""
        numbers = self.numbers(shards)
        return numbers if self.entry_of is None else np.asarray(self.entry_of)[numbers]

    @property
    def take_turns(self) -> bool:
        """Whether consecutive batches come from alternating entries."""
        return self.per_batch == "round_robin"

    @property
    def joined(self) -> tuple[int | None, ...]:
        """Entries of which every batch of the plan has samples; (None,) if a batch need not have
        all.
        """
        if self.per_batch != "zip":
            return (None,)
        return (
            tuple(range(len(self.names)))
            if self.entry_of is None
            else tuple(sorted(set(self.entry_of)))
        )

    @property
    def are_joined(self) -> bool:
        """Whether every batch of the plan has samples of every entry, in pieces of their own."""
        return self.per_batch == "zip"

    def separate(self, shards: np.ndarray, buckets: np.ndarray) -> np.ndarray:
        """Split the length buckets of samples by entry, if a batch must hold samples of one source
        only.

        Args:
            shards: (samples,) the shard of each sample.
            buckets: (samples,) the length bucket of each sample; NO_BUCKET is -1.
        """
        if not self.per_batch or not len(shards):
            return buckets
        kinds = int(buckets.max()) + 2
        return self.entries(shards) * kinds + buckets + 1
