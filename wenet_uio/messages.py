"""Warnings that come once, and short lists of many findings."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cache
from itertools import islice

log = logging.getLogger(__name__)


def listed(items: Collection[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` items, followed by the number of the others: `a, b, c and 4 more`."""
    first = separator.join(islice(items, most))
    return f"{first} and {len(items) - most} more" if len(items) > most else first


@cache
def warn_once(message: str) -> None:
    """Log a message that would otherwise come again and again, from each stream or each reading of
    a file.
    """
    log.warning("%s", message)
