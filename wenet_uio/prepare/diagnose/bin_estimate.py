"""Estimate bins of duration, and of tokens within them, for `batch_type: bucket`.

Everything comes from the index of a corpus.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wenet_uio.config import Config
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.open import open_filtered, read_source
from wenet_uio.dataset.plan.duration_bins import OUTLIER, duration_bins, token_bins
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.text.tokenizer import build_tokenizer


@dataclass(frozen=True)
class BinEstimate:
    """Bins for `batch_conf`, and the utterances they were estimated from."""

    ends: list[float] | list[list[float]]
    """Upper ends of the bins, inclusive: seconds, or [seconds, tokens]; seconds are rounded up to
    ms."""
    max_tps: list[float]
    """Largest tokens per second of each bin of duration, rounded up; empty without bins of
    tokens."""
    utterances: int
    outliers: int
    """Utterances left out because of their tokens per second."""
    filtered: Counter[str] = field(default_factory=Counter)
    """Utterances that the filters leave out, by reason."""

    def batch_conf(self) -> dict[str, Any]:
        """Return the bins as keys of `batch_conf`, for a yaml file."""
        conf: dict[str, Any] = {"batch_type": "bucket", "bucket_duration_bins": self.ends}
        return {**conf, "max_tps": self.max_tps} if self.max_tps else conf


def estimate_bins(
    data_list: str | MixtureConf,
    data_type: DataType,
    config: Config,
    num_bins: int,
    num_token_bins: int | None = None,
    outlier: float = OUTLIER,
) -> BinEstimate:
    """Estimate bins of equal amounts of audio over the utterances that the filters keep.

    Args:
        num_bins: bins of duration.
        num_token_bins: bins of tokens within each bin of duration; None: no bins of tokens.
        outlier: see `token_bins`.

    Raises:
        ListError: the list cannot be used.
        ValueError: there is no utterance with audio.
    """
    tokenizer = build_tokenizer(config) if num_token_bins else None
    source = read_source(data_list, data_type)
    opened, measure = open_filtered(config.dataset_conf, source, tokenizer)
    seconds, tokens, filtered = _lengths(Passes(opened).corpus_of(0), measure)
    if not len(seconds):
        reasons = ", ".join(f"{count} by {reason}" for reason, count in filtered.items())
        raise ValueError(
            f"no utterance with audio is left; the filters leave out: {reasons or 'none'}"
        )

    # Rounded up to the milliseconds that the plan counts. So the longest utterance fits into its
    # bin, and no two bins have one end.
    seconds = np.ceil(np.round(1000 * seconds, 6)) / 1000
    if not num_token_bins:
        ends = [round(end, 3) for end in duration_bins(seconds, num_bins)]
        return BinEstimate(ends, [], len(seconds), outliers=0, filtered=filtered)

    bins = token_bins(seconds, tokens, num_bins, num_token_bins, outlier)
    ends = [[round(end, 3), most] for end, most in bins.ends]
    max_tps = [math.ceil(100 * limit) / 100 for limit in bins.max_tps]
    return BinEstimate(ends, max_tps, len(seconds), bins.outliers, filtered)


def _lengths(corpus: Corpus, measure: Measure) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """Return seconds and tokens of the utterances with audio that are kept, and why others are not.

    Both are (utterances,). Without a tokenizer, tokens are characters.
    """
    seconds, tokens = [], []
    filtered: Counter[str] = Counter()
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        kept, reasons = measure.keep(rows)
        filtered += reasons
        kept = kept & (rows.sample_rate != TEXT_ONLY)
        seconds.append(rows.seconds[kept])
        tokens.append(rows.text_length[kept])

    return np.concatenate(seconds), np.concatenate(tokens), filtered
