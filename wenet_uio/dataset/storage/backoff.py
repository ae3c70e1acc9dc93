"""Pauses between attempts: exponential back-off with jitter."""

from __future__ import annotations

import random

MOST_DOUBLINGS = 60
"""Enough to reach any sensible longest pause; more would overflow a float after a long outage."""


class Backoff:
    """Counts failed attempts and gives the pause before the next one.

    Pauses double from `first` up to `longest` seconds. Jitter of up to one half keeps processes
    that failed together from trying again together.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0
        """Failed attempts since the last progress."""

    def reset(self) -> None:
        """Begin with the first pause again, since there was progress."""
        self.failures = 0

    def next_pause(self) -> float:
        """Count a failed attempt; returns the seconds to wait before the next attempt."""
        pause = min(
            self._longest, self._first * 2.0 ** min(self.failures, MOST_DOUBLINGS)
        ) * random.uniform(0.5, 1.0)
        self.failures += 1
        return pause
