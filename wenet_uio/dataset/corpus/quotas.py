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

    # Where nobody gives back what he got too much before, those with the least claim get less.
    for _ in range(-missing):
        claim = np.where(quotas > 0, wanted - quotas, np.inf)
        quotas[int(np.argmin(claim))] -= 1

    return quotas.tolist()


def wanted_of(shares: Sequence[float], total: int, owed: np.ndarray | None) -> np.ndarray:
    """Return the share of each of `total`, and what it is owed."""
    exact = np.asarray(shares) / sum(shares) * total
    return exact if owed is None else exact + owed
