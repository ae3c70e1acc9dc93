"""Several corpora as one: every pass takes an exact quota of utterances from each source.

A source is an endless stream: its shards in a permuted order, with another permutation in each round. A pass takes
the next `quota` utterances of the stream. Over several passes a source rotates through all its shards, whatever its
weight. The planner sees the utterances of a pass as runs of shards; each run counts as a shard.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wenet_uio.config.mixture import PerBatch
from wenet_uio.dataset.corpus.base import Corpus, Numbers, RemoteObject
from wenet_uio.dataset.corpus.index import CORPUS_COLUMNS, Rows, Summary, shard_table
from wenet_uio.dataset.corpus.shard_sources import ShardSources
from wenet_uio.dataset.randomness import Permutation, draw, key_of
from wenet_uio.dataset.types import SampleRef, Utterance

Run = tuple[int, int, int, int]
"""Consecutive samples of a shard: shard, first sample, one past the last, number of complete rounds before."""


@dataclass(frozen=True)
class Source:
    """A corpus and its share of a mixture."""

    corpus: Corpus
    share: float
    """Share of the utterances of a pass; the shares of all sources sum to one."""
    tags: dict[str, Any] = field(default_factory=dict)
    """Fields that are set on every sample."""

    @property
    def name(self) -> str:
        """Path of the list."""
        return self.corpus.data_list


class Mixture(Corpus):
    """All samples of all sources, and the quota that a pass takes of each source. `part` gives the samples of a pass.

    The shards of a mixture are those of the first source, then those of the second source, and so on.
    """

    def __init__(self, path: str, sources: Sequence[Source], per_pass: int, per_batch: PerBatch) -> None:
        """Mix sources.

        Args:
            path: name of the mixture.
            sources: corpora with their shares.
            per_pass: utterances of one pass.
            per_batch: see `MixtureConf.per_batch`.
        """
        self.sources = tuple(sources)
        self.per_batch: PerBatch = per_batch
        self.quotas = exact_quotas([source.share for source in sources], per_pass)
        corpora = [source.corpus for source in sources]
        self._first_shard = np.cumsum([0, *(corpus.num_shards for corpus in corpora)])
        table = {name: np.concatenate([getattr(corpus, name) for corpus in corpora]) for name in CORPUS_COLUMNS}
        bad = [item for corpus in corpora for item in corpus.bad]
        parts = [(source.corpus.digest, quota) for source, quota in zip(sources, self.quotas, strict=True)]
        digest = hashlib.blake2b(repr((parts, per_batch)).encode(), digest_size=16).hexdigest()
        super().__init__(path, table, bad, _summary(table, digest))
        # Keyed by name: another source in front of a source leaves its stream as it is.
        self._stream_keys = [
            int(hashlib.blake2b(name.encode(), digest_size=8).hexdigest(), 16) for name in self.state_names
        ]

    def source_of(self, shards: np.ndarray | int) -> np.ndarray:
        """Number of the source of each shard."""
        return np.searchsorted(self._first_shard, shards, side="right") - 1

    @property
    def state_names(self) -> list[str]:
        """Name of each source in the state of the loader: the start of its identity, wherever it is in the mixture.

        The second source of the same samples has the suffix /1, the third /2.
        """
        counts: Counter[str] = Counter()
        names = []
        for identity in (source.corpus.identity[:16] for source in self.sources):
            names.append(f"{identity}/{counts[identity]}" if counts[identity] else identity)
            counts[identity] += 1
        return names

    def rows(self, shard: int) -> Rows:
        """Index of one shard."""
        number = int(self.source_of(shard))
        return self.sources[number].corpus.rows(shard - int(self._first_shard[number]))

    def read(self, ref: SampleRef) -> Utterance:
        """Read a sample of its source, and add the tags of the source."""
        number = int(self.source_of(ref.shard))
        source = self.sources[number]
        utterance = source.corpus.read(ref._replace(shard=ref.shard - int(self._first_shard[number])))
        return replace(utterance, extra={**utterance.extra, **source.tags})

    @property
    def is_remote(self) -> bool:
        """Whether any audio of any source is in a remote store."""
        return any(source.corpus.is_remote for source in self.sources)

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """The remote tars among these shards."""
        return [
            found
            for number, shard in self._in_source(shards)
            for found in self.sources[number].corpus.remote_shards([shard])
        ]

    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """The remote audio files of these samples."""
        return [
            found
            for (number, shard), row in zip(self._in_source(shards), rows, strict=True)
            for found in self.sources[number].corpus.remote_files([shard], [row])
        ]

    def _in_source(self, shards: Numbers) -> list[tuple[int, int]]:
        """Number of the source of each shard, and number of the shard within its source."""
        shards = np.asarray(shards)
        numbers = self.source_of(shards)
        return list(zip(numbers.tolist(), (shards - self._first_shard[numbers]).tolist(), strict=True))

    def part(self, offsets: Sequence[int]) -> MixedPass:
        """The quota of every source, starting at utterance `offsets[source]` of its stream."""
        streams = [
            self._stream(number, offset, quota)
            for number, (offset, quota) in enumerate(zip(offsets, self.quotas, strict=True))
        ]
        return MixedPass(self, streams)

    def _stream(self, number: int, offset: int, count: int) -> list[Run]:
        """Runs that hold utterances `offset` to `offset + count` of a source's stream."""
        corpus, first_shard = self.sources[number].corpus, int(self._first_shard[number])
        size = corpus.num_samples
        runs = []
        while count:
            round_, start = divmod(offset, size)
            order = Permutation(corpus.num_shards, key_of(self._stream_keys[number], round_))(
                np.arange(corpus.num_shards)
            )
            ends = np.cumsum(corpus.samples[order].astype(np.int64))
            taken = min(count, size - start)
            low, high = (int(np.searchsorted(ends, x, side="right")) for x in (start, start + taken - 1))
            for position in range(low, high + 1):
                before = int(ends[position]) - int(corpus.samples[order[position]])
                first, last = max(0, start - before), min(int(ends[position]), start + taken) - before
                runs.append((first_shard + int(order[position]), first, last, round_))
            offset, count = offset + taken, count - taken
        return runs

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Mixture, (self.data_list, self.sources, sum(self.quotas), self.per_batch)


class MixedPass(Corpus):
    """The samples that one pass takes from a mixture; every run counts as a shard."""

    def __init__(self, mixture: Mixture, streams: Sequence[Sequence[Run]]) -> None:
        """`streams` are the runs of each source, with shards of the mixture."""
        self.mixture = mixture
        runs = [run for stream in streams for run in stream]
        self.shards, self.first, self.last, self.rounds = (
            np.asarray(column, np.int64) for column in zip(*runs, strict=True)
        )
        first_run = np.cumsum([0, *map(len, streams)])[:-1]
        self.sources = ShardSources(tuple(source.name for source in mixture.sources), first_run, mixture.per_batch)
        whole = (self.first == 0) & (self.last == mixture.samples[self.shards])
        table = {name: getattr(mixture, name)[self.shards] for name in CORPUS_COLUMNS}
        for number in np.flatnonzero(~whole):
            cut = shard_table(
                [mixture.rows(int(self.shards[number])).slice(int(self.first[number]), int(self.last[number]))]
            )
            for name, column in table.items():
                column[number] = cut[name][0]
        super().__init__(mixture.data_list, table, [], _summary(table, mixture.digest))

    def rows(self, shard: int) -> Rows:
        """Index of one run. In later rounds of a source the hashes of keys differ, and so do all random draws."""
        rows = self.mixture.rows(int(self.shards[shard])).slice(int(self.first[shard]), int(self.last[shard]))
        if not self.rounds[shard]:
            return rows
        # A pass may take an utterance twice; speed and augmentation must be drawn twice.
        return replace(rows, key_hash=draw(key_of(int(self.rounds[shard])), rows.key_hash))

    def read(self, ref: SampleRef) -> Utterance:
        """Read a sample of the mixture."""
        shards, rows = self.origin(np.asarray([ref.shard]), np.asarray([ref.row]))
        return self.mixture.read(SampleRef(int(shards[0]), int(rows[0]), ref.speed))

    @property
    def is_remote(self) -> bool:
        """Whether any audio of any source is in a remote store."""
        return self.mixture.is_remote

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """The remote tars of these runs."""
        return self.mixture.remote_shards(self.shards[shards])

    def origin(self, shards: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shards and rows in the mixture, for samples of this pass."""
        return self.shards[shards], rows + self.first[shards]


def _summary(table: Mapping[str, np.ndarray], digest: str) -> Summary:
    return Summary(int(table["samples"].sum(dtype=np.int64)), float(table["seconds"].sum()), digest)


def exact_quotas(shares: Sequence[float], total: int) -> list[int]:
    """Whole numbers that sum to `total`, each less than one away from its share of `total` (largest remainders)."""
    exact = np.asarray(shares) / sum(shares) * total
    quotas = np.floor(exact).astype(int)
    for number in np.argsort(quotas - exact, kind="stable")[: total - int(quotas.sum())]:
        quotas[number] += 1
    return quotas.tolist()
