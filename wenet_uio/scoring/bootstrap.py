"""How sure an error rate is: utterances drawn again and again, with replacement (Bisani and Ney 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wenet_uio.scoring.wer import Counts

LEVEL = 95
"""Percent of the resamples that an interval holds."""


class Comparison(NamedTuple):
    """A second system beside a first on the same utterances."""

    difference: float
    """Error rate of the second minus that of the first, in points."""
    low: float
    high: float
    """Ends of its interval."""
    p: float
    """Two-sided: how often the resamples contradict the sign of the difference, doubled."""


def interval(counts: Sequence[Counts], resamples: int, seed: int = 0) -> tuple[float, float]:
    """Ends of the 95 % interval of the error rate, in percent; `counts` are those of each utterance."""
    (rates,) = _rates([counts], resamples, seed)
    return _ends(rates)


def compare(first: Sequence[Counts], second: Sequence[Counts], resamples: int, seed: int = 0) -> Comparison:
    """Compare two systems; `first` and `second` count the same utterances in the same order."""
    rates = _rates([first, second], resamples, seed)
    differences = rates[1] - rates[0]
    total = [sum(counts, Counts()).rate for counts in (first, second)]
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return Comparison(total[1] - total[0], *_ends(differences), min(1.0, float(p)))


def _rates(systems: Sequence[Sequence[Counts]], resamples: int, seed: int) -> np.ndarray:
    """(systems, resamples) error rates; a resample holds the same utterances for every system."""
    errors = np.array([[each.errors for each in counts] for counts in systems], np.int64)
    words = np.array([each.words for each in systems[0]], np.int64)
    draw = np.random.default_rng(seed)
    rates = np.zeros((len(systems), resamples))
    for number in range(resamples):
        chosen = draw.integers(len(words), size=len(words))
        rates[:, number] = 100.0 * errors[:, chosen].sum(axis=1) / max(1, words[chosen].sum())
    return rates


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, ((100 - LEVEL) / 2, (100 + LEVEL) / 2))
    return float(low), float(high)
