"""Check of the names in a config, such as `encoder: conformer`."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def known_name(name: str, known: Collection[str]) -> str:
    """Return `name` if it is one of `known`.

    Raises:
        ValueError: for an unknown name; the message has the nearest known name, or all of them.
    """
    if name in known:
        return name

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    raise ValueError(
        f"unknown; did you mean {nearest[0]!r}?"
        if nearest
        else f"unknown; known: {', '.join(known)}"
    )
