"""`Corpus`: the interface of the plan and the loader to data in any format, local or remote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from wenet_uio.config.mixture import PerBatch
from wenet_uio.dataset.corpus.index import Extremes, ListIndex, Problem, Rows, Stored, Summary
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.dataset.types import SampleRef, Utterance

RemoteObject = tuple[str, Version | None]
"""A URI, and the version that was indexed, if it is known."""
Numbers = Sequence[int] | np.ndarray
"""Numbers of shards or rows."""

Kind = Literal["audio", "features", "text", "pair", "conversation", "to_speak"]
"""Name of a kind of sample, see `dataset/kinds`."""


class Texts(NamedTuple):
    """The texts of a sample, and what says their language."""

    texts: tuple[str, ...]
    """One text; the turns of a conversation."""
    fields: Mapping[str, Any]
    """Other fields of the sample."""
    source: str | None = None
    """First text of a pair."""
    is_output: tuple[bool, ...] = ()
    """Whether each text of a conversation is what a model writes; empty for other samples."""


@dataclass(frozen=True)
class ShardSources:
    """The source of each shard, which the planner needs when a batch must hold samples of one source
    only. The shards of one source are consecutive.

    Sources may form entries of a mixture, such as the members of one group. Sources of one entry
    share batches.
    """

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
        if self.entry_of is None:
            return tuple(range(len(self.names)))
        return tuple(sorted(set(self.entry_of)))

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


@dataclass(frozen=True)
class Facts:
    """What is true of a corpus as a whole. The default is that of local recordings."""

    kinds: frozenset[Kind] = frozenset({"audio"})
    """The kinds of its samples. The sample rate of stored features is FRAME_RATE."""
    warnings: tuple[str, ...] = ()
    """Sentences about what is odd in a list as a whole: utterances that it has more than once,
    damaged tars. Each names the list."""
    is_remote: bool = False
    """Whether any audio is in a remote store."""

    @classmethod
    def of_list(cls, data_list: str, index: ListIndex) -> Facts:
        """Return what the index of a data list says; a list holds audio, or features in its place."""
        return cls(
            frozenset({"features" if index.meta.get("features") else "audio"}),
            tuple(f"{data_list}: {warning}" for warning in index.warnings),
            is_remote=index.meta.get("remote", False),
        )


class Corpus(ABC):
    """Shards of samples with their index. Arrays are mapped from disk: memory does not grow with
    the corpus.

    A sample is named by its shard and its row in that shard (`SampleRef`). What a corpus may hold
    has no default here. StoredCorpus has the defaults of lists; CorpusAround takes from another
    corpus what it does not state itself. A plan is of one source, unless it is of a pass over a
    mixture.
    """

    def __init__(
        self,
        data_list: str,
        table: Mapping[str, np.ndarray],
        bad: list[Problem],
        summary: Summary,
        facts: Facts,
    ) -> None:
        self.data_list, self.facts = data_list, facts
        self.kinds, self.warnings, self.is_remote = facts.kinds, facts.warnings, facts.is_remote
        self._table = table
        self.bad = bad
        """(key, reason) of each sample that could not be indexed."""
        self.num_samples, self.total_seconds, self.digest = (
            summary.samples,
            summary.seconds,
            summary.digest,
        )

    @cached_property
    def samples(self) -> np.ndarray:
        """(shards,) number of utterances."""
        return self._table["samples"]

    @cached_property
    def seconds(self) -> np.ndarray:
        """(shards,) duration of the audio."""
        return self._table["seconds"]

    def extremes(self, shards: slice | np.ndarray) -> Extremes:
        """Return the shortest and longest audio and text of some shards."""
        return Extremes(*(self._table[name][shards] for name in Extremes._fields))

    @cached_property
    def shard_sources(self) -> ShardSources:
        """Sources of the shards, for the plan."""
        return ShardSources((self.data_list,), np.zeros(1, np.int64))

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        """The corpora that it consists of: those of the sources of a mixture, or itself."""
        return (self,)

    @property
    def entry_of(self) -> tuple[int, ...]:
        """Entry of the mixture of each of `corpora`; empty if each is an entry of its own."""
        return ()

    def source_of(self, shards: np.ndarray | int) -> np.ndarray:
        """Return for each shard the number in `corpora` of the one that it belongs to."""
        return np.zeros_like(shards)

    def origin(self, shards: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return shards and rows in the opened corpus, for samples of the corpus of a pass."""
        return shards, rows

    @property
    def identity(self) -> str:
        """Digest of the samples, in whatever unit their texts are counted."""
        return self.digest

    @property
    @abstractmethod
    def contents_digest(self) -> str:
        """Digest of what the list holds beyond what a plan depends on, such as its texts."""

    @property
    @abstractmethod
    def counts_digest(self) -> str:
        """Digest of the numbers of tokens that were counted; empty if the index has all lengths."""

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.samples)

    @property
    def has_text_only(self) -> bool:
        """Whether a shard holds text without audio. The samples of a shard all have audio, or none
        has.
        """
        return bool((self.extremes(slice(None)).longest == 0).any())

    def require_samples(self, problem: str) -> None:
        """Raise a ListError unless there are samples; it has the first reasons why others cannot be
        used.
        """
        if not self.num_samples:
            reasons = "; ".join(f"{key}: {reason}" for key, reason in self.bad[:3])
            raise ListError(f"{self.data_list}: {problem}" + (f" ({reasons})" if reasons else ""))

    @abstractmethod
    def rows(self, shard: int) -> Rows:
        """Return the index of one shard."""

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of one or more shards, one shard after the other."""
        rows_of_shards = [self.rows(int(shard)) for shard in shards]
        columns: list[np.ndarray] = []
        for name in Stored._fields:
            columns.append(np.concatenate([getattr(rows, name) for rows in rows_of_shards]))
        return Stored(*columns)

    @abstractmethod
    def read(self, ref: SampleRef) -> Utterance:
        """Fetch encoded audio and text of a sample.

        Raises:
            ListError, OSError: the sample is missing or differs from the index.
        """

    @abstractmethod
    def texts(self, ref: SampleRef) -> Texts:
        """Return all texts of a sample. Audio is not read if it is stored apart from the text."""

    @abstractmethod
    def audio_tokens(self, ref: SampleRef, *, input_only: bool = False) -> int:
        """Return tokens that the audio of a conversation counts; 0 for other samples.

        Args:
            input_only: leave out audio that a model is to produce.
        """

    @contextmanager
    def at_hand(self, shard: int) -> Iterator[None]:
        """Keep a local copy of a whole remote shard while the block runs, if the cache has room for
        the copy.
        """
        with ExitStack() as stack:
            for uri, version in self.remote_shards([shard]):
                with suppress(objects.CacheFullError):
                    stack.enter_context(objects.open_whole(uri, version))
            yield

    def key(self, ref: SampleRef) -> str:
        """Return the key of a sample."""
        return self.rows(ref.shard).key(ref.row)

    @abstractmethod
    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """Return the remote tars among these shards, to fetch them ahead."""

    @abstractmethod
    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """Return the remote audio files of these samples, to fetch them ahead."""


class StoredCorpus(Corpus):
    """A corpus that is a list on a disk.

    A subclass implements `rows` and `read`, and the two remote members if its audio can be remote.
    """

    @property
    def contents_digest(self) -> str:
        """The digest of the index: no more is known."""
        return self.digest

    @property
    def counts_digest(self) -> str:
        """Empty: the index has all lengths."""
        return ""

    def texts(self, ref: SampleRef) -> Texts:
        """Return the text of a sample."""
        utterance = self.read(ref)
        return Texts((utterance.text,), utterance.extra)

    def audio_tokens(self, ref: SampleRef, *, input_only: bool = False) -> int:
        """Return 0: audio counts no tokens."""
        return 0

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """Return the remote tars among these shards."""
        return []

    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """Return the remote audio files of these samples."""
        return []


class CorpusAround(Corpus):
    """Another corpus with other rows, such as a pass over a mixture. What is not stated here is that
    of the corpus inside.

    A subclass implements `rows`, and `origin` if its samples have other places in the corpus inside.
    """

    def __init__(
        self,
        inside: Corpus,
        table: Mapping[str, np.ndarray],
        bad: list[Problem],
        summary: Summary,
    ) -> None:
        self.inside = inside
        super().__init__(inside.data_list, table, bad, summary, inside.facts)

    @property
    def identity(self) -> str:
        """Digest of the samples, in whatever unit their texts are counted."""
        return self.inside.identity

    @property
    def contents_digest(self) -> str:
        """Digest of what the list holds beyond what a plan depends on, such as its texts."""
        return self.inside.contents_digest

    @property
    def counts_digest(self) -> str:
        """Digest of the numbers of tokens that were counted; empty if the index has all lengths."""
        return self.inside.counts_digest

    def read(self, ref: SampleRef) -> Utterance:
        """Read a sample of the corpus inside."""
        return self.inside.read(self._ref_inside(ref))

    def texts(self, ref: SampleRef) -> Texts:
        """Read the texts of a sample of the corpus inside."""
        return self.inside.texts(self._ref_inside(ref))

    def audio_tokens(self, ref: SampleRef, *, input_only: bool = False) -> int:
        """Return tokens that the audio of a conversation counts."""
        return self.inside.audio_tokens(self._ref_inside(ref), input_only=input_only)

    def _ref_inside(self, ref: SampleRef) -> SampleRef:
        shards, rows = self.origin(np.asarray([ref.shard]), np.asarray([ref.row]))
        return SampleRef(int(shards[0]), int(rows[0]), ref.speed)

    def remote_shards(self, shards: Numbers) -> list[RemoteObject]:
        """Return the remote tars among these shards."""
        shards_inside, _ = self.origin(np.asarray(shards), np.zeros(len(shards), np.int64))
        return self.inside.remote_shards(shards_inside)

    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """Return the remote audio files of these samples."""
        return self.inside.remote_files(*self.origin(np.asarray(shards), np.asarray(rows)))
