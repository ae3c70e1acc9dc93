"""Open any data source as one corpus: a raw list, a shard list, or a mixture of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wenet_uio.config.mixture import MixtureConf, SourceConf, load_mixture
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Mixture, Source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.sources import expanded, lists_of, members_of
from wenet_uio.dataset.corpus.text_corpus import TextCorpus
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.formats.data_list import DataType, ListError
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.policies import TextPolicy
from wenet_uio.text.tokenizer import Tokenizer

MIXTURE_SUFFIXES = (".yaml", ".yml")


def open_corpus(
    data: str | MixtureConf, data_type: DataType, measure: Measure | None = None, tokenizer: Tokenizer | None = None
) -> Corpus:
    """Open a raw or shard list of the type stated, or a mixture: a yaml file of sources, or what one holds.

    With a tokenizer the rows' `text_length` counts tokens; without, characters. Without a measure weights count
    utterances, even where `per_batch` says that they count batches.

    Raises:
        ListError, ConfigError: it cannot be used.
    """
    if isinstance(data, str) and Path(data).suffix not in MIXTURE_SUFFIXES:
        return _counted(open_list(data, data_type), tokenizer)
    name, conf = (data, load_mixture(data)) if isinstance(data, str) else ("data of the config", data)
    leaves = _leaves(conf.sources, {}, tokenizer)
    if measure is not None and not isinstance(measure.policy, TextPolicy):
        for leaf in leaves:
            if leaf.corpus.has_text_only:
                raise ListError(f"{name}: {leaf.corpus.data_list} is text alone, which needs batch_conf.batch_tokens")
    shares = np.asarray([leaf.share for leaf in leaves]) ** (1 / conf.temperature)
    if conf.per_batch == "round_robin":
        shares = np.ones(len(leaves))
    if measure is not None and conf.per_batch in ("weighted", "round_robin"):
        # A batch holds as many utterances of a source as they are cheap.
        shares = shares / [measure.shard_units(leaf.corpus).sum() / leaf.corpus.num_samples for leaf in leaves]
    sources = [Source(leaf.corpus, share, leaf.tags) for leaf, share in zip(leaves, shares / shares.sum(), strict=True)]
    per_pass = conf.utterances_per_epoch or sum(leaf.size for leaf in leaves)
    return Mixture(name, sources, per_pass, conf.per_batch)


def _counted(corpus: Corpus, tokenizer: Tokenizer | None) -> Corpus:
    return corpus if tokenizer is None or tokenizer.exact_length else TokenCounted(corpus, tokenizer)


@dataclass(frozen=True)
class _Leaf:
    corpus: Corpus
    size: int
    """Utterances, as often as they are repeated."""
    share: float
    tags: dict[str, Any]


def _leaves(confs: Sequence[SourceConf], tags: dict[str, Any], tokenizer: Tokenizer | None) -> list[_Leaf]:
    """The sources of one level and below; their shares sum to one."""
    levels = []
    for conf in confs:
        own = {**conf.own_tags, **tags}
        if conf.type == "group":
            leaves = _leaves(members_of(conf), own, tokenizer)
        else:
            corpora = [_counted(corpus, tokenizer) for corpus in open_source(conf)]
            total = sum(corpus.num_samples for corpus in corpora)
            leaves = [_Leaf(corpus, corpus.num_samples, corpus.num_samples / total, own) for corpus in corpora]
        levels.append([replace(leaf, size=leaf.size * conf.repeat) for leaf in leaves])
    weights = [conf.weight or sum(leaf.size for leaf in leaves) for conf, leaves in zip(confs, levels, strict=True)]
    return [
        replace(leaf, share=leaf.share * weight / sum(weights))
        for weight, leaves in zip(weights, levels, strict=True)
        for leaf in leaves
    ]


def open_source(conf: SourceConf) -> list[Corpus]:
    """The corpora of one source that is no group: one a list or a file of text.

    Raises:
        ListError: it cannot be used.
    """
    if conf.type == "txt":
        return [TextCorpus(path) for path in expanded(conf.paths)]
    if conf.type == "txt_pair":
        targets, sources = expanded(conf.target_paths), expanded(conf.source_paths)
        if len(targets) != len(sources):
            raise ListError(f"txt_pair: {len(sources)} source_paths for {len(targets)} target_paths")
        return [TextCorpus(target, source) for target, source in zip(targets, sources, strict=True)]
    return [open_list(*found) for found in lists_of(conf)]
