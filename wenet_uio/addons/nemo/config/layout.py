"""Where the sections of NeMo stand: `model.train_ds`, `train_ds` or `training_ds`, under one path.

A yaml may have them at the top or under `model`, and an override may name them in either form. The
layout has loaders, tokenizer and optimizer at the top, and what else `model` of NeMo holds under a
key of its own, because `model` of this project is the name of a family.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo import LOADERS, OTHER_NAMES, SHARED
from wenet_uio.config.overrides import Override, merged
from wenet_uio.config.yaml_file import read_yaml

MODEL = "model of NeMo"
"""Key of the layout with what `model` of NeMo holds besides data, tokenizer and optimizer."""


def layout_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return where a key of NeMo stands in the common layout of all its configs.

    Sections of data stand at the top, whether a config has them there, in `model` or in `data`:
    `model.train_ds.shuffle` is `train_ds.shuffle`. All other keys of `model` are those of the model.
    """
    first, *below = path
    if first in ("model", "data") and below:
        second, *inside = below
        section = OTHER_NAMES.get(second, second)
        if section in (*LOADERS, *SHARED):
            return (section, *inside)
        if first == "model":
            return (MODEL, *below)

    return (OTHER_NAMES.get(first, first), *below)


def reference_targets(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the paths in the layout that a reference may mean; the first that exists is taken.

    A loader may refer to a key beside it, `${..sample_rate}`, which `model` held.
    """
    return [layout_path(path), layout_path(("model", *path))]


def laid_out(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a yaml in the layout. Loaders that are named by the path of a yaml are
    read.

    Raises:
        ConfigError: a key stands at the top and under `model` with two values, or a loader is no
            mapping.
    """
    layout: dict[str, Any] = {}
    for key, value in values.items():
        if key in ("model", "data") and _holds_sections(key, value):
            _add_sections(layout, key, value, where)
        else:
            _add_section(layout, OTHER_NAMES.get(key, key), value, where)

    for key in LOADERS:
        if key in layout:
            layout[key] = open_loader(layout[key], f"{where}: {key}")

    return layout


def _holds_sections(key: str, value: Any) -> bool:
    """Tell whether the value of `model` or `data` holds sections of NeMo."""
    if not isinstance(value, dict):
        return False
    if key == "model":
        return True

    # `data` may be a section itself; then none of its keys has a place elsewhere in the layout.
    sections = [layout_path((key, str(name)))[0] for name in value]
    return any(section != key for section in sections)


def _add_sections(layout: dict[str, Any], key: str, held: dict[str, Any], where: str) -> None:
    """Add what `model` or `data` holds to the layout, in place."""
    for name, value in held.items():
        section, *below = layout_path((key, str(name)))
        if below:
            layout.setdefault(section, {})[name] = value
        else:
            _add_section(layout, section, value, f"{where}: {key}")


def _add_section(layout: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Add a section to the layout, in place; two sections of one name join."""
    present = layout.get(key)
    if present is None:
        layout[key] = value
        return
    if value is None or value == present:
        return

    if key in SHARED and isinstance(value, dict) != isinstance(present, dict):
        # A section of this project beside that of NeMo is the one that was written for it
        layout[key] = present if isinstance(value, dict) else value
        return

    for path, present_value, second_value in _conflicting_keys(key, present, value):
        raise ConfigError(
            f"{where}: {path} stands there twice, as {present_value!r} and as {second_value!r}; "
            "remove one of them"
        )

    layout[key] = merged(present, value)


def _conflicting_keys(path: str, first: Any, second: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key that two sections at `path` give two values: its path and both values."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in first.keys() & second.keys():
            yield from _conflicting_keys(f"{path}.{key}", first[key], second[key])
    elif first != second:
        yield path, first, second


def open_loader(section: Any, where: str) -> Any:
    """Return the keys of a loader; `section` may be the path of a yaml with them, or a list of
    sources.
    """
    if isinstance(section, str) and "${" not in section:
        name = where.rpartition(" ")[2]
        if not Path(section).is_file():
            raise ConfigError(f"{where}: {section}: no such file of keys of a loader")
        where, section = section, read_yaml(section)
        if isinstance(section, dict):
            content = laid_out(section, where)
            section = content.get(name, section)

    if isinstance(section, list):
        section = {"input_cfg": section}
    if section is not None and not isinstance(section, dict):
        raise ConfigError(
            f"{where}: expected keys of NeMo's loader or the path of a yaml, found {section!r}"
        )

    return section


def place_override(override: Override) -> Override:
    """Return an override of NeMo's part at its path in the layout."""
    path, value = layout_path(override.path), override.value
    if len(path) == 1 and path[0] in LOADERS and not override.removes:
        value = open_loader(value, f"--override_config {override.text}: {path[0]}")
    return Override(override.text, path, value, override.removes)
