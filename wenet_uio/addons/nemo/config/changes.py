"""Overrides of a config that may have sections of NeMo: one merge, key by key, the last one wins.

An override names a key of NeMo, which is set before NeMo's sections are converted, or a key of
Config, which is set afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from wenet_uio.addons.nemo.config.convert import from_nemo
from wenet_uio.addons.nemo.config.layout import MODEL, laid_out, layout_path, place_override
from wenet_uio.addons.nemo.config.references import is_referred_to
from wenet_uio.base.messages import nearest_name
from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo import LOADERS, OF_FILE, SHARED, VARIABLES, is_nemo_path
from wenet_uio.config.overrides import Override, apply_override

WITHOUT_EFFECT = {
    "exp_manager": "the folder of a run is train.py --model_dir",
    "hydra": "--override_config changes keys of the yaml",
    "init_strict": "--checkpoint and --enc_init of train.py name what is loaded",
}
"""{section of NeMo that nothing reads: what to do instead}."""
READ_AT_TOP = ("trainer", *(name for name in OF_FILE if name.startswith("init_from")))
"""Keys at the top of NeMo's files that are read themselves. The others are read only where a
reference names them."""
REMOVED = object()
"""Stands for the value of a key that is not there."""


@dataclass(frozen=True)
class Converted:
    """Keys of Config that a layout gives."""

    values: dict[str, Any]
    notes: list[str]
    """Lines for the log."""


def apply_overrides(
    values: dict[str, Any],
    changes: Sequence[Override],
    complete: Callable[[dict[str, Any]], dict[str, Any]],
    where: str,
    *,
    of_model: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of Config of a yaml with overrides, and lines for the log.

    Args:
        values: content of the yaml; it is not changed.
        changes: overrides; a later one wins over an earlier one of the same key, in whatever
            spelling each is.
        complete: converts what is not NeMo's, and returns the keys of Config.
        where: beginning of messages, such as the path of the yaml.
        of_model: see `from_nemo`.

    Raises:
        ConfigError: an override cannot be set, or the result cannot be converted.
    """
    given = frozenset(change.path[0] for change in changes if not is_nemo_path(change.path))

    def convert(layout: dict[str, Any]) -> Converted:
        notes: list[str] = []
        ours = from_nemo(layout, where, notes, given=given, of_model=of_model)
        return Converted(complete(ours), notes)

    layout = laid_out(values, where)
    try:
        converted = _apply_in_order(deepcopy(layout), changes, convert)
    except ConfigError:
        # What an earlier override leaves open a later one may give: all of NeMo's first
        nemo_first = sorted(changes, key=lambda change: not is_nemo_path(change.path))
        converted = _apply_in_order(deepcopy(layout), nemo_first, convert)

    return converted.values, converted.notes


def _apply_in_order(
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
                change_of_layout = _with_absolute_path(place_override(change))
                _refuse_without_effect(change_of_layout, layout)
                apply_override(layout, change_of_layout, merges=True)
            # What these overrides change is also changed in a conversion that has others already.
            if converted and before:
                after = convert(layout)
                for path, value in _differences(before.values, after.values):
                    _set_at_path(converted.values, path, value)
                converted = Converted(converted.values, after.notes)
            continue

        converted = converted or convert(layout)
        for change in neighbours:
            apply_override(converted.values, change)

    return converted or convert(layout)


def _refuse_without_effect(change: Override, layout: Mapping[str, Any]) -> None:
    """Raise a ConfigError if nothing reads the key that an override of NeMo names."""
    if _may_have_effect(change.path, layout):
        return

    first, *rest = change.path
    name = "model" if first == MODEL else first
    raise ConfigError(
        f"--override_config {change.text}: {'.'.join([name, *rest])}: meets nothing here; "
        f"{_what_to_write(first, rest)}"
    )


def _may_have_effect(path: tuple[str, ...], layout: Mapping[str, Any]) -> bool:
    """Tell whether a key of NeMo's files is read, or others may refer to it."""
    if path[0] == MODEL:
        name = str(path[1])
        is_part = name == "sample_rate" or (len(path) > 2 and not name.endswith("_ds"))
        return is_part or name in layout.get(MODEL, {})

    if path[0] in READ_AT_TOP or path[0] not in (*OF_FILE, *VARIABLES):
        return True
    return path[0] not in WITHOUT_EFFECT and is_referred_to(path, layout)


def _what_to_write(first: str, rest: Sequence[str]) -> str:
    """Return what to write instead of an override without effect, whose path is `first` and `rest`."""
    if rest and layout_path(("model", *rest))[0] in (*LOADERS, *SHARED):
        return f"did you mean model.{'.'.join(rest)}?"
    if first == MODEL and rest and (loader := nearest_name(rest[0], LOADERS)):
        return f"did you mean model.{'.'.join([loader, *rest[1:]])}?"
    if first == MODEL:
        return (
            "keys of NeMo's model are not read, write those of encoder_conf, decoder_conf or "
            "model_conf"
        )
    return WITHOUT_EFFECT.get(first, "no key of the file refers to it; remove it")


def _with_absolute_path(change: Override) -> Override:
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


def _set_at_path(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set or remove the value at a path, in place."""
    section = values
    for key in path[:-1]:
        section = section.setdefault(key, {})
    if value is REMOVED:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value
