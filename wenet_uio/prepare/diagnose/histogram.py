"""Histograms of positive numbers on a logarithmic scale, in bounded memory."""

from __future__ import annotations

import numpy as np

LOWEST, HIGHEST = -6.0, 6.0
"""Ends of the scale, as powers of ten; values beyond are counted in the first and the last bin."""
BINS = 2400
"""Bins of the scale: 200 per power of ten, so that quantiles are exact to 1.2 %."""


class LogHistogram:
    """Counts in bins of equal width on a logarithmic scale."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        """(bins,) values in each bin."""

    def add(self, values: np.ndarray) -> None:
        """Count some values; 0 and negative values fall into the lowest bin."""
        logarithms = np.log10(np.maximum(values, 10**LOWEST))
        bins = ((logarithms - LOWEST) * (BINS / (HIGHEST - LOWEST))).astype(np.int64)
        self.counts += np.bincount(bins.clip(0, BINS - 1), minlength=BINS)

    def merge(self, other: LogHistogram) -> None:
        """Add the counts of another histogram."""
        self.counts += other.counts

    def quantile(self, share: float) -> float:
        """Return the value below which this share (0 to 1) of all values lies; NaN without values."""
        total = int(self.counts.sum())
        if not total:
            return float("nan")

        # The geometric mean of the ends of the bin in which the value lies
        bin_index = int(np.searchsorted(np.cumsum(self.counts), max(1, share * total)))
        return float(self.edges()[bin_index : bin_index + 2].prod() ** 0.5)

    def edges(self) -> np.ndarray:
        """Return (bins + 1,) borders of the bins."""
        return np.logspace(LOWEST, HIGHEST, BINS + 1)

    def summary(self) -> dict[str, float]:
        """Return quantiles by share, to three digits; empty without values."""
        if not self.counts.any():
            return {}
        return {
            f"{share:g}": float(f"{self.quantile(share):.3g}")
            for share in (0.01, 0.25, 0.5, 0.75, 0.99)
        }
