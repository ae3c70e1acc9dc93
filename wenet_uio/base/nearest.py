"""The known name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LEAST_SIMILARITY = 0.5
"""Names that share fewer of their letters, in order, are no suggestion."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, whatever the case of their letters;
    None if none is similar.
    """
    in_lower_case = {candidate.lower(): candidate for candidate in known}
    similar = difflib.get_close_matches(name.lower(), in_lower_case, 1, LEAST_SIMILARITY)
    return in_lower_case[similar[0]] if similar else None
