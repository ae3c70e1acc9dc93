"""Several corpora as one: every pass takes an exact quota of utterances from each source.

A source is an endless stream: its shards in a permuted order, with another permutation in each
round. A pass takes the next `quota` utterances of the stream. Over several passes a source rotates
through all its shards, whatever its weight. The planner sees the utterances of a pass as runs of
shards; each run counts as a shard.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from wenet_uio.config.mixture import PerBatch
from wenet_uio.dataset.corpus.base import (
    Corpus,
    CorpusAround,
    Facts,
    Numbers,
    RemoteObject,
    ShardSources,
    Texts,
)
from wenet_uio.dataset.corpus.index import Extremes, Rows, Stored, Summary, shard_table
from wenet_uio.dataset.randomness import Permutation, draw, key_of
from wenet_uio.dataset.types import SampleRef, Utterance


class Runs(NamedTuple):
    """Consecutive samples of shards: one row for each run, a million of them in a large mixture."""

    shards: np.ndarray
    """int32: shards of the mixture."""
    first: np.ndarray
    last: np.ndarray
    """uint32: the first sample, and one past the last."""
    rounds: np.ndarray
    """int32: complete rounds of the source before; without `reshuffle`, rounds of the pass."""


NO_RUNS = Runs(*(np.empty(0, dtype) for dtype in (np.int32, np.uint32, np.uint32, np.int32)))


@dataclass(frozen=True)
class WeightedCorpus:
    """A corpus and its share of a mixture."""

    corpus: Corpus
    share: float
    """Share of the utterances of a pass; the shares of all sources sum to one."""
    tags: dict[str, Any] = field(default_factory=dict)
    """Fields that are set on every sample."""
    entry: int | None = None
    """Entry of the mixture to which the source belongs; None: the source is an entry of its own."""

    @property
    def name(self) -> str:
        """Path of the list."""
        return self.corpus.data_list


class Mixture(Corpus):
    """All samples of all sources, and the quota that a pass takes of each source. `part` gives the
    samples of a pass.

    The shards of a mixture are those of the first source, then those of the second source, and so
    on.
    """

    def __init__(
        self, path: str, sources: Sequence[WeightedCorpus], per_pass: int, per_batch: PerBatch
    ) -> None:
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
        """Utterances of each source in the first pass. Later passes also give what was owed."""
        corpora = [source.corpus for source in sources]
        self._first_shard = np.cumsum([0, *(corpus.num_shards for corpus in corpora)])
        bad = list(itertools.chain(*(corpus.bad for corpus in corpora)))
        summary = Summary(
            samples=sum(corpus.num_samples for corpus in corpora),
            seconds=sum(corpus.total_seconds for corpus in corpora),
            digest=self._digest_of(per_batch),
        )

        # A list may be several sources on purpose: each of its warnings is said once.
        warnings = itertools.chain(*(corpus.warnings for corpus in corpora))
        facts = Facts(
            kinds=frozenset().union(*(corpus.kinds for corpus in corpora)),
            warnings=tuple(dict.fromkeys(warnings)),
            is_remote=any(corpus.is_remote for corpus in corpora),
        )

        # The table is empty: samples, seconds and extremes of the shards come from the sources.
        super().__init__(path, table={}, bad=bad, summary=summary, facts=facts)

    @cached_property
    def _stream_keys(self) -> list[int]:
        """Keyed by name: another source in front of a source leaves its stream as it is."""
        return [
            int(hashlib.blake2b(name.encode(), digest_size=8).hexdigest(), 16)
            for name in self.state_names
        ]

    def _digest_of(self, per_batch: PerBatch) -> str:
        parts = [
            (source.corpus.digest, quota)
            for source, quota in zip(self.sources, self.quotas, strict=True)
        ]
        return hashlib.blake2b(
            repr((parts, per_batch, *self.entry_of)).encode(), digest_size=16
        ).hexdigest()

    @property
    def contents_digest(self) -> str:
        """Digest of those of all sources."""
        parts = " ".join(source.corpus.contents_digest for source in self.sources)
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()

    @property
    def counts_digest(self) -> str:
        """Digest of the numbers of tokens of all sources; empty if none were counted."""
        digests = [source.corpus.counts_digest for source in self.sources]
        if not any(digests):
            return ""
        return hashlib.blake2b(repr(digests).encode(), digest_size=8).hexdigest()

    @property
    def entry_of(self) -> tuple[int, ...]:
        """Entry of each source; empty if every source is an entry of its own."""
        return tuple(source.entry for source in self.sources if source.entry is not None)

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        """The corpora of the sources."""
        return tuple(source.corpus for source in self.sources)

    @property
    def num_shards(self) -> int:
        """Number of shards of all sources."""
        return int(self._first_shard[-1])

    @cached_property
    def samples(self) -> np.ndarray:
        """(shards,) number of utterances. Reading and planning do not need this column of all
        shards in memory.
        """
        return self.column("samples", np.arange(self.num_shards))

    @cached_property
    def seconds(self) -> np.ndarray:
        """(shards,) duration of the audio."""
        return self.column("seconds", np.arange(self.num_shards))

    def column(self, name: Literal["samples", "seconds"], shards: np.ndarray) -> np.ndarray:
        """Return the number of utterances or duration of some shards."""
        return np.concatenate(
            [
                getattr(source.corpus, name)[own_shards]
                for source, own_shards in self._split_by_source(shards)
            ]
        )

    def extremes(self, shards: slice | np.ndarray) -> Extremes:
        """Return the shortest and longest audio and text of some shards."""
        shards = (
            np.arange(*shards.indices(self.num_shards)) if isinstance(shards, slice) else shards
        )
        parts = [
            source.corpus.extremes(own_shards)
            for source, own_shards in self._split_by_source(shards)
        ]
        return Extremes(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @property
    def has_text_only(self) -> bool:
        """Whether a source holds text without audio."""
        return any(source.corpus.has_text_only for source in self.sources)

    def _split_by_source(self, shards: np.ndarray) -> Iterator[tuple[WeightedCorpus, np.ndarray]]:
        """Yield consecutive shards of one source, with their numbers in the source."""
        numbers = self.source_of(shards)
        edges = np.flatnonzero(np.diff(numbers)) + 1
        for shards_of_source in np.split(shards, edges):
            # No shards at all are none of the first source, so that callers get empty columns.
            number = int(self.source_of(shards_of_source[0])) if len(shards_of_source) else 0
            yield self.sources[number], shards_of_source - self._first_shard[number]

    def source_of(self, shards: np.ndarray | int) -> np.ndarray:
        """Return the number of the source of each shard."""
        return np.searchsorted(self._first_shard, shards, side="right") - 1

    @property
    def state_names(self) -> list[str]:
        """Name of each source in the state of the loader: the start of its identity, wherever it is
        in the mixture.

        The second source of the same samples has the suffix /1, the third /2.
        """
        counts: Counter[str] = Counter()
        names = []
        for identity in (source.corpus.identity[:16] for source in self.sources):
            suffix = f"/{counts[identity]}" if counts[identity] else ""
            names.append(identity + suffix)
            counts[identity] += 1

        return names

    def rows(self, shard: int) -> Rows:
        """Return the index of one shard."""
        number = int(self.source_of(shard))
        return self.sources[number].corpus.rows(shard - int(self._first_shard[number]))

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of these shards."""
        parts = [
            source.corpus.lengths(own_shards)
            for source, own_shards in self._split_by_source(shards)
        ]
        return Stored(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def read(self, ref: SampleRef) -> Utterance:
        """Read a sample of its source, and add the tags of the source."""
        source, ref_of_source = self._place_of(ref)
        utterance = source.corpus.read(ref_of_source)
        return replace(utterance, extra={**utterance.extra, **source.tags})

    def texts(self, ref: SampleRef) -> Texts:
        """Read the texts of a sample of its source, and add the tags of the source."""
        source, ref_of_source = self._place_of(ref)
        texts = source.corpus.texts(ref_of_source)
        return texts._replace(fields={**texts.fields, **source.tags})

    def audio_tokens(self, ref: SampleRef, *, input_only: bool = False) -> int:
        """As the source of the sample counts them."""
        source, ref_of_source = self._place_of(ref)
        return source.corpus.audio_tokens(ref_of_source, input_only=input_only)

    def _place_of(self, ref: SampleRef) -> tuple[WeightedCorpus, SampleRef]:
        """Find the source of a sample, and its place there."""
        number = int(self.source_of(ref.shard))
        shard = ref.shard - int(self._first_shard[number])
        return self.sources[number], ref._replace(shard=shard)

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """Return the remote tars among these shards."""
        tars: list[RemoteObject] = []
        for number, shard in self._numbers_in_sources(shards):
            tars += self.sources[number].corpus.remote_shards([shard])
        return tars

    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """Return the remote audio files of these samples."""
        files: list[RemoteObject] = []
        for (number, shard), row in zip(self._numbers_in_sources(shards), rows, strict=True):
            files += self.sources[number].corpus.remote_files([shard], [row])
        return files

    def _numbers_in_sources(self, shards: Numbers) -> list[tuple[int, int]]:
        """Return the number of the source of each shard, and number of the shard within its source."""
        shards = np.asarray(shards)
        numbers = self.source_of(shards)
        shards_of_sources = shards - self._first_shard[numbers]
        return list(zip(numbers.tolist(), shards_of_sources.tolist(), strict=True))

    def part(
        self, offsets: Sequence[int], quotas: Sequence[int], *, reshuffle: bool = True
    ) -> MixedPass:
        """Return the quota of every source, starting at utterance `offsets[source]` of its stream.

        Args:
            offsets: utterances of each source that were read before.
            quotas: utterances to take of each source.
            reshuffle: each round of a source has an order of shards of its own. False: all rounds
                have the order of the first.
        """
        streams = [
            self._runs_of_stream(number, offset, quota, reshuffle=reshuffle)
            for number, (offset, quota) in enumerate(zip(offsets, quotas, strict=True))
        ]
        return MixedPass(self, streams)

    def _runs_of_stream(self, number: int, offset: int, count: int, *, reshuffle: bool) -> Runs:
        """Return runs that hold utterances `offset` to `offset + count` of a source's stream.

        The stream repeats the source without end; see `part` for `reshuffle`.
        """
        size = self.sources[number].corpus.num_samples
        # Passes that read a source to its end draw speeds and augmentation alike, whatever their
        # number; an utterance that comes twice in a pass still has two draws.
        first_round = 0 if reshuffle else offset // size
        rounds = []

        while count:
            round_, start = divmod(offset, size)
            taken = min(count, size - start)
            runs = self._runs_of_round(number, round_ if reshuffle else 0, start, taken)
            in_pass = np.full_like(runs.rounds, round_ - first_round)
            rounds.append(runs._replace(rounds=in_pass))
            offset, count = offset + taken, count - taken

        if not rounds:
            return NO_RUNS
        return Runs(*map(np.concatenate, zip(*rounds, strict=True)))

    def _runs_of_round(self, number: int, round_: int, start: int, taken: int) -> Runs:
        """Return runs that hold utterances `start` to `start + taken` of one round of a source."""
        corpus, first_shard = self.sources[number].corpus, int(self._first_shard[number])
        order = Permutation(corpus.num_shards, key_of(self._stream_keys[number], round_))(
            np.arange(corpus.num_shards)
        )
        samples = corpus.samples[order]
        shard_ends = np.cumsum(samples, dtype=np.int64)

        # Places in `order` of the shards with the first and the last utterance.
        low, high = np.searchsorted(shard_ends, (start, start + taken - 1), side="right").tolist()
        shards = (order[low : high + 1] + first_shard).astype(np.int32)

        # The shards low to high are whole, but for the edges of the first and the last.
        begins, stops = np.zeros(len(shards), np.uint32), samples[low : high + 1].copy()
        begins[0] = start - (int(shard_ends[low]) - int(samples[low]))
        stops[-1] -= int(shard_ends[high]) - (start + taken)

        return Runs(shards, begins, stops, np.full(len(shards), round_, np.int32))

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Mixture, (self.data_list, self.sources, sum(self.quotas), self.per_batch)


class MixedPass(CorpusAround):
    """The samples that one pass takes from a mixture; every run counts as a shard."""

    def __init__(self, mixture: Mixture, streams: Sequence[Runs]) -> None:
        """`streams` are the runs of each source, with shards of the mixture."""
        self.mixture = mixture
        self.shards, self.first, self.last, self.rounds = map(
            np.concatenate, zip(*streams, strict=True)
        )
        first_run = np.cumsum([0, *(len(stream.shards) for stream in streams)])[:-1]
        self.shard_sources = ShardSources(
            tuple(source.name for source in mixture.sources),
            first_run,
            mixture.per_batch,
            mixture.entry_of or None,
        )
        samples, seconds = self.last - self.first, mixture.column("seconds", self.shards)
        self._cut = np.flatnonzero(samples != mixture.column("samples", self.shards))
        """The runs that are not whole shards: at most two of each round of a source."""
        self._table_of_cut = shard_table(
            mixture.rows(int(self.shards[run])).slice(int(self.first[run]), int(self.last[run]))
            for run in self._cut
        )
        seconds[self._cut] = self._table_of_cut["seconds"]
        summary = Summary(int(samples.sum(dtype=np.int64)), float(seconds.sum()), mixture.digest)
        super().__init__(mixture, {"samples": samples, "seconds": seconds}, [], summary)

    def extremes(self, shards: slice | np.ndarray) -> Extremes:
        """Return the shortest and longest audio and text of some runs."""
        runs = np.arange(*shards.indices(self.num_shards)) if isinstance(shards, slice) else shards
        extremes = self.mixture.extremes(self.shards[runs])

        # Runs that are parts of shards have extremes of their own.
        places_in_cut = np.searchsorted(self._cut, runs)
        is_cut = np.append(self._cut, -1)[places_in_cut] == runs  # -1: beyond the last
        for name, column in extremes._asdict().items():
            column[is_cut] = self._table_of_cut[name][places_in_cut[is_cut]]

        return extremes

    def rows(self, shard: int) -> Rows:
        """Return the index of one run. In later rounds of a source the hashes of keys differ, and
        so do all random draws.
        """
        rows = self.mixture.rows(int(self.shards[shard])).slice(
            int(self.first[shard]), int(self.last[shard])
        )
        if not self.rounds[shard]:
            return rows

        # A pass may take an utterance twice; speed and augmentation must be drawn twice.
        return replace(rows, key_hash=draw(key_of(int(self.rounds[shard])), rows.key_hash))

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of these runs."""
        # The lengths of whole shards, of which the rows inside of the runs are taken.
        counts = self.mixture.column("samples", self.shards[shards]).astype(np.int64)
        rows_in_shard = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.repeat(self.first[shards], counts)
        last = np.repeat(self.last[shards], counts)
        taken = (rows_in_shard >= first) & (rows_in_shard < last)

        return Stored(*(column[taken] for column in self.mixture.lengths(self.shards[shards])))

    def origin(self, shards: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return shards and rows in the mixture, for samples of this pass."""
        return self.shards[shards].astype(np.int64), rows + self.first[shards].astype(np.int64)


def exact_quotas(shares: Sequence[float], total: int, owed: np.ndarray | None = None) -> list[int]:
    """Return whole numbers that sum to `total`, each less than one away from its share of `total`
    (largest remainders).

    Args:
        owed: what each got too little before, which is added to its share; the sum is 0.
    """
    wanted = wanted_of(shares, total, owed)
    quotas = np.floor(np.maximum(wanted, 0)).astype(int)
    missing = total - int(quotas.sum())
    if missing >= 0:
        quotas[np.argsort(quotas - wanted, kind="stable")[:missing]] += 1

    # A share that got more before than it gets now has 0, not less: the others make up for it. The
    # quota that is farthest above what is wanted is lowered.
    for _ in range(-missing):
        too_little = np.where(quotas > 0, wanted - quotas, np.inf)
        quotas[int(np.argmin(too_little))] -= 1

    return quotas.tolist()


def wanted_of(shares: Sequence[float], total: int, owed: np.ndarray | None) -> np.ndarray:
    """Return (shares,) the part of `total` for each share, plus what the share is owed."""
    parts = np.asarray(shares) / sum(shares) * total
    return parts if owed is None else parts + owed


NOTHING = 1e-6
"""Utterances; smaller debts are rounding."""


@dataclass(frozen=True)
class Passes:
    """The passes over a corpus. `starting_at` resumes from the state that `offsets` returned."""

    corpus: Corpus
    reshuffle: bool = True
    """False: every pass reads the shards of a source in the order of the first round."""
    first_pass: int = 0
    """The pass before which `starts` were counted."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """Utterances that were read of each source; a source that is not listed starts at 0."""
    owed: Mapping[str, float] = field(default_factory=dict)
    """Utterances that sources had too little before `first_pass`, below 0 too much. So a source
    with a share of half an utterance has one in every second pass."""

    def corpus_of(self, data_pass: int) -> Corpus:
        """Return the corpus to plan for one pass: the corpus itself, or the part of a mixture that
        this pass takes.
        """
        if not isinstance(self.corpus, Mixture):
            return self.corpus

        offsets, owed = self._state_before(self.corpus, data_pass)
        quotas = _quotas_of_pass(self.corpus, owed)
        return self.corpus.part(offsets.tolist(), quotas, reshuffle=self.reshuffle)

    def offsets(self, data_pass: int) -> dict[str, int]:
        """Return utterances of each source of a mixture that were read before a pass; empty for a
        plain corpus.
        """
        if not isinstance(self.corpus, Mixture):
            return {}
        offsets, _ = self._state_before(self.corpus, data_pass)
        return dict(zip(self.corpus.state_names, offsets.tolist(), strict=True))

    def debts(self, data_pass: int) -> dict[str, float]:
        """Return `owed` before a pass, of the sources that are owed something."""
        if not isinstance(self.corpus, Mixture):
            return {}
        _, owed = self._state_before(self.corpus, data_pass)
        names = zip(self.corpus.state_names, owed.tolist(), strict=True)
        return {name: debt for name, debt in names if abs(debt) > NOTHING}

    def _state_before(self, mixture: Mixture, data_pass: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (sources,) utterances that were read before a pass, and (sources,) utterances that
        are owed then.
        """
        names = mixture.state_names
        offsets = np.asarray([self.starts.get(name, 0) for name in names], np.int64)
        owed = np.asarray([self.owed.get(name, 0.0) for name in names])
        shares, total = [source.share for source in mixture.sources], sum(mixture.quotas)

        passes = data_pass - self.first_pass
        if passes < 0:
            offsets += passes * np.asarray(mixture.quotas)

        for _ in range(passes):
            quotas = np.asarray(_quotas_of_pass(mixture, owed))
            offsets += quotas
            owed = wanted_of(shares, total, owed) - quotas

        return offsets, owed

    def starting_at(
        self, data_pass: int, offsets: Mapping[str, int], owed: Mapping[str, float]
    ) -> Passes:
        """Return the same passes, with every source resumed in pass `data_pass`.

        Args:
            offsets: as `offsets` returned them for that pass; a source that is not listed starts
                at 0.
            owed: as `debts` returned it for that pass.
        """
        return replace(self, first_pass=data_pass, starts=dict(offsets), owed=dict(owed))


def _quotas_of_pass(mixture: Mixture, owed: np.ndarray) -> list[int]:
    """Return utterances of each source in a pass.

    Args:
        owed: (sources,) utterances that each source had too little in the passes before.
    """
    # The quotas of the mixture are those of a pass before which no source is owed anything.
    if np.abs(owed).max(initial=0.0) <= NOTHING:
        return mixture.quotas

    shares = [source.share for source in mixture.sources]
    return exact_quotas(shares, sum(mixture.quotas), owed)
