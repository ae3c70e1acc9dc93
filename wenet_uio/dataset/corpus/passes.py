"""Passes over the data: the corpus of each pass, and the state of a mixture's sources between
passes.

A plain corpus is the same in every pass and has no state. Only these functions know that a mixture
differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import MixedPass, Mixture
from wenet_uio.dataset.corpus.shard_sources import ShardSources


@dataclass(frozen=True)
class Passes:
    """The passes over a corpus. `starting_at` resumes from the state that `offsets` returned."""

    corpus: Corpus
    first_pass: int = 0
    """The pass before which `starts` were counted."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """Utterances that were read of each source; a source that is not listed starts at 0."""

    def corpus_of(self, data_pass: int) -> Corpus:
        """Return the corpus to plan for one pass: the corpus itself, or the part of a mixture that
        this pass takes.
        """
        if not isinstance(self.corpus, Mixture):
            return self.corpus
        return self.corpus.part(list(self.offsets(data_pass).values()))

    def offsets(self, data_pass: int) -> dict[str, int]:
        """Return utterances of each source of a mixture that were read before a pass; empty for a
        plain corpus.
        """
        if not isinstance(self.corpus, Mixture):
            return {}
        passes, mixture = data_pass - self.first_pass, self.corpus
        quotas = zip(mixture.state_names, mixture.quotas, strict=True)
        return {name: self.starts.get(name, 0) + passes * quota for name, quota in quotas}

    def starting_at(self, data_pass: int, offsets: Mapping[str, int]) -> Passes:
        """Return the same passes, with every source resumed at `offsets` in pass `data_pass`."""
        # States of planner 1 name a source by its number and its identity: "0 0123456789abcdef".
        starts = {
            name.rpartition(" ")[2]: offset for name, offset in reversed(list(offsets.items()))
        }
        return replace(self, first_pass=data_pass, starts=starts)


def sources_of(corpus: Corpus) -> ShardSources:
    """Return sources of the shards of a planned corpus; a plain corpus is one source."""
    if isinstance(corpus, MixedPass):
        return corpus.sources
    return ShardSources((corpus.data_list,), np.zeros(1, np.int64))


def origin(corpus: Corpus, shards: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shards and rows in the opened corpus, for samples of the corpus of a pass."""
    return corpus.origin(shards, rows) if isinstance(corpus, MixedPass) else (shards, rows)
