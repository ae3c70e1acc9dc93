"""Estimate bins of duration (and of tokens within them) for `batch_type: bucket` from the index of a corpus."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wenet_uio.config import Config
from wenet_uio.config.dataset import BatchConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.plan.duration_bins import Bins, duration_bins, token_bins
from wenet_uio.dataset.plan.measure import Measure, measure_of
from wenet_uio.text.tokenizer import build_tokenizer


def estimate_bins(
    data_list: str, data_type: DataType, config: Config, num_bins: int, num_token_bins: int | None = None
) -> tuple[Bins, int]:
    """Bins of equal amounts of audio over the utterances that the filters of the config keep.

    Args:
        num_bins: bins of duration.
        num_token_bins: bins of tokens within each bin of duration; None: no bins of tokens.

    Returns:
        the bins, and the number of utterances.

    Raises:
        ListError: the list cannot be used.
        ValueError: there is no utterance with audio.
    """
    tokenizer = build_tokenizer(config) if num_token_bins else None
    corpus = open_corpus(data_list, data_type, tokenizer=tokenizer).in_pass(0)
    # Buckets of the config do not apply: they are what is estimated.
    conf = config.dataset_conf.model_copy(update={"batch_conf": BatchConf()})
    measure = measure_of(conf, training=True, text_length_is_tokens=tokenizer is not None)
    seconds, tokens = _lengths(corpus, measure)
    if num_token_bins:
        return token_bins(seconds, tokens, num_bins, num_token_bins), len(seconds)
    return duration_bins(seconds, num_bins), len(seconds)


def batch_conf_of(bins: Bins) -> dict[str, Any]:
    """The bins as keys of `batch_conf`, for a yaml file. Ends are rounded to ms, `max_tps` is rounded up."""
    ends = [[round(end[0], 3), end[1]] if isinstance(end, tuple) else round(end, 3) for end in bins.ends]
    conf: dict[str, Any] = {"batch_type": "bucket", "bucket_duration_bins": ends}
    if bins.max_tps:
        conf["max_tps"] = [math.ceil(100 * limit) / 100 for limit in bins.max_tps]
    return conf


def _lengths(corpus: Corpus, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and tokens (or characters) of the utterances with audio that the measure keeps."""
    seconds, tokens = [], []
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        kept = measure.keep(rows)[0] & (rows.sample_rate != TEXT_ONLY)
        seconds.append(rows.seconds[kept])
        tokens.append(rows.text_length[kept])
    return np.concatenate(seconds), np.concatenate(tokens)
