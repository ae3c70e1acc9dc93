"""Paths with weights in one source, NeMo's `[[a.json, 0.7], [b.json, 0.3]]`: a source for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WEIGHTED = ("manifest_filepath", "tarred_audio_filepaths", "shar_path")
"""Keys whose paths may have weights."""


def has_weights(lists: Mapping[str, Any]) -> bool:
    """Tell whether a path in the values of some keys of WEIGHTED has a weight."""
    return any(_weight_of(item) is not None for paths in lists.values() for item in _items(paths))


def without_weights(paths: Any) -> Any:
    """Return the value of a key of WEIGHTED with the paths alone."""
    if not isinstance(paths, (list, tuple)):
        return paths
    return [item if _weight_of(item) is None else [item[0]] for item in paths]


def weighted_members(lists: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the paths and the weight of each source.

    Args:
        lists: the values of some keys of WEIGHTED. The first items of all lists are one source, and
            so on.

    Raises:
        ValueError: the lists differ in length, or not every source has one weight.
    """
    if len({len(_items(paths)) for paths in lists.values()}) != 1:
        raise ValueError(f"{' and '.join(lists)} of paths with weights need as many items")

    members = []
    for items in zip(*map(_items, lists.values()), strict=True):
        weights = {_weight_of(item) for item in items} - {None}
        if len(weights) != 1:
            raise ValueError(
                f"{next(iter(lists))}: {items[0]!r}: expected [path, weight]: give each path one "
                "weight"
            )
        paths = [item if _weight_of(item) is None else item[0] for item in items]
        members.append({**dict(zip(lists, paths, strict=True)), "weight": weights.pop()})

    return members


def _items(paths: Any) -> Sequence[Any]:
    """Return the items of a list of paths; none of a single path."""
    return paths if isinstance(paths, (list, tuple)) else ()


def _weight_of(item: Any) -> float | None:
    """Return the weight of `[path, weight]`; None if an item has no weight."""
    is_pair = isinstance(item, (list, tuple)) and len(item) == 2
    return item[1] if is_pair and type(item[1]) in (int, float) else None
