"""What the plan and the loader ask of data, wherever it lies: shards of samples, indexed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from wenet_uio.dataset.corpus.index import Rows, Summary
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.dataset.types import SampleRef, Utterance

RemoteObject = tuple[str, Version | None]
"""A URI, and the version that was indexed, where that is known."""


class Corpus(ABC):
    """Shards of samples, indexed. Arrays are mapped from disk: memory does not grow with the corpus."""

    def __init__(
        self, data_list: str, table: Mapping[str, np.ndarray], bad: list[tuple[str, str]], summary: Summary
    ) -> None:
        self.data_list = data_list
        self.samples = table["samples"]
        """(shards,) utterances of each."""
        self.seconds = table["seconds"]
        """(shards,) audio of each."""
        self.shortest = table["shortest"]
        self.longest = table["longest"]
        """(shards,) seconds of the shortest and the longest utterance."""
        self.shortest_text = table["shortest_text"]
        self.longest_text = table["longest_text"]
        """(shards,) characters of the shortest and the longest text."""
        self.bad = bad
        """(key, reason) of what the index had to leave out."""
        self.num_samples, self.total_seconds, self.digest = summary.samples, summary.seconds, summary.digest

    @property
    def num_shards(self) -> int:
        return len(self.samples)

    @property
    def has_text_only(self) -> bool:
        """Whether some of it is text without audio; shards hold one or the other."""
        return bool((self.longest == 0).any())

    @abstractmethod
    def rows(self, shard: int) -> Rows:
        """Index of one shard."""

    @abstractmethod
    def read(self, ref: SampleRef) -> Utterance:
        """Fetch encoded audio and text of a sample.

        Raises:
            ListError, OSError: it is no longer what the index says.
        """

    def texts(self, ref: SampleRef) -> tuple[str, ...]:
        """All that is text of a sample; its audio is not read where that is apart."""
        utterance = self.read(ref)
        return utterance.text, utterance.source or ""

    @contextmanager
    def at_hand(self, shard: int) -> Iterator[None]:
        """Have the whole of a shard here, for as long as the block lasts, as far as the cache has room."""
        with ExitStack() as stack:
            for uri, version in self.remote_shards([shard]):
                with suppress(objects.CacheFullError):
                    stack.enter_context(objects.open_whole(uri, version))
            yield

    def key(self, ref: SampleRef) -> str:
        return self.rows(ref.shard).key(ref.row)

    # What of it is remote, so that it can be fetched ahead.

    @property
    def is_remote(self) -> bool:
        """Whether any of its audio is in a remote store."""
        return False

    def remote_shards(self, shards: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        """The remote tars among these shards."""
        return []

    def remote_files(self, shards: Sequence[int] | np.ndarray, rows: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        """The remote audio files of these samples."""
        return []
