"""Confidences: how sure a model is of the words that it writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 1e-4
"""Smallest confidence that is written, with four digits: 0 would say that a word is surely wrong."""

TINY = 1e-30
"""Smallest confidence; a product of hundreds of probabilities may be 0."""


def word_confidence(tokens: Sequence[float | None]) -> float | None:
    """Return an estimate that a word is right, from the probabilities of its tokens.

    The product of the probabilities, which is that of the whole word; above 0. None if one of them
    is not known.
    """
    known = [token for token in tokens if token is not None]
    return max(math.prod(known), TINY) if len(known) == len(tokens) else None


def rounded_confidence(confidence: float | None) -> float | None:
    """Round a confidence for JSON, to LEAST or more."""
    return None if confidence is None else max(round(confidence, 4), LEAST)
