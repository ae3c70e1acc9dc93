"""Overrides of a config that may have sections of NeMo: one merge, key by key, the last one wins.

An override names a key of NeMo, which is set before NeMo's sections are converted, or a key of
Config, which is set afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo.layout import MODEL, is_nemo_path, placed
from wenet_uio.config.overrides import Override, apply_override

WITHOUT_EFFECT = {
    "exp_manager": "the folder of a run is train.py --model_dir",
    "hydra": "--override_config changes keys of the yaml",
}
"""{section of NeMo that nothing reads: what to do instead}."""
REMOVED = object()
"""Stands for the value of a key that is not there."""


@dataclass(frozen=True)
class Converted:
    """Keys of Config that a layout gives."""

    values: dict[str, Any]
    notes: list[str]
    """Lines for the log."""


def keys_given(changes: Iterable[Override]) -> frozenset[str]:
    """Return the keys of Config at the top that overrides change."""
    return frozenset(change.path[0] for change in changes if not is_nemo_path(change.path))


def with_overrides(
    layout: dict[str, Any], changes: Sequence[Override], convert: Callable[[dict], Converted]
) -> Converted:
    """Return the keys of Config of a layout with overrides.

    Args:
        layout: content of a yaml, see layout.py; it is not changed.
        changes: overrides; a later one wins over an earlier one of the same key, in whatever
            spelling each is.
        convert: returns the keys of Config of a layout.

    Raises:
        ConfigError: an override cannot be set, or the result cannot be converted.
    """
    try:
        return _in_order(deepcopy(layout), changes, convert)
    except ConfigError:
        # What an earlier override leaves open a later one may give: all of NeMo's first
        nemo_first = sorted(changes, key=lambda change: not is_nemo_path(change.path))
        return _in_order(deepcopy(layout), nemo_first, convert)


def _in_order(
    layout: dict[str, Any], changes: Sequence[Override], convert: Callable[[dict], Converted]
) -> Converted:
    """Set overrides one after the other: those of NeMo's keys in the layout, the others in its
    conversion.
    """
    converted: Converted | None = None
    for is_nemo, neighbours in groupby(changes, lambda change: is_nemo_path(change.path)):
        if is_nemo:
            before = convert(layout) if converted else None
            for change in neighbours:
                change_of_layout = _as_given(placed(change))
                _refuse_without_effect(change_of_layout, layout)
                apply_override(layout, change_of_layout, merges=True)
            # What these overrides change is also changed in a conversion that has others already.
            if converted and before:
                converted = _followed(converted, before, convert(layout))
            continue

        converted = converted or convert(layout)
        for change in neighbours:
            apply_override(converted.values, change)

    return converted or convert(layout)


def _followed(converted: Converted, earlier: Converted, later: Converted) -> Converted:
    """Set what differs between two conversions."""
    for path, value in _differences(earlier.values, later.values):
        _set(converted.values, path, value)
    return Converted(converted.values, later.notes)


def _refuse_without_effect(change: Override, layout: Mapping[str, Any]) -> None:
    """Raise a ConfigError if nothing reads the key that an override of NeMo names.

    A key of `model` may have an effect if the file has it, because other keys may refer to it.
    """
    first, *rest = change.path
    if first == MODEL:
        name = str(rest[0]) if rest else first
        is_in_file = name in layout.get(MODEL, {})
        is_part = len(rest) > 1 or name == "sample_rate"
        has_no_effect = not is_in_file and not is_part
    else:
        has_no_effect = first in WITHOUT_EFFECT

    if has_no_effect:
        path = ".".join(["model", *rest] if first == MODEL else change.path)
        advice = WITHOUT_EFFECT.get(
            first,
            "keys of NeMo's model are not read, write those of encoder_conf, decoder_conf or "
            "model_conf",
        )
        raise ConfigError(f"--override_config {change.text}: {path}: meets nothing here; {advice}")


def _as_given(change: Override) -> Override:
    """Return an override with the folder of a tokenizer as an absolute path: paths of overrides are
    relative to the working directory, those of a yaml to its folder.
    """
    is_folder = change.path[0] == "tokenizer" and change.path[-1] == "dir"
    if is_folder and isinstance(change.value, str) and Path(change.value).exists():
        return Override(change.text, change.path, str(Path(change.value).absolute()))
    return change


def _differences(
    earlier: Mapping[str, Any], later: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the later value of each key that differs."""
    for key in [*earlier, *(key for key in later if key not in earlier)]:
        old, new = earlier.get(key, REMOVED), later.get(key, REMOVED)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, (*path, key))
        elif old is REMOVED or new is REMOVED or old != new:
            yield (*path, key), new


def _set(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set or remove the value at a path, in place."""
    section = values
    for key in path[:-1]:
        section = section.setdefault(key, {})
    if value is REMOVED:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value
