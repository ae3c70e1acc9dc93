"""Token counts of a corpus whose index holds characters: counted once, kept beside the list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from wenet_uio.base.messages import hides_bar
from wenet_uio.dataset.corpus.base import Corpus, CorpusAround, Texts
from wenet_uio.dataset.corpus.columns import find_columns, write_columns
from wenet_uio.dataset.corpus.index import Rows, Stored, Summary, rows_of_shards
from wenet_uio.dataset.storage.kept_files import making, places_of, write_kept
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.aggregate import UnknownLanguageError
from wenet_uio.text.labels import AnyTokenizer


class TokenCounted(CorpusAround):
    """A corpus with the number of tokens in the column `text_length`.

    The counts are kept in `<list>.tokens-<digest of the tokenizer>`, or in the cache if that folder
    cannot be written. One process counts, other processes wait.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: AnyTokenizer, *, input_only: bool = False
    ) -> None:
        """Read the counts, or count.

        Args:
            corpus: samples with texts.
            tokenizer: counts.
            input_only: of a pair or a conversation, count what is the input of a model.
        """
        self.tokenizer, self.input_only = tokenizer, input_only
        self._ends = np.cumsum(corpus.samples.astype(np.int64))
        self._counts = _read_or_count(corpus, tokenizer, input_only)
        starts = self._ends - corpus.samples
        table = {
            "samples": corpus.samples,
            "seconds": corpus.seconds,
            **corpus.extremes(slice(None))._asdict(),
            "shortest_text": np.minimum.reduceat(self._counts, starts),
            "longest_text": np.maximum.reduceat(self._counts, starts),
        }
        counted = f"{corpus.digest} {tokenizer.digest}{' input' * input_only}"
        digest = hashlib.blake2b(counted.encode(), digest_size=16).hexdigest()
        summary = Summary(corpus.num_samples, corpus.total_seconds, digest)
        super().__init__(corpus, table, corpus.bad, summary)

    @cached_property
    def counts_digest(self) -> str:
        """Digest of all counts: texts of equal length may have other numbers of tokens."""
        return hashlib.blake2b(np.ascontiguousarray(self._counts).data, digest_size=8).hexdigest()

    def rows(self, shard: int) -> Rows:
        """Return the index of one shard, with token counts."""
        end = int(self._ends[shard])
        counts = self._counts[end - int(self.samples[shard]) : end]
        return self.inside.rows(shard).with_text_length(counts)

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of these shards, with token counts."""
        rows = rows_of_shards(self._ends - self.samples, self.samples, shards)
        return self.inside.lengths(shards)._replace(text_length=self._counts[rows])

    def __reduce__(self) -> tuple[Callable, tuple]:
        return partial(TokenCounted, input_only=self.input_only), (self.inside, self.tokenizer)


def _read_or_count(corpus: Corpus, tokenizer: AnyTokenizer, input_only: bool) -> np.ndarray:
    """Return (samples,) tokens of each sample of the corpus, shard by shard."""
    name = "input-tokens" if input_only else "tokens"
    path = Path(f"{corpus.data_list}.{name}-{tokenizer.digest}")
    texts = {"corpus": corpus.digest, "contents": corpus.contents_digest}

    def stored_counts() -> np.ndarray | None:
        for place in places_of(path):
            columns, meta = find_columns(place) or ({}, {})
            tokens = columns.get("tokens", np.empty(0))
            if meta == texts and (tokens.dtype, len(tokens)) == (np.uint32, corpus.num_samples):
                return tokens
        return None

    counts = stored_counts()
    if counts is not None:
        return counts

    with making(places_of(path)):
        counts = stored_counts()
        if counts is None:
            counted = _count(corpus, tokenizer, input_only)
            counts = np.fromiter(counted, np.uint32, corpus.num_samples)
            write_kept(
                places_of(path),
                lambda file: write_columns(file, {"tokens": counts}, texts),
            )

    return counts


def _count(corpus: Corpus, tokenizer: AnyTokenizer, input_only: bool) -> Iterator[int]:
    """Yield the number of tokens of each sample, of text and audio, in the order of the corpus."""
    with tqdm(
        None, "tokens", corpus.num_samples, unit="utt", disable=hides_bar(), leave=False
    ) as bar:
        for shard, samples in enumerate(corpus.samples.tolist()):
            with corpus.at_hand(shard):
                for row in range(samples):
                    ref = SampleRef(shard, row)
                    text_tokens = tokens_of(tokenizer, corpus.texts(ref), input_only=input_only)
                    yield text_tokens + corpus.audio_tokens(ref, input_only=input_only)
            bar.update(samples)


def tokens_of(tokenizer: AnyTokenizer, texts_of_sample: Texts, *, input_only: bool = False) -> int:
    """Return tokens of all texts of a sample; 0 if their language is not known, which the reader
    reports.

    Args:
        tokenizer: cuts the texts.
        texts_of_sample: the texts.
        input_only: leave out the second text of a pair, and what a model writes in a conversation.
    """
    fields, source_text = texts_of_sample.fields, texts_of_sample.source
    source_tokens = 0
    try:
        if source_text is not None:  # the first text of a pair, which may have another language
            source_tokens = len(tokenizer.of(fields, "source").tokenize(source_text)[0])
        tokenizer_of_language = tokenizer.of(fields)
    except UnknownLanguageError:
        return 0

    texts = texts_of_sample.texts
    if input_only and source_text is not None:
        texts = ()
    elif input_only and texts_of_sample.is_output:
        marked = zip(texts, texts_of_sample.is_output, strict=True)
        texts = [text for text, is_output in marked if not is_output]

    return source_tokens + sum(len(tokenizer_of_language.tokenize(text)[0]) for text in texts)
