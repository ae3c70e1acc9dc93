"""Unified IO in one page: a data list becomes batches. Read this file first.

open_corpus   data.list             -> shards of samples, indexed                (list_corpus.py, index.py, mixture.py)
EpochPlan     index, policy, seed   -> batch t: which samples, at which speed    (plan.py, batching.py)
read          sample                -> encoded audio and text                    (list_corpus.py, shard.py, audio.py)
chain         audio and text        -> features and labels                       (operators/)
pad           examples              -> one padded Batch                          (operators/padding.py)
Loader        plan and chain        -> this rank's batches, with a state         (loader.py)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch.utils.data import Dataset

from wenet_uio.audio.read import OUT_OF_RESOURCES, AudioError, read_audio
from wenet_uio.config import Config
from wenet_uio.config.dataset import DatasetConf, Place
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.chain.augment import SpecAug, SpecSub, SpecTrim
from wenet_uio.dataset.chain.deferred import Defer
from wenet_uio.dataset.chain.features import feature_operators
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.chain.tokens import Filter, Tokenize
from wenet_uio.dataset.chain.user import user_operator
from wenet_uio.dataset.chain.waveform import Resample, SpeedPerturb
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.formats.data_list import DataType, ListError
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.loader import Loader, Work
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.plan.measure import measure_of, needs_token_counts
from wenet_uio.dataset.types import Batch, Example, SampleRef, Skipped, SkipSample, Utterance
from wenet_uio.text.tokenizer import Tokenizer

Operator = Callable[[Example], Example]

READERS = 8
"""Samples of a batch that a worker reads together from remote stores."""
LENGTH_TOLERANCE = 0.1
"""Seconds by which audio may differ from its index before it counts as changed."""


def build_chain(
    conf: DatasetConf, tokenizer: Tokenizer | None, *, training: bool, defer_features: bool = False
) -> tuple[Operator, ...]:
    """The operators between a decoded waveform and padding; evaluation has no augmentation to switch off.

    Without a tokenizer there are no labels. With `defer_features` features are left to where batches are moved to.

    Raises:
        ConfigError: an operator of the user's cannot be had.
    """
    chain: dict[Place, tuple[Operator, ...]] = {
        "decode": (),
        "tokenize": (Tokenize(tokenizer),) if tokenizer else (),
        "filter": (Filter(conf.filter_conf),) if training else (),
        "resample": (Resample(conf.resample_conf.resample_rate),),
        "speed_perturb": (SpeedPerturb(),) if training and conf.speed_perturb else (),
        "features": feature_operators(conf, training=training),
        "spec_aug": (SpecAug(conf.spec_aug_conf),) if training and conf.spec_aug else (),
        "spec_sub": (SpecSub(conf.spec_sub_conf),) if training and conf.spec_sub else (),
        "spec_trim": (SpecTrim(conf.spec_trim_conf),) if training and conf.spec_trim else (),
    }
    if defer_features:
        chain["features"] = (Defer.of(conf, training=training),)
        chain["spec_aug"] = chain["spec_sub"] = chain["spec_trim"] = ()
    for own in conf.operators:
        if training or own.evaluation:
            chain[own.after] += (user_operator(own),)
    return tuple(operator for place in chain.values() for operator in place)


def build_text_chain(conf: DatasetConf, tokenizer: Tokenizer, *, training: bool) -> tuple[Operator, ...]:
    """The operators between a text without audio and padding."""
    return (Tokenize(tokenizer), Filter(conf.filter_conf)) if training else (Tokenize(tokenizer),)


class BatchReader(Dataset):
    """Executes planned work: reads the samples, runs them through the chain, pads them. Holds no state."""

    def __init__(
        self,
        corpus: Corpus,
        chain: tuple[Operator, ...],
        text_chain: tuple[Operator, ...],
        conf: DatasetConf,
        keep_int16: bool = False,
    ) -> None:
        """`text_chain` is for what is text alone; with `keep_int16` the chain gets 16-bit samples as stored."""
        self.keep_int16 = keep_int16
        self.corpus, self.chain, self.text_chain, self.conf = corpus, chain, text_chain, conf
        self.feature_dim, self.channel = conf.feature_dim, conf.singal_channel_conf.channel
        self._pool: ThreadPoolExecutor | None = None

    def __getitem__(self, work: Work) -> Batch:
        examples: list[Example] = []
        skipped: list[Skipped] = []
        seconds = 0.0
        refs = [
            SampleRef(int(s), int(r), float(v)) for s, r, v in zip(work.shards, work.rows, work.speeds, strict=True)
        ]
        for ref, seed, read in zip(refs, work.seeds, self._reads(refs), strict=True):
            try:
                example, duration, chain = self.example(ref, int(seed), read), 0.0, self.text_chain
                if example.waveform is not None:
                    duration, chain = example.waveform.numel() / example.sample_rate, self.chain
                for operator in chain:
                    example = operator(example)
                examples.append(example)
                seconds += duration
            except SkipSample as skip:
                skipped.append(Skipped(self.corpus.key(ref), skip.reason, skip.detail, skip.filtered))
        batch = pad(examples, self.feature_dim)
        batch.index, batch.closes_step, batch.seconds = work.index, work.closes_step, seconds
        batch.skipped, batch.planned = tuple(skipped), len(work.rows)
        return batch

    def _reads(self, refs: list[SampleRef]) -> list[Callable[[], Utterance]]:
        """How to read each sample; where stores are far, all are being read already."""
        if not self.corpus.is_remote:
            return [partial(self.corpus.read, ref) for ref in refs]
        if self._pool is None:  # made in the process that reads
            self._pool = ThreadPoolExecutor(READERS)
        return [self._pool.submit(self.corpus.read, ref).result for ref in refs]

    def example(self, ref: SampleRef, seed: int, read: Callable[[], Utterance]) -> Example:
        """Read and decode one sample; `seed` is for what the chain draws.

        Raises:
            SkipSample: its audio or its line of the list is bad.
        """
        rows = self.corpus.rows(ref.shard)
        try:
            utterance = read()
            if utterance.audio is None:
                return Example(
                    utterance.key,
                    utterance.text,
                    None,
                    TEXT_ONLY,
                    seed >> 1,
                    source=utterance.source,
                    extra=utterance.extra,
                )
            channel = utterance.extra.get("channel", self.channel)
            waveform, rate = read_audio(
                utterance.audio, utterance.start, utterance.end, channel, keep_int16=self.keep_int16
            )
        except (AudioError, ListError) as error:
            raise SkipSample("unreadable", str(error)) from None
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                raise
            raise SkipSample("unreadable", str(error)) from None
        indexed, found = int(rows.num_samples[ref.row]) / int(rows.sample_rate[ref.row]), len(waveform) / rate
        if abs(indexed - found) > LENGTH_TOLERANCE:
            raise SkipSample("changed_length", f"{indexed:.2f} s when indexed, {found:.2f} s now")
        return Example(
            utterance.key,
            utterance.text,
            torch.from_numpy(waveform),
            rate,
            seed >> 1,
            speed=ref.speed,
            extra=utterance.extra,
        )


def build_loader(
    data_list: str | MixtureConf,
    data_type: DataType,
    config: Config,
    tokenizer: Tokenizer,
    *,
    training: bool,
    rank: int = 0,
    world_size: int = 1,
    num_workers: int = 0,
    prefetch: int = 8,
    pin_memory: bool = False,
    seed: int = 777,
    epoch_steps: int | None = None,
    ledger: Ledger | None = None,
    defer_features: bool = False,
) -> Loader:
    """The batches of one rank.

    Training shuffles, filters and augments; otherwise every utterance of the list is read once, as it is.

    Args:
        data_list: a raw or shard list, as `data_type` says, or a mixture: a yaml file, or what one holds.
        num_workers: processes that read; 0 reads in this one.
        prefetch: batches that each worker keeps ready.
        epoch_steps: steps that make an epoch of training; None is one pass over the data.
        ledger: where bad samples are named.
        defer_features: batches have waveforms in place of features, which `Batch.to` computes on its device.

    Raises:
        ListError: the list cannot be used.
    """
    conf = config.dataset_conf
    count_tokens = training and needs_token_counts(conf)
    measure = measure_of(conf, training=training, text_length_is_tokens=count_tokens or tokenizer.exact_length)
    corpus = open_corpus(data_list, data_type, measure, tokenizer if count_tokens else None)
    chain = build_chain(conf, tokenizer, training=training, defer_features=defer_features)
    text_chain = build_text_chain(conf, tokenizer, training=training)
    reader = BatchReader(corpus, chain, text_chain, conf, keep_int16=defer_features and not conf.operators)
    return Loader(
        corpus,
        measure,
        reader,
        seed=seed,
        reshuffle=training and conf.shuffle,
        rank=rank,
        world_size=world_size,
        num_workers=num_workers,
        prefetch=prefetch,
        pin_memory=pin_memory and torch.cuda.is_available(),
        max_bad_ratio=conf.max_bad_ratio if training else 1.0,
        epoch_steps=epoch_steps if training else None,
        partition=conf.partition or not training,
        ledger=ledger,
    )
