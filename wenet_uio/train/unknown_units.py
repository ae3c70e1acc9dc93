"""Whether the units of a trained model fit the texts that it is to learn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, Texts
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.aggregate import UnknownLanguageError
from wenet_uio.text.labels import Tokenizer

TEXTS = 200
"""Most samples of a list whose texts are looked at."""
TOLD = 0.02
"""Share of <unk> among the tokens above which a run warns."""
SHOWN = 3
"""Tokens that are named."""
log = logging.getLogger(__name__)


def warn_of_unknown_units(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Warn if many tokens of a training list are <unk>, because the model has no units for them.

    Texts of remote lists are not looked at: that would fetch their audio. Those of an unknown language,
    and those of a tokenizer without <unk>, are left to the reader.
    """
    if corpus.is_remote:
        return

    unknown: Counter[str] = Counter()
    total = 0
    for sample in _spread_texts(corpus):
        try:
            of_language = tokenizer.of(sample.fields)
        except UnknownLanguageError:
            continue
        if of_language.unknown is None:
            continue

        for text in sample.texts:
            tokens, ids = of_language.tokenize(text)
            total += len(ids)
            units = zip(tokens, ids, strict=True)
            unknown.update(token for token, unit in units if unit == of_language.unknown)

    share = unknown.total() / max(total, 1)
    if share <= TOLD:
        return

    log.warning(
        "%s: %.0f %% of the tokens are not units of the model, such as %s, and are learned as <unk>: "
        "normalise the texts as those of the model, or name other units (--symbol_table, in a recipe "
        "--units) that its tokenizer cuts texts into; check_data.py --config with the train.yaml of "
        "the run names the texts",
        corpus.data_list,
        100 * share,
        ", ".join(token for token, _ in unknown.most_common(SHOWN)),
    )


def _spread_texts(corpus: Corpus) -> Iterator[Texts]:
    """Yield the texts of up to TEXTS samples, spread over a list; those that cannot be read are left
    out.
    """
    ends = np.cumsum(corpus.samples)
    count = min(TEXTS, corpus.num_samples)
    for number in (corpus.num_samples * place // count for place in range(count)):
        shard = int(np.searchsorted(ends, number, side="right"))
        row = number - int(ends[shard] - corpus.samples[shard])
        try:
            yield corpus.texts(SampleRef(shard, row))
        except (ListError, OSError) as error:
            log.debug("%s", error)  # a bad sample, which training counts and names
