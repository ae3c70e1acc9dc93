"""Token counts of a corpus whose index has only characters: counted once, kept beside the list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from wenet_uio.dataset.corpus.base import Corpus, RemoteObject
from wenet_uio.dataset.corpus.columns import is_index, read_columns, write_columns
from wenet_uio.dataset.corpus.index import CORPUS_COLUMNS, Rows, Summary
from wenet_uio.dataset.types import SampleRef, Utterance
from wenet_uio.files import locked, written_aside
from wenet_uio.text.tokenizer import Tokenizer


class TokenCounted(Corpus):
    """A corpus in whose rows `text_length` is the number of tokens.

    The counts are kept in `<list>.tokens-<digest of the tokenizer>`; of several processes one counts, the others wait.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer) -> None:
        self.corpus, self.tokenizer = corpus, tokenizer
        self._ends = np.cumsum(corpus.samples.astype(np.int64))
        self._counts = _read_or_count(corpus, tokenizer)
        starts = self._ends - corpus.samples
        table = {name: getattr(corpus, name) for name in CORPUS_COLUMNS}
        table["shortest_text"] = np.minimum.reduceat(self._counts, starts)
        table["longest_text"] = np.maximum.reduceat(self._counts, starts)
        digest = hashlib.blake2b(f"{corpus.digest} {tokenizer.digest}".encode(), digest_size=16).hexdigest()
        summary = Summary(corpus.num_samples, corpus.total_seconds, digest)
        super().__init__(corpus.data_list, table, corpus.bad, summary)

    def rows(self, shard: int) -> Rows:
        end = int(self._ends[shard])
        counts = self._counts[end - int(self.samples[shard]) : end]
        return self.corpus.rows(shard).with_text_length(counts)

    def read(self, ref: SampleRef) -> Utterance:
        return self.corpus.read(ref)

    @property
    def is_remote(self) -> bool:
        return self.corpus.is_remote

    def remote_shards(self, shards: np.ndarray) -> list[RemoteObject]:
        return self.corpus.remote_shards(shards)

    def remote_files(self, shards: np.ndarray, rows: np.ndarray) -> list[RemoteObject]:
        return self.corpus.remote_files(shards, rows)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return TokenCounted, (self.corpus, self.tokenizer)


def _read_or_count(corpus: Corpus, tokenizer: Tokenizer) -> np.ndarray:
    path = Path(f"{corpus.data_list}.tokens-{tokenizer.digest}")
    with locked(corpus.data_list):
        if is_index(path):
            columns, meta = read_columns(path)
            if meta["corpus"] == corpus.digest:
                return columns["tokens"]
        counts = np.fromiter(_count(corpus, tokenizer), np.uint32, corpus.num_samples)
        with written_aside(path) as file:
            write_columns(file, {"tokens": counts}, {"corpus": corpus.digest})
        return counts


def _count(corpus: Corpus, tokenizer: Tokenizer):
    with tqdm(None, "tokens", corpus.num_samples, unit="utt", disable=None, leave=False) as bar:
        for shard, samples in enumerate(corpus.samples.tolist()):
            with corpus.at_hand(shard):
                for row in range(samples):
                    texts = corpus.texts(SampleRef(shard, row))
                    yield sum(len(tokenizer.tokenize(text)[0]) for text in texts)
            bar.update(samples)
