"""A corpus that is only an index: as large as a test of the plan wants, without audio."""

from itertools import pairwise

import numpy as np

from wenet_uio.dataset.corpus.base import Facts, StoredCorpus
from wenet_uio.dataset.corpus.index import Rows, shard_table, summary_of


class IndexOnlyCorpus(StoredCorpus):
    """Shards of `counts` utterances, lognormal lengths of `median` seconds within `shortest` and
    `longest`.
    """

    def __init__(self, counts, seed=0, median=6.0, shortest=0.5, longest=30.0):
        self._median, self._shortest, self._longest = median, shortest, longest
        counts = np.asarray(counts)
        total = int(counts.sum())
        num_samples, text_length, key_hash = self.drawn(total, seed)
        # Of keys 000000000, 000000001, ...
        digits = np.arange(total)[:, None] // 10 ** np.arange(8, -1, -1) % 10
        self._rows = Rows(
            key_hash=key_hash,
            audio_offset=np.zeros(total, np.uint64),
            audio_size=np.zeros(total, np.uint32),
            text_offset=np.zeros(total, np.uint64),
            text_size=np.zeros(total, np.uint32),
            num_samples=num_samples.astype(np.uint32),
            sample_rate=np.full(total, 16000, np.uint32),
            text_length=text_length.astype(np.uint32),
            key_end=np.arange(1, total + 1, dtype=np.uint64) * 9,
            keys=(digits + ord("0")).astype(np.uint8).ravel(),
        )
        ends = np.cumsum(counts).tolist()
        self._runs = [self._rows.slice(*edges) for edges in pairwise([0, *ends])]
        table = shard_table(self.run(shard) for shard in range(len(counts)))
        super().__init__("synthetic", table, [], summary_of(table), Facts())

    def drawn(self, total, seed):
        """Audio samples, length of the text and hash of the key of each utterance."""
        random = np.random.default_rng(seed)
        seconds = np.clip(
            random.lognormal(np.log(self._median), 0.6, total), self._shortest, self._longest
        )
        key_hash = random.integers(0, 2**64, total, dtype=np.uint64)
        return seconds * 16000, random.integers(1, 60, total), key_hash

    def run(self, shard):
        return self._runs[shard]

    rows = run

    def read(self, ref):
        raise AssertionError("the plan reads no audio")
