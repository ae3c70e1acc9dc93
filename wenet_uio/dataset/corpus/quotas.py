"""Shares of a whole as whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exact_quotas(shares: Sequence[float], total: int) -> list[int]:
    """Return whole numbers that sum to `total`, each less than one away from its share of `total`
    (largest remainders).
    """
    exact = np.asarray(shares) / sum(shares) * total
    quotas = np.floor(exact).astype(int)
    for number in np.argsort(quotas - exact, kind="stable")[: total - int(quotas.sum())]:
        quotas[number] += 1
    return quotas.tolist()
