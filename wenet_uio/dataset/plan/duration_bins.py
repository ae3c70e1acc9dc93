"""Bins of duration, and of tokens within them, that hold equal amounts of audio."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

OUTLIER = 4.0
"""Standard deviations of tokens per second beyond which an utterance is left out of its bin."""


@dataclass(frozen=True)
class Bins:
    """Upper ends of buckets, inclusive."""

    ends: tuple[float, ...] | tuple[tuple[float, int], ...]
    """Seconds, or seconds and tokens."""
    max_tps: tuple[float, ...] = ()
    """Largest tokens per second that each bin of duration keeps; only with token bins."""
    outliers: int = 0
    """Utterances beyond that."""


def duration_bins(seconds: np.ndarray, count: int) -> Bins:
    """At most `count` bins, each of about the same audio in all; the last ends at the longest utterance.

    Raises:
        ValueError: there is nothing to bin.
    """
    if not len(seconds) or count < 1:
        raise ValueError(f"{len(seconds)} utterances cannot be put into {count} bins")
    ordered = np.sort(seconds)
    return Bins(tuple(float(end) for end in _equal_parts(ordered, ordered, count)))


def token_bins(seconds: np.ndarray, tokens: np.ndarray, count: int, per_bin: int) -> Bins:
    """`count` bins of duration, each cut into at most `per_bin` of about the same number of tokens in all.

    Utterances whose tokens per second are beyond OUTLIER standard deviations of their bin's are left out first.
    """
    ends: list[tuple[float, int]] = []
    limits: list[float] = []
    outliers, low = 0, -np.inf
    for end in duration_bins(seconds, count).ends:
        inside = (seconds > low) & (seconds <= end)
        rate = tokens[inside] / seconds[inside]
        kept = np.abs(rate - rate.mean()) <= OUTLIER * rate.std() + 1e-9
        ordered = np.sort(tokens[inside][kept])
        ends += [(float(end), int(most)) for most in _equal_parts(ordered, ordered, per_bin)]
        limits.append(float(rate[kept].max()))
        outliers += int(np.count_nonzero(~kept))
        low = end
    return Bins(tuple(ends), tuple(limits), outliers)


def _equal_parts(ordered: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Rising values at which the running sum of `weights` passes each of `count` equal parts, and the last."""
    running = np.cumsum(weights, dtype=np.float64)
    passes = np.searchsorted(running, running[-1] * np.arange(1, count) / count, side="left")
    return np.unique(np.append(ordered[passes], ordered[-1]))
