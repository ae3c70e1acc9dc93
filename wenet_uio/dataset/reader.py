"""The reader: a planned micro-batch becomes a padded batch. It runs in the workers of the
loader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import Dataset

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import OUT_OF_RESOURCES
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.cursor import Work
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.kind import Chains, Reading, SampleKind, kind_of
from wenet_uio.dataset.lengths import seconds_of
from wenet_uio.dataset.types import (
    Batch,
    BatchOperator,
    CollatedBatch,
    Example,
    Operator,
    SampleRef,
    Skipped,
    SkipSample,
    Utterance,
)

READERS = 8
"""Samples of a batch that a worker fetches at the same time from remote stores."""


@dataclass
class Sample:
    """A sample of a batch on its way through the chain."""

    result: Example | SkipSample
    """The example after the last operator, or why the sample is left out."""
    operators: Sequence[Operator] = ()
    """Operators that the sample has not reached yet."""
    seconds: float = 0.0
    """Duration of the audio before the chain changes it."""


class BatchReader(Dataset[Batch]):
    """Reads the samples of planned work, runs them through the chain, and pads them. Holds no
    position.
    """

    def __init__(
        self,
        corpus: Corpus,
        conf: DatasetConf,
        chains: Chains = Chains(),  # noqa: B008 - immutable
        keep_int16: bool = False,
        collate: Callable[[Sequence[Example]], Any] | None = None,
        by_entry: Sequence[Chains] = (),
    ) -> None:
        """Read from `corpus`.

        Args:
            chains: the operators; none by default, for `example` alone.
            keep_int16: give the chain samples stored with 16 bits as int16, not as float32.
            by_entry: see `use_chains`.
            collate: makes `CollatedBatch.collated` from the examples, instead of padded features.
        """
        self.corpus, self.conf, self.keep_int16 = corpus, conf, keep_int16
        self.collate, self.feature_dim = collate, conf.feature_dim
        self._pool: ThreadPoolExecutor | None = None
        self.use_chains(chains, by_entry)

    def use_chains(self, chains: Chains, by_entry: Sequence[Chains] = ()) -> None:
        """Decide how the samples of each source are read: their kind and their operators.

        Args:
            by_entry: operators for each entry of a mixture, instead of `chains`.
        """
        self.chains = chains
        channel = self.conf.singal_channel_conf.channel
        self._kinds: list[SampleKind] = []
        for number, source in enumerate(self.corpus.corpora):
            entry = self.corpus.entry_of[number] if self.corpus.entry_of else number
            chains_of_source = by_entry[entry] if by_entry else chains
            kind = kind_of(source)
            self._kinds.append(kind(chains_of_source, channel, self.feature_dim, self.keep_int16))

    def __getitem__(self, work: Work) -> Batch:
        """Return the batch of planned work, without the samples that are bad or filtered."""
        refs = [
            SampleRef(int(shard), int(row), float(speed))
            for shard, row, speed in zip(work.shards, work.rows, work.speeds, strict=True)
        ]
        samples: list[Sample] = []
        for ref, seed, read in zip(refs, work.seeds, self._start_reads(refs), strict=True):
            try:
                example, operators = self.begin_sample(ref, int(seed), read)
                samples.append(Sample(example, operators, seconds_of(example)))
            except SkipSample as skip:
                samples.append(Sample(skip))

        run_chains(samples)

        examples: list[Example] = []
        skipped: list[Skipped] = []
        total_seconds = 0.0
        for ref, sample in zip(refs, samples, strict=True):
            result = sample.result
            if isinstance(result, SkipSample):
                key = self.corpus.key(ref)
                skipped.append(Skipped(key, result.reason, result.detail, result.filtered))
            else:
                examples.append(result)
                total_seconds += sample.seconds

        if self.collate is None:
            batch = pad(examples, self.feature_dim)
        else:
            collated = self.collate(examples) if examples else None
            batch = CollatedBatch(**vars(pad((), self.feature_dim)), collated=collated)

        batch.index, batch.closes_step, batch.planned = work.index, work.closes_step, len(refs)
        batch.skipped, batch.seconds = tuple(skipped), total_seconds
        batch.unreadable = tuple(noise for example in examples for noise in example.unreadable)
        return batch

    def _kind_of(self, ref: SampleRef) -> SampleKind:
        """Return how the samples of the source of a sample are read."""
        if len(self._kinds) == 1:  # saves a look-up for each sample of most corpora
            return self._kinds[0]
        return self._kinds[int(self.corpus.source_of(ref.shard))]

    def _start_reads(self, refs: list[SampleRef]) -> list[Callable[[], Utterance]]:
        """Return a function for each sample that reads it. Remote samples are being fetched when
        this returns.
        """
        if not self.corpus.is_remote:
            return [partial(self.corpus.read, ref) for ref in refs]
        if self._pool is None:  # threads do not survive a fork: each process makes its own
            self._pool = ThreadPoolExecutor(READERS)
        return [self._pool.submit(self.corpus.read, ref).result for ref in refs]

    def begin_sample(
        self, ref: SampleRef, seed: int, read: Callable[[], Utterance]
    ) -> tuple[Example, Sequence[Operator]]:
        """Read and decode one sample, see `example`; return it with the operators of its chain."""
        return self._kind_of(ref).begin_chain(self.example(ref, seed, read))

    def example(self, ref: SampleRef, seed: int, read: Callable[[], Utterance]) -> Example:
        """Read and decode one sample; the chain draws its random numbers from `seed`.

        Raises:
            SkipSample: the audio, or the line of the data list, is bad.
        """
        reading = Reading(ref, seed >> 1, self.corpus.rows(ref.shard))
        try:
            return self._kind_of(ref).example(read(), reading)
        except (AudioError, ListError) as error:
            raise SkipSample("unreadable", str(error)) from None
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                raise
            raise SkipSample("unreadable", str(error)) from None


def run_chains(samples: Sequence[Sample]) -> None:
    """Run the samples of a batch through their chains, in place: operator by operator, each on all
    samples that have reached it.
    """
    while waiting := [sample for sample in samples if sample.operators]:
        # An operator on batches comes last: samples with another chain may still reach it.
        reached = [sample.operators[0] for sample in waiting]
        single = (operator for operator in reached if not isinstance(operator, BatchOperator))
        operator = next(single, reached[0])

        ready = [sample for sample in waiting if sample.operators[0] is operator]
        results = apply_operator(operator, [sample.result for sample in ready])
        for sample, result in zip(ready, results, strict=True):
            sample.result = result
            sample.operators = sample.operators[1:]
            if isinstance(result, SkipSample):
                sample.operators = ()  # it reaches no other operator


def apply_operator(operator: Operator, examples: Sequence[Any]) -> list[Example | SkipSample]:
    """Return what an operator makes of each example, or why it leaves the example out."""
    if isinstance(operator, BatchOperator):
        return operator.apply_to_all(examples)

    results: list[Example | SkipSample] = []
    for example in examples:
        try:
            results.append(operator(example))
        except SkipSample as skip:
            results.append(skip)

    return results
