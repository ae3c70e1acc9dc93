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


def interval(counts: Sequence[Counts], resamples: int, seed: int = 0) -> tuple[float, float]:
    """Estimate the 95 % interval of the error rate, in percent.

    Args:
        counts: one element per utterance.
    """
    (rates,) = _resample_rates([counts], resamples, seed)
    return _interval_ends(rates)


def compare(
    first: Sequence[Counts], second: Sequence[Counts], resamples: int, seed: int = 0
) -> Comparison:
    """Compare two systems; `first` and `second` count the same utterances in the same order."""
    rates = _resample_rates([first, second], resamples, seed)
    differences = rates[1] - rates[0]  # (resamples,)
    low, high = _interval_ends(differences)

    first_rate = sum(first, Counts()).rate
    second_rate = sum(second, Counts()).rate
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return Comparison(second_rate - first_rate, low, high, min(1.0, float(p)))


def _resample_rates(systems: Sequence[Sequence[Counts]], resamples: int, seed: int) -> np.ndarray:
    """Compute error rates (systems, resamples) in percent.

    A resample draws as many utterances as there are, with replacement, and the same ones for every
    system.
    """
    error_rows: list[list[int]] = []
    for counts in systems:
        error_rows.append([utterance.errors for utterance in counts])
    errors = np.array(error_rows, np.int64)  # (systems, utterances)
    words = np.array([utterance.words for utterance in systems[0]], np.int64)  # (utterances,)

    generator = np.random.default_rng(seed)
    rates = np.zeros((len(systems), resamples))
    block = max(1, DRAWN_AT_ONCE // max(1, len(words)))
    for first in range(0, resamples, block):
        shape = (min(block, resamples - first), len(words))
        drawn = generator.integers(len(words), size=shape)  # (resamples of the block, utterances)

        drawn_errors = errors[:, drawn].sum(axis=2)  # (systems, resamples of the block)
        drawn_words = words[drawn].sum(axis=1).clip(1)  # no division by 0
        rates[:, first : first + block] = 100.0 * drawn_errors / drawn_words

    return rates


def _interval_ends(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the interval that holds LEVEL percent of the values, around the middle."""
    low, high = np.percentile(values, ((100 - LEVEL) / 2, (100 + LEVEL) / 2))
    return float(low), float(high)
