"""Unified IO on one page: a data list becomes batches. Read this file first.

read_source   path of a list or yaml -> a list, or a mixture of sources         (open.py)
open_for      source                -> shards of samples, with their index       (open.py, corpus/)
Cursor        index, policy, seed   -> batch t: which samples, at which speed    (cursor.py, plan/)
BatchReader   samples               -> encoded audio and text -> waveforms       (reader.py, formats/, storage/, audio/)
chain         waveform and text     -> features and labels                       (chain/)
pad           examples              -> one padded Batch                          (chain/padding.py)
Loader        all of the above      -> the batches of one rank, with a state     (loader.py)
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from wenet_uio.config.dataset import ChainStep, DatasetConf
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.chain.augment import TwoViews, augmentations
from wenet_uio.dataset.chain.deferred import Defer
from wenet_uio.dataset.chain.features import feature_operators
from wenet_uio.dataset.chain.tokens import Filter, RequireCtcPath, RequirePositions, Tokenize
from wenet_uio.dataset.chain.user import user_operator
from wenet_uio.dataset.chain.waveform import Resample, SpeedPerturb
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.cursor import Cursor
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.kinds.audio import STEPS, WAVEFORM_STEPS, check_features
from wenet_uio.dataset.kinds.kind import Chains
from wenet_uio.dataset.kinds.to_speak import require_speaker
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.open import open_for, read_source
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import Operator
from wenet_uio.text.labels import AnyTokenizer, CallableTokenizer, Tokenizer

if TYPE_CHECKING:
    from wenet_uio.config import Config

Signal = Literal["waveform", "features"]
FEATURE_AUGMENTATIONS: tuple[ChainStep, ...] = ("spec_aug", "spec_sub", "spec_trim")
"""Steps that change features, in the order of the fields of `Augmentations`."""
NO_LABELS = CallableTokenizer(lambda text: ())
"""Plans batches without a look at the texts."""


def build_loader(
    data_list: str | os.PathLike[str] | MixtureConf,
    data_type: DataType,
    config: Config,
    tokenizer: Tokenizer | Callable[[str], Iterable[int]] | None,
    *,
    training: bool,
    options: LoaderOptions | None = None,
) -> Loader:
    """Build the loader of one process.

    Training shuffles, filters and augments. Otherwise every utterance is read once an epoch,
    without augmentation, and after a `break` the next loop begins again at the first batch.

        loader = build_loader("data/train/data.list", "raw", config, tokenizer, training=True)
        for epoch in range(3):
            for batch in loader:
                print(batch.keys, batch.feats.shape)

    Args:
        data_list: path of a raw or shard list, of the type `data_type`; or a mixture: a yaml file
            or its content.
        data_type: `raw` or `shard`; a mixture states the type of each source itself.
        config: its `dataset_conf` holds the batch policy, the filters and the chain.
        tokenizer: turns texts into labels: a Tokenizer, or a function from a text to label ids.
            None: features alone, without labels and filters of tokens.
        options: rank, workers, seed, a collate function and more; default: the rank of this process,
            see `LoaderOptions.rank`.

    Raises:
        ListError: the list, or a list of noise, cannot be used.
        ConfigError: an operator of the user cannot be loaded, or a mixture has invalid keys.
        ValueError: an argument has another type.
    """
    options = LoaderOptions() if options is None else options
    _check_types(data_list, config, tokenizer, options)
    conf = config.dataset_conf
    labels = CallableTokenizer(tokenizer) if callable(tokenizer) else tokenizer
    corpus, measure = open_for(
        config,
        read_source(data_list, data_type),
        training=training,
        tokenizer=labels or NO_LABELS,
    )
    if "to_speak" in corpus.kinds:
        require_speaker(corpus.data_list, conf.operators, training=training)
    if "features" in corpus.kinds:
        check_features(corpus, conf, training=training)

    chains = _build_chains(conf, labels, corpus, options, training=training)
    reader = BatchReader(
        corpus,
        conf,
        chains,
        keep_int16=not conf.operators,
        collate=options.collate,
        by_entry=[chains.with_filter(bounds) for bounds in measure.entry_filters],
    )
    if not training:
        options = replace(options, epoch_steps=None)
    if conf.seed is not None:
        options = replace(options, seed=conf.seed)

    cursor = Cursor(
        corpus,
        measure,
        options,
        reshuffle=training and conf.shuffle,
        partition=conf.partition or not training,
    )
    max_bad_ratio = conf.max_bad_ratio if training else 1.0
    return Loader(cursor, reader, options, max_bad_ratio=max_bad_ratio, restarts=not training)


def _check_types(data_list: object, config: object, tokenizer: object, options: object) -> None:
    """Refuse arguments of other types, and say what to give instead.

    Raises:
        ValueError: the first argument of another type.
    """
    is_tokenizer = tokenizer is None or callable(tokenizer) or isinstance(tokenizer, Tokenizer)
    checks = (
        (
            "data_list",
            data_list,
            isinstance(data_list, str | os.PathLike | MixtureConf),
            "the path of a data list or of a mixture",
        ),
        (
            "config",
            config,
            isinstance(getattr(config, "dataset_conf", None), DatasetConf),
            "load_config(path) or parse_config(keys, name) of wenet_uio.config",
        ),
        (
            "tokenizer",
            tokenizer,
            is_tokenizer,
            "build_tokenizer(config) of wenet_uio.text.tokenizer, a function from a text to label "
            "ids, or None",
        ),
        ("options", options, isinstance(options, LoaderOptions), "LoaderOptions(...)"),
    )
    for name, value, fits, expected in checks:
        if not fits:
            raise ValueError(
                f"build_loader: {name}: expected {expected}, found {type(value).__name__} "
                f"{reprlib.repr(value)}"
            )


def note_of_trimmed(corpus: Corpus, conf: DatasetConf, *, training: bool) -> str | None:
    """Say that utterances are longer than what the features keep of each; None if none is.

    Args:
        training: whether `filter_conf` leaves utterances out.
    """
    mel = conf.log_mel_spectrogram_conf.for_use(training=training)
    if conf.feats_type != "log_mel_spectrogram" or not mel.pad_or_trim:
        return None

    longest = float(corpus.extremes(slice(None)).longest.max(initial=0))
    if training and conf.filter_conf.max_duration is not None:
        longest = min(longest, conf.filter_conf.max_duration)
    if longest <= mel.max_duration:
        return None
    return (
        f"{corpus.data_list}: utterances of up to {longest:.4g} s, of which the model hears the "
        f"first {mel.max_duration} s (log_mel_spectrogram_conf.pad_or_trim): cut longer utterances"
    )


def _build_chains(
    conf: DatasetConf,
    tokenizer: AnyTokenizer | None,
    corpus: Corpus,
    options: LoaderOptions,
    *,
    training: bool,
) -> Chains:
    """Build the operators for each kind of sample that the corpus has."""
    # What a model cannot learn is left out, after the features and labels are known.
    bounds_of_model: tuple[Operator, ...] = ()
    if options.ctc_frames is not None:
        bounds_of_model += (RequireCtcPath(options.ctc_frames),)
    if options.most_labels is not None:
        bounds_of_model += (RequirePositions(options.most_labels),)

    audio = build_chain(
        conf, tokenizer, training=training, defer_features=options.defer_features, corpus=corpus
    )
    features: tuple[Operator, ...] = ()
    if "features" in corpus.kinds:
        features = build_chain(conf, tokenizer, training=training, signal="features")

    text = _join_steps(_label_steps(conf, tokenizer, training=training), two_views=False)
    return Chains(audio + bounds_of_model, features + bounds_of_model, text)


def build_chain(
    conf: DatasetConf,
    tokenizer: AnyTokenizer | None,
    *,
    training: bool,
    defer_features: bool = False,
    corpus: Corpus | None = None,
    signal: Signal = "waveform",
) -> tuple[Operator, ...]:
    """Build the operators from a decoded waveform to features and labels.

    The chain of evaluation is shorter: it has no filter and no augmentation. The chain of stored
    features lacks the steps that change or read a waveform, also those of the user.

        for operator in build_chain(config.dataset_conf, tokenizer, training=False):
            example = operator(example)

    Args:
        tokenizer: turns texts into labels; None leaves examples without labels.
        defer_features: put waveforms into the batch; `Batch.to` computes the features on its
            device.
        corpus: the training data, if utterances are mixed with others of it.
        signal: what the chain begins with.

    Raises:
        ConfigError: an operator of the user cannot be loaded, or noise cannot be made.
        ListError: a list of noise cannot be used.
    """
    augments = training and not defer_features
    chain: dict[ChainStep, tuple[Operator, ...]] = dict.fromkeys(STEPS, ())
    chain |= _label_steps(conf, tokenizer, training=training)
    if signal == "waveform":
        chain |= waveform_augmentations(conf, corpus, training=training)
        chain["resample"] = (Resample(conf.resample_conf.resample_rate),)
        if training and conf.speed_perturb:
            chain["speed_perturb"] = (SpeedPerturb(),)
        if defer_features:
            chain["features"] = (Defer.of(conf, training=training),)
        else:
            chain["features"] = feature_operators(conf, training=training)

    in_worker = augmentations(conf, training=augments)
    for step, augmentation in zip(FEATURE_AUGMENTATIONS, in_worker, strict=True):
        if augmentation is not None:
            chain[step] = (augmentation,)

    for operator in conf.operators:
        has_signal = signal == "waveform" or operator.after not in WAVEFORM_STEPS
        if has_signal and (training or operator.evaluation):
            chain[operator.after] += (user_operator(operator),)

    return _join_steps(chain, two_views=augments and conf.views.number == 2)


def _label_steps(
    conf: DatasetConf, tokenizer: AnyTokenizer | None, *, training: bool
) -> dict[ChainStep, tuple[Operator, ...]]:
    """Return the steps that need the text alone; none without a tokenizer."""
    steps: dict[ChainStep, tuple[Operator, ...]] = {}
    if tokenizer is not None:
        steps["tokenize"] = (Tokenize(tokenizer, training),)
        if training:
            steps["filter"] = (Filter(conf.filter_conf),)
    return steps


def _join_steps(
    chain: dict[ChainStep, tuple[Operator, ...]], *, two_views: bool
) -> tuple[Operator, ...]:
    """Return the operators in order; with two views, those from spec_aug on run twice."""
    once: list[Operator] = []
    twice: list[Operator] = []
    for step, operators in chain.items():
        if two_views and step in FEATURE_AUGMENTATIONS:
            twice += operators
        else:
            once += operators

    return (*once, TwoViews(tuple(twice))) if two_views else tuple(once)
