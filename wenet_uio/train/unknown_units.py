"""Whether the units of a trained model fit the texts that it is to learn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.labels import Tokenizer

TEXTS = 200
"""Most texts of a list that are looked at."""
TOLD, REFUSED = 0.02, 0.5
"""Shares of <unk> among the tokens above which a run warns, and does not begin."""
SHOWN = 3
"""Tokens that are named."""
log = logging.getLogger(__name__)


def check_units_fit(corpus: Corpus, tokenizer: Tokenizer, *, tells: bool) -> None:
    """Warn if many tokens of a training list are <unk>, because the model has no units for them.

    Texts of remote lists are not looked at: that would fetch their audio.

    Args:
        tells: write the warning; one of the ranks does.

    Raises:
        ValueError: most tokens are <unk>.
    """
    if tokenizer.unknown is None or corpus.is_remote:
        return

    unknown: Counter[str] = Counter()
    total = 0
    for text in _spread_texts(corpus):
        tokens, ids = tokenizer.tokenize(text)
        total += len(ids)
        unknown.update(
            token for token, unit in zip(tokens, ids, strict=True) if unit == tokenizer.unknown
        )

    share = unknown.total() / max(total, 1)
    if share <= TOLD:
        return

    names = ", ".join(token for token, _ in unknown.most_common(SHOWN))
    found = (
        f"{corpus.data_list}: {share:.0%} of the tokens are not units of the model, such as {names}, "
        "and would be learned as <unk>"
    )
    if share > REFUSED:
        raise ValueError(
            f"{found}; normalise the texts as those of the model, or name other units "
            "(--symbol_table, in a recipe --units) that its tokenizer cuts texts into"
        )
    if tells:
        log.warning(
            "%s; check_data.py --config with the train.yaml of the run names the texts", found
        )


def _spread_texts(corpus: Corpus) -> Iterator[str]:
    """Yield up to TEXTS texts, spread over a list; those that cannot be read are left out."""
    ends = np.cumsum(corpus.samples)
    count = min(TEXTS, corpus.num_samples)
    for number in (corpus.num_samples * place // count for place in range(count)):
        shard = int(np.searchsorted(ends, number, side="right"))
        row = number - int(ends[shard] - corpus.samples[shard])
        try:
            yield from corpus.texts(SampleRef(shard, row)).texts
        except (ListError, OSError) as error:
            log.debug("%s", error)  # a bad sample, which training counts and names
