"""Shares of a whole as whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exact_quotas(shares: Sequence[float], total: int, owed: np.ndarray | None = None) -> list[int]:
    """Return whole numbers that sum to `total`, each less than one away from its share of `total`
    (largest remainders).

    Args:
        owed: what each got too little before, which is added to its share; the sum is 0.
    """
    wanted = wanted_of(shares, total, owed)
    quotas = np.floor(np.maximum(wanted, 0)).astype(int)
    missing = total - int(quotas.sum())
    if missing >= 0:
        quotas[np.argsort(quotas - wanted, kind="stable")[:missing]] += 1

    # A share that got more before than it gets now has 0, not less: the others make up for it. The
    # quota that is farthest above what is wanted is lowered.
    for _ in range(-missing):
        too_little = np.where(quotas > 0, wanted - quotas, np.inf)
        quotas[int(np.argmin(too_little))] -= 1

    return quotas.tolist()


def wanted_of(shares: Sequence[float], total: int, owed: np.ndarray | None) -> np.ndarray:
    """Return (shares,) the part of `total` for each share, plus what the share is owed."""
    parts = np.asarray(shares) / sum(shares) * total
    return parts if owed is None else parts + owed
