"""Check of the names in a config, such as `encoder: conformer`."""

from __future__ import annotations

from collections.abc import Collection

from wenet_uio.base.messages import nearest_name


def known_name(name: str, known: Collection[str]) -> str:
    """Return `name` if it is one of `known`.

    Raises:
        ValueError: for an unknown name; the message has the nearest known name, or all of them.
    """
    if name in known:
        return name

    nearest = nearest_name(name, known)
    raise ValueError(
        f"unknown; did you mean {nearest!r}?" if nearest else f"unknown; known: {', '.join(known)}"
    )
