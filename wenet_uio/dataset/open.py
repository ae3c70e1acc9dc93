"""Open any data as one corpus: a raw list, a shard list, or a mixture of sources.

`read_source` parses what a user names as data, once. `open_for` opens such a source as a config plans
it, with token counts if the config needs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.config.mixture import DATA_OF_CONFIG, GroupConf, MixtureConf, load_mixture
from wenet_uio.config.source import SourceConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Mixture, WeightedCorpus
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.plan.measure import Measure, measure_of, needs_token_counts
from wenet_uio.text.labels import AnyTokenizer, Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer, makes_one_token_a_character

if TYPE_CHECKING:
    from wenet_uio.config import Config

MIXTURE_SUFFIXES = (".yaml", ".yml")


class Member(NamedTuple):
    """A source of a mixture, or a group of sources."""

    conf: SourceConf
    members: tuple[Member, ...] = ()
    """Of a group, with the keys that they inherit."""


@dataclass(frozen=True)
class MixtureSource:
    """Sources that are mixed."""

    name: str
    """Path of the file of sources, or DATA_OF_CONFIG."""
    conf: MixtureConf
    members: tuple[Member, ...]

    def lists(self) -> list[ListSource]:
        """Return the lists of all sources, once each. Samples without audio have no list."""
        return list(dict.fromkeys(_lists_of(self.members)))


Source = ListSource | MixtureSource
"""What a user named as data."""


def read_source(data: str | os.PathLike[str] | MixtureConf, data_type: DataType) -> Source:
    """Parse what a user names as data, with all files of sources that it includes.

    Args:
        data: path of a raw or shard list, path of a yaml file of sources, or the parsed sources.
        data_type: type of the list; ignored for a mixture.

    Raises:
        ConfigError: a file of sources cannot be read, or has invalid keys.
    """
    if isinstance(data, MixtureConf):
        return MixtureSource(DATA_OF_CONFIG, data, _members_of(data.sources, DATA_OF_CONFIG))

    path = os.fspath(data)
    if Path(path).suffix not in MIXTURE_SUFFIXES:
        return ListSource(path, data_type)

    conf = load_mixture(path)
    return MixtureSource(path, conf, _members_of(conf.sources, path))


def _members_of(confs: Iterable[SourceConf], included_by: str) -> tuple[Member, ...]:
    """Return sources with the members of groups, at all levels."""
    members = []
    for conf in confs:
        inner = conf.members(included_by) if isinstance(conf, GroupConf) else ()
        members.append(Member(conf, _members_of(inner, included_by)))
    return tuple(members)


def _lists_of(members: Iterable[Member]) -> Iterator[ListSource]:
    """Yield the lists of sources and of the members of groups."""
    for member in members:
        if isinstance(member.conf, GroupConf):
            yield from _lists_of(member.members)
        else:
            yield from member.conf.lists()


def open_for(
    config: Config,
    source: Source,
    *,
    training: bool,
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Corpus, Measure]:
    """Open data as a config plans it, with the measure of its batches.

    Tokens are counted if batches or filters of training need the counts.

    Args:
        config: `dataset_conf` has the batches and filters.
        source: see `read_source`.
        training: False plans as in evaluation: without filters and speed perturbation.
        tokenizer: default is the tokenizer of the config, built only if tokens are counted.

    Raises:
        ListError, ConfigError: the data cannot be used.
    """
    conf = config.dataset_conf
    by_entry: tuple[BatchConf, ...] = ()
    filters: tuple[FilterConf, ...] = ()
    if isinstance(source, MixtureSource):
        by_entry = source.conf.batch_confs(conf.batch_conf)
        filters = source.conf.filter_confs(conf.filter_conf)

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
    counter = tokenizer if counting else None
    return open_source(source, measure, counter), measure


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
    counter = tokenizer if counting else None
    return _count_tokens(corpus, counter, measure=None), measure


def _require_fixed_counts(tokenizer: AnyTokenizer) -> None:
    """Raise ListError if the number of tokens of a text differs between epochs."""
    if tokenizer.samples:
        raise ListError(
            "tokenizer_conf.sample_alpha changes the number of tokens in each epoch, but "
            "batch_tokens, max_tps and min_tps of dataset_conf need it before planning: remove "
            "these keys, or sample_alpha"
        )


def open_filtered(
    conf: DatasetConf, source: Source, tokenizer: Tokenizer | None
) -> tuple[Corpus, Measure]:
    """Open data, and the measure that filters it, for tools that choose the batches:
    `conf.batch_conf` is ignored.

    With a tokenizer, `text_length` of the rows counts tokens.
    """
    conf = conf.model_copy(update={"batch_conf": BatchConf()})
    measure = measure_of(conf, training=True, text_length_is_tokens=tokenizer is not None)
    return open_source(source, tokenizer=tokenizer), measure


def open_corpus(
    data: str | os.PathLike[str] | MixtureConf,
    data_type: DataType,
    measure: Measure | None = None,
    tokenizer: AnyTokenizer | None = None,
) -> Corpus:
    """Open a raw list, a shard list, or a mixture of sources. A list without an index is indexed
    first.

    Arguments and errors are those of `read_source` and `open_source`.
    """
    return open_source(read_source(data, data_type), measure, tokenizer)


def open_source(
    source: Source, measure: Measure | None = None, tokenizer: AnyTokenizer | None = None
) -> Corpus:
    """Open a source as a corpus. A list without an index is indexed first.

    Args:
        measure: cost of samples; needed if `per_batch` turns weights into shares of batches.
            Without a measure, weights are shares of utterances.
        tokenizer: with a tokenizer, `text_length` of the rows counts tokens; without, characters.

    Raises:
        ListError, ConfigError: the data cannot be used.
    """
    if isinstance(source, ListSource):
        return _count_tokens(source.open(), tokenizer, measure)

    conf = source.conf
    measures = [measure and measure.of_entry(number) for number in range(len(conf.sources))]
    leaves = _weighted_leaves(source.members, {}, tokenizer, measures)
    for leaf in leaves:
        _check_text_policy(source.name, leaf)

    shares = _shares_of_pass(leaves, conf)
    sources = []
    for leaf, share in zip(leaves, shares, strict=True):
        entry = leaf.entry if conf.has_entries else None
        sources.append(WeightedCorpus(leaf.corpus, share, leaf.tags, entry))

    per_pass = conf.utterances_per_epoch or sum(leaf.size for leaf in leaves)
    return Mixture(source.name, sources, per_pass, conf.per_batch)


def _count_tokens(
    corpus: Corpus, tokenizer: AnyTokenizer | None, measure: Measure | None
) -> Corpus:
    """Return a corpus that counts tokens; itself if nobody wants them, or if its characters are
    the tokens.

    Args:
        corpus: the corpus.
        tokenizer: counts; None: nobody wants tokens.
        measure: its filters may count the input alone, of samples that have more than input.
    """
    filters_of_input = measure and measure.filter and not measure.filter.measure_total_length
    input_only = bool(filters_of_input and corpus.kinds & {"pair", "conversation"})
    if tokenizer is None or (tokenizer.exact_length and not input_only):
        return corpus
    return TokenCounted(corpus, tokenizer, input_only=input_only)


@dataclass(frozen=True)
class _Leaf:
    """One corpus of a mixture."""

    corpus: Corpus
    size: int
    """Utterances, times the repetitions of the source and its groups."""
    share: float
    """Share of the utterances of its level."""
    tags: dict[str, Any]
    measure: Measure | None
    """Cost of its samples."""
    entry: int = 0
    """Number of the source or group of the highest level that the corpus belongs to."""


def _weighted_leaves(
    members: Sequence[Member],
    tags: dict[str, Any],
    tokenizer: AnyTokenizer | None,
    measures: Sequence[Measure | None],
) -> list[_Leaf]:
    """Return the corpora of the sources of one level and of all levels below; their shares sum to
    one.

    Args:
        members: the sources and groups of the level.
        tags: of the groups around them.
        tokenizer: counts tokens; None: nobody wants them.
        measures: cost of the samples of each member, if that is known.
    """
    level: list[tuple[float, list[_Leaf]]] = []
    for number, (member, measure) in enumerate(zip(members, measures, strict=True)):
        conf = member.conf
        tags_of_member = {**conf.own_tags, **tags}  # tags of outer groups override its own
        if isinstance(conf, GroupConf):
            inherited = [measure] * len(member.members)
            leaves = _weighted_leaves(member.members, tags_of_member, tokenizer, inherited)
        else:
            leaves = _open_leaves(conf, tags_of_member, tokenizer, measure)

        leaves = [replace(leaf, size=leaf.size * conf.repeat, entry=number) for leaf in leaves]
        level.append((conf.weight or sum(leaf.size for leaf in leaves), leaves))

    total = sum(weight for weight, _ in level)
    return [
        replace(leaf, share=leaf.share * weight / total)
        for weight, leaves in level
        for leaf in leaves
    ]


def _open_leaves(
    conf: SourceConf,
    tags: dict[str, Any],
    tokenizer: AnyTokenizer | None,
    measure: Measure | None,
) -> list[_Leaf]:
    """Open the corpora of one source; their shares sum to one."""
    # The language of a source may be a tag, which chooses the tokenizer.
    tokenizer_of_source = tokenizer and tokenizer.with_tags(tags)
    corpora = [_count_tokens(corpus, tokenizer_of_source, measure) for corpus in conf.open()]
    total = sum(corpus.num_samples for corpus in corpora)
    return [
        _Leaf(corpus, corpus.num_samples, corpus.num_samples / total, tags, measure)
        for corpus in corpora
    ]


def _shares_of_pass(leaves: Sequence[_Leaf], conf: MixtureConf) -> list[float]:
    """Return the share of the utterances of a pass of each corpus; they sum to one."""
    shares = np.asarray([leaf.share for leaf in leaves]) ** (1 / conf.temperature)

    # The sources of an entry share its batches in proportion to their utterances.
    entries = np.arange(len(leaves))
    if conf.has_entries:
        entries = np.asarray([leaf.entry for leaf in leaves])

    shares_of_entries = np.bincount(entries, shares)
    if conf.per_batch in ("round_robin", "zip"):  # every entry has as many batches
        shares = shares / shares_of_entries[entries]
        shares_of_entries = np.bincount(entries, shares)

    are_measured = all(leaf.measure is not None for leaf in leaves)
    if conf.per_batch in ("weighted", "round_robin", "zip") and are_measured:
        # The shares are of batches. The cheaper the utterances of an entry are, the more of them
        # fill a batch.
        costs = _mean_costs(leaves, str(conf.per_batch))
        costs_of_entries = np.bincount(entries, shares * costs) / shares_of_entries
        shares = shares / costs_of_entries[entries]

    return list(shares / shares.sum())


def _mean_costs(leaves: Sequence[_Leaf], per_batch: str) -> np.ndarray:
    """Return the mean cost of an utterance of each corpus, as a share of a batch.

    Raises:
        ListError: the filters leave no utterance of a corpus.
    """
    costs = np.empty(len(leaves))
    for number, leaf in enumerate(leaves):
        assert leaf.measure is not None
        costs[number] = leaf.measure.shard_units(leaf.corpus).sum() / leaf.corpus.num_samples
        if not costs[number]:
            raise ListError(
                f"{leaf.corpus.data_list}: dataset_conf.filter_conf leaves no utterance for its "
                f"share of the batches (per_batch: {per_batch}); widen the filters or remove the "
                "source"
            )

    return costs


def _check_text_policy(name: str, leaf: _Leaf) -> None:
    """Raise ListError if a corpus is text without audio, and the batch policy does not say how to
    batch text.
    """
    measure = leaf.measure
    if measure and leaf.corpus.has_text_only and not measure.policy.has_batches_of_text:
        raise ListError(
            f"{name}: {leaf.corpus.data_list} is text alone, which needs batch_conf.batch_tokens, "
            "token_buckets, or batch_type: static"
        )
