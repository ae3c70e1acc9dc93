"""Open any data as one corpus: a raw list, a shard list, or a mixture of sources.

`open_corpus` opens data. `open_for` opens data as a config plans it, with token counts if the
config needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.config.mixture import DATA_OF_CONFIG, GroupConf, MixtureConf, load_mixture
from wenet_uio.config.source import SourceConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Mixture, Source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.plan.measure import Measure, measure_of, needs_token_counts
from wenet_uio.text.labels import AnyTokenizer, Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer, makes_one_token_a_character

if TYPE_CHECKING:
    from wenet_uio.config import Config

MIXTURE_SUFFIXES = (".yaml", ".yml")


def open_for(
    config: Config,
    data: str | MixtureConf,
    data_type: DataType,
    *,
    training: bool,
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Corpus, Measure]:
    """Open data as a config plans it, with the measure of its batches.

    Tokens are counted if batches or filters of training need the counts.

    Args:
        config: `dataset_conf` has the batches and filters.
        data: see `open_corpus`.
        data_type: see `open_corpus`.
        training: False plans as in evaluation: without filters and speed perturbation.
        tokenizer: default is the tokenizer of the config, built only if tokens are counted.

    Raises:
        ListError, ConfigError: the data cannot be used.
    """
    conf, data = config.dataset_conf, _parsed(data)
    by_entry, filters = _confs_of_entries(data, conf)
    counting = training and needs_token_counts(conf, by_entry, filters)
    if counting:
        tokenizer = build_tokenizer(config) if tokenizer is None else tokenizer
        _require_fixed_counts(tokenizer)

    # The index has the characters of all texts of a sample. They are what the filters bound if each
    # is a token, and if the filters bound all texts.
    characters_are_tokens = (
        makes_one_token_a_character(config) if tokenizer is None else tokenizer.exact_length
    )
    all_texts_count = all(bounds.measure_total_length for bounds in filters or (conf.filter_conf,))
    measure = measure_of(
        conf,
        training=training,
        text_length_is_tokens=counting or (characters_are_tokens and all_texts_count),
        by_entry=by_entry,
        entry_filters=filters,
    )
    return open_corpus(data, data_type, measure, tokenizer if counting else None), measure


def _confs_of_entries(
    data: str | MixtureConf, conf: DatasetConf
) -> tuple[tuple[BatchConf, ...], tuple[FilterConf, ...]]:
    """Return `batch_conf` and `filter_conf` of each entry of a mixture; empty if all share them."""
    if not isinstance(data, MixtureConf):
        return (), ()
    return data.batch_confs(conf.batch_conf), data.filter_confs(conf.filter_conf)


def as_planned(corpus: Corpus, conf: DatasetConf, tokenizer: Tokenizer) -> tuple[Corpus, Measure]:
    """Return an open corpus as training plans it: with token counts if `conf` needs them, and the
    measure of its batches.
    """
    counting = needs_token_counts(conf)
    if counting:
        _require_fixed_counts(tokenizer)

    measure = measure_of(
        conf, training=True, text_length_is_tokens=counting or tokenizer.exact_length
    )
    return _counted(corpus, tokenizer if counting else None), measure


def _require_fixed_counts(tokenizer: AnyTokenizer) -> None:
    """Raise ListError if the number of tokens of a text differs between epochs."""
    if tokenizer.samples:
        raise ListError(
            "tokenizer_conf.sample_alpha changes the number of tokens in each epoch, but "
            "batch_tokens, max_tps and min_tps of dataset_conf need it before planning: remove "
            "these keys, or sample_alpha"
        )


def open_filtered(
    conf: DatasetConf, data: str | MixtureConf, data_type: DataType, tokenizer: Tokenizer | None
) -> tuple[Corpus, Measure]:
    """Open data, and the measure that filters it, for tools that choose the batches:
    `conf.batch_conf` is ignored.

    With a tokenizer, `text_length` of the rows counts tokens.
    """
    conf = conf.model_copy(update={"batch_conf": BatchConf()})
    measure = measure_of(conf, training=True, text_length_is_tokens=tokenizer is not None)
    return open_corpus(data, data_type, tokenizer=tokenizer), measure


def open_corpus(
    data: str | MixtureConf,
    data_type: DataType,
    measure: Measure | None = None,
    tokenizer: AnyTokenizer | None = None,
) -> Corpus:
    """Open a raw list, a shard list, or a mixture of sources. A list without an index is indexed
    first.

    Args:
        data: path of a list, path of a yaml file of sources, or the parsed sources.
        data_type: type of the list; ignored for a mixture.
        measure: cost of samples; needed if `per_batch` turns weights into shares of batches.
            Without a measure, weights are shares of utterances.
        tokenizer: with a tokenizer, `text_length` of the rows counts tokens; without, characters.

    Raises:
        ListError, ConfigError: the data cannot be used.
    """
    if isinstance(data, str) and Path(data).suffix not in MIXTURE_SUFFIXES:
        return _counted(open_list(data, data_type), tokenizer, _counts_input(measure))

    name = data if isinstance(data, str) else DATA_OF_CONFIG
    conf = load_mixture(data) if isinstance(data, str) else data
    input_only = _entries_with_input_only(conf, measure)
    leaves = _leaves(conf.sources, {}, tokenizer, input_only, name)
    measures = _measures(name, leaves, measure)
    shares = _shares(leaves, conf, measures)
    sources = [
        Source(leaf.corpus, share, leaf.tags, leaf.entry if conf.has_entries else None)
        for leaf, share in zip(leaves, shares, strict=True)
    ]
    per_pass = conf.utterances_per_epoch or sum(leaf.size for leaf in leaves)

    return Mixture(name, sources, per_pass, conf.per_batch)


def _parsed(data: str | MixtureConf) -> str | MixtureConf:
    """Return the sources, if `data` is the path of a file of sources; else `data`."""
    if isinstance(data, str) and Path(data).suffix in MIXTURE_SUFFIXES:
        return load_mixture(data)
    return data


def _counted(corpus: Corpus, tokenizer: AnyTokenizer | None, input_only: bool = False) -> Corpus:
    """Return a corpus that counts tokens; itself if nobody wants them, or if its characters are
    the tokens.

    Args:
        corpus: the corpus.
        tokenizer: counts; None: nobody wants tokens.
        input_only: count the input alone, of samples that have more than input.
    """
    input_only &= bool(corpus.kinds & {"pair", "conversation"})
    if tokenizer is None or (tokenizer.exact_length and not input_only):
        return corpus
    return TokenCounted(corpus, tokenizer, input_only=input_only)


def _entries_with_input_only(conf: MixtureConf, measure: Measure | None) -> list[bool]:
    """Tell for each entry of a mixture whether its filters count the input alone."""
    entries = range(len(conf.sources))
    return [_counts_input(measure and measure.of_entry(number)) for number in entries]


def _counts_input(measure: Measure | None) -> bool:
    """Tell whether the filters of a measure count the input of a sample alone."""
    return bool(measure and measure.filter and not measure.filter.measure_total_length)


@dataclass(frozen=True)
class _Leaf:
    """One corpus of a mixture."""

    corpus: Corpus
    size: int
    """Utterances, times the repetitions of the source and its groups."""
    share: float
    """Share of the utterances of its level."""
    tags: dict[str, Any]
    entry: int = 0
    """Number of the source or group of the highest level that the corpus belongs to."""


def _leaves(
    confs: Sequence[SourceConf],
    tags: dict[str, Any],
    tokenizer: AnyTokenizer | None,
    input_only: Sequence[bool],
    name: str,
) -> list[_Leaf]:
    """Return the corpora of the sources of one level and of all levels below; their shares sum to
    one.

    Args:
        confs: the sources and groups of the level.
        tags: of the groups around them.
        tokenizer: counts tokens, see `_counted`.
        input_only: for each source, whether only the input counts, see `_counted`.
        name: of the mixture, for messages.
    """
    # Tags of outer groups override those of a source.
    leaves_of_sources = [
        _leaves_of(conf, {**conf.own_tags, **tags}, tokenizer, counts_input, name)
        for conf, counts_input in zip(confs, input_only, strict=True)
    ]
    weights = [
        conf.weight or sum(leaf.size for leaf in leaves)
        for conf, leaves in zip(confs, leaves_of_sources, strict=True)
    ]
    weighted = zip(weights, leaves_of_sources, strict=True)
    return [
        replace(leaf, entry=number, share=leaf.share * weight / sum(weights))
        for number, (weight, leaves) in enumerate(weighted)
        for leaf in leaves
    ]


def _leaves_of(
    conf: SourceConf,
    tags: dict[str, Any],
    tokenizer: AnyTokenizer | None,
    input_only: bool,
    name: str,
) -> list[_Leaf]:
    """Return the corpora of one source or group; their shares sum to one."""
    if isinstance(conf, GroupConf):
        members = conf.members(name)
        leaves = _leaves(members, tags, tokenizer, [input_only] * len(members), name)
    else:
        # The language of a source may be a tag, which chooses the tokenizer.
        tokenizer_of_source = tokenizer and tokenizer.with_tags(tags)
        corpora = [_counted(corpus, tokenizer_of_source, input_only) for corpus in conf.open()]
        total = sum(corpus.num_samples for corpus in corpora)
        leaves = [
            _Leaf(corpus, corpus.num_samples, corpus.num_samples / total, tags)
            for corpus in corpora
        ]
    return [replace(leaf, size=leaf.size * conf.repeat) for leaf in leaves]


def _shares(
    leaves: Sequence[_Leaf], conf: MixtureConf, measures: Sequence[Measure | None]
) -> list[float]:
    """Return the share of the utterances of a pass of each corpus; they sum to one.

    Args:
        leaves: the corpora.
        conf: the mixture.
        measures: cost of the samples of each corpus; None: shares are of utterances.
    """
    shares = np.asarray([leaf.share for leaf in leaves]) ** (1 / conf.temperature)

    # The sources of an entry share its batches in proportion to their utterances.
    entries = np.arange(len(leaves))
    if conf.has_entries:
        entries = np.asarray([leaf.entry for leaf in leaves])

    shares_of_entries = np.bincount(entries, shares)
    if conf.per_batch in ("round_robin", "zip"):  # every entry has as many batches
        shares = shares / shares_of_entries[entries]
        shares_of_entries = np.bincount(entries, shares)

    if conf.per_batch in ("weighted", "round_robin", "zip") and None not in measures:
        # The shares are of batches. The cheaper the utterances of an entry are, the more of them
        # fill a batch.
        costs = _mean_costs(leaves, measures, str(conf.per_batch))
        costs_of_entries = np.bincount(entries, shares * costs) / shares_of_entries
        shares = shares / costs_of_entries[entries]

    return list(shares / shares.sum())


def _mean_costs(
    leaves: Sequence[_Leaf], measures: Sequence[Measure | None], per_batch: str
) -> np.ndarray:
    """Return the mean cost of an utterance of each corpus, as a share of a batch.

    Raises:
        ListError: the filters leave no utterance of a corpus.
    """
    costs = np.empty(len(leaves))
    for number, (leaf, measure) in enumerate(zip(leaves, measures, strict=True)):
        assert measure is not None
        costs[number] = measure.shard_units(leaf.corpus).sum() / leaf.corpus.num_samples
        if not costs[number]:
            raise ListError(
                f"{leaf.corpus.data_list}: dataset_conf.filter_conf leaves no utterance for its "
                f"share of the batches (per_batch: {per_batch}); widen the filters or remove the "
                "source"
            )

    return costs


def _measures(name: str, leaves: Sequence[_Leaf], measure: Measure | None) -> list[Measure | None]:
    """Return the measure of each corpus; None without a measure."""
    measures = [measure and measure.of_entry(leaf.entry) for leaf in leaves]
    for leaf, measure_of_leaf in zip(leaves, measures, strict=True):
        _check_text_policy(name, leaf, measure_of_leaf)
    return measures


def _check_text_policy(name: str, leaf: _Leaf, measure: Measure | None) -> None:
    """Raise ListError if a corpus is text without audio, and the batch policy does not say how to
    batch text.
    """
    if measure is None or not leaf.corpus.has_text_only or measure.policy.has_batches_of_text:
        return
    raise ListError(
        f"{name}: {leaf.corpus.data_list} is text alone, which needs batch_conf.batch_tokens, "
        "token_buckets, or batch_type: static"
    )
