"""Find bins of duration that hold equal amounts of audio, and bins of tokens inside each of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

OUTLIER = 4.0
"""Standard deviations from the mean of a bin beyond which an utterance is an outlier."""


@dataclass(frozen=True)
class TokenBins:
    """Bins of duration and tokens."""

    ends: tuple[tuple[float, int], ...]
    """Upper ends in seconds and tokens, inclusive."""
    max_tps: tuple[float, ...]
    """Largest tokens per second of each bin of duration, without outliers."""
    outliers: int
    """Utterances left out because of their tokens per second."""


def duration_bins(seconds: np.ndarray, count: int) -> tuple[float, ...]:
    """Return the upper ends, inclusive, of at most `count` bins of duration that hold about the
    same amount of audio each.

    The last bin ends at the longest utterance. The unit is that of `seconds`.

    Raises:
        ValueError: no utterances, or no bins.
    """
    if not len(seconds) or count < 1:
        raise ValueError(f"{len(seconds)} utterances cannot be put into {count} bins")
    ordered = np.sort(seconds)
    return tuple(float(end) for end in _equal_parts(ordered, ordered, count))


def token_bins(
    seconds: np.ndarray,
    tokens: np.ndarray,
    count: int,
    per_bin: int,
    outlier: float = OUTLIER,
) -> TokenBins:
    """Return `count` bins of duration, each cut into at most `per_bin` bins that hold about the
    same number of tokens each.

    Outliers by tokens per second are left out first: those that differ from the mean of their bin
    of duration by more than `outlier` standard deviations.
    """
    ends: list[tuple[float, int]] = []
    limits: list[float] = []
    outliers, low = 0, -np.inf

    for end in duration_bins(seconds, count):
        inside = (seconds > low) & (seconds <= end)
        rate = tokens[inside] / seconds[inside]
        kept = np.abs(rate - rate.mean()) <= outlier * rate.std() + 1e-9
        ordered = np.sort(tokens[inside][kept])
        ends += [(end, int(most)) for most in _equal_parts(ordered, ordered, per_bin)]
        limits.append(float(rate[kept].max()))
        outliers += int(np.count_nonzero(~kept))
        low = end

    return TokenBins(tuple(ends), tuple(limits), outliers)


def _equal_parts(ordered: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return values of `ordered` where the running sum of `weights` passes each of `count` equal
    parts; and the last value.
    """
    running = np.cumsum(weights, dtype=np.float64)
    passes = np.searchsorted(running, running[-1] * np.arange(1, count) / count, side="left")
    return np.unique(np.append(ordered[passes], ordered[-1]))
