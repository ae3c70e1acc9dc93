"""Confidence intervals of error rates, by resampling the utterances with replacement.

M. Bisani and H. Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation",
ICASSP 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wenet_uio.scoring.wer import Counts

LEVEL = 95
"""Percent of the resamples that lie inside an interval."""
DRAWN_AT_ONCE = 1 << 16
"""Utterances drawn at once, for which memory is needed."""


class Comparison(NamedTuple):
    """The difference of two systems on the same utterances."""

    difference: float
    """Error rate of the second system minus that of the first, in percentage points."""
    low: float
    """Lower end of the interval of the difference."""
    high: float
    """Upper end of the interval of the difference."""
    p: float
    """Two-sided p-value: twice the share of resamples in which the difference is zero or has the
    other sign."""


def interval(counts: Sequence[Counts], resamples: int, seed: int = 0) -> tuple[float, float] | None:
    """Estimate the 95 % interval of the error rate, in percent; None without words of references.

    Args:
        counts: one element per utterance.
    """
    (rates,) = _resample_rates([counts], resamples, seed)
    return _interval_ends(rates) if rates.size else None


def compare(
    first: Sequence[Counts], second: Sequence[Counts], resamples: int, seed: int = 0
) -> Comparison | None:
    """Compare two systems; None without words of references.

    `first` and `second` count the same utterances in the same order.
    """
    rates = _resample_rates([first, second], resamples, seed)
    if not rates.size:
        return None

    differences = rates[1] - rates[0]  # (resamples,)
    low, high = _interval_ends(differences)

    first_rate = sum(first, Counts()).rate
    second_rate = sum(second, Counts()).rate
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return Comparison(second_rate - first_rate, low, high, min(1.0, float(p)))


def _resample_rates(systems: Sequence[Sequence[Counts]], resamples: int, seed: int) -> np.ndarray:
    """Compute error rates (systems, resamples) in percent.

    A resample draws as many utterances as there are, with replacement, and the same ones for every
    system. Resamples without words of references have no rate and are left out.
    """
    # (systems, utterances). Systems may take alternatives of a reference with other numbers of words.
    errors = np.array([[one.errors for one in counts] for counts in systems], np.int64)
    words = np.array([[one.words for one in counts] for counts in systems], np.int64)
    utterances = words.shape[1]

    generator = np.random.default_rng(seed)
    blocks: list[np.ndarray] = []
    size = max(1, DRAWN_AT_ONCE // max(1, utterances))
    for first in range(0, resamples, size):
        shape = (min(size, resamples - first), utterances)
        drawn = generator.integers(utterances, size=shape)  # (resamples of the block, utterances)

        drawn_errors = errors[:, drawn].sum(axis=2)  # (systems, resamples of the block)
        drawn_words = words[:, drawn].sum(axis=2)
        with_words = drawn_words.all(axis=0)
        blocks.append(100.0 * drawn_errors[:, with_words] / drawn_words[:, with_words])

    return np.concatenate(blocks, axis=1)


def _interval_ends(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the interval that holds LEVEL percent of the values, around the middle."""
    low, high = np.percentile(values, ((100 - LEVEL) / 2, (100 + LEVEL) / 2))
    return float(low), float(high)
