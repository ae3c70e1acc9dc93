"""Changes of a config on the command line, `key.subkey=value`, in the forms of this project, of
WeNet and of Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wenet_uio.base.messages import unsaid
from wenet_uio.config.base import ConfigError
from wenet_uio.config.yaml_file import parse_yaml

NAME = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")
"""A step of a path in brackets: `input_cfg[0].weight`."""
TIGHT = re.compile(r"([{,]\s*[A-Za-z_][\w.]*):(?=[^\s,}])")
"""A key and its value without a space, as Hydra writes mappings: `{audio:0.7,text:0.3}`."""


@dataclass(frozen=True)
class Override:
    """One change of a config."""

    text: str
    """As it was given, for messages."""
    path: tuple[str, ...]
    value: Any = None
    removes: bool = False
    """`~key` of Hydra: the key is removed."""

    def moved(self, path: tuple[str, ...]) -> Override:
        """Return the same change at another path."""
        return Override(self.text, path, self.value, self.removes)


def parse_overrides(texts: Iterable[str]) -> list[Override]:
    """Parse `key.subkey=value`, WeNet's `key.subkey value`, Hydra's `+key=value`, `++key=value` and
    `~key`.

    Raises:
        ConfigError: a text is none of them, or the value is not yaml.
    """
    return [_parse_override(text) for text in texts]


def _parse_override(text: str) -> Override:
    """Parse `key.subkey=value`, WeNet's `key.subkey value`, or `~key.subkey`, which removes a key.

    Raises:
        ConfigError: the text has another form.
    """
    if text.strip().startswith("~"):
        return Override(text, _split_path(text.strip()[1:].partition("=")[0]), removes=True)

    dotted, equals, value = text.partition("=")
    if not equals or " " in dotted.strip():  # "key value" is WeNet's form
        dotted, equals, value = text.strip().partition(" ")
    if not equals:
        raise ConfigError(f"--override_config {text}: expected key.subkey=value")

    path = _split_path(dotted.strip().lstrip("+"))
    if value.lstrip().startswith(("{", "[")):
        value = TIGHT.sub(r"\1: ", value)
    try:
        return Override(text, path, parse_yaml(value, path[-1]))
    except ConfigError:
        raise ConfigError(
            f"--override_config {text}: the value is not yaml; write a text as {path[-1]}='text'"
        ) from None


def _split_path(dotted: str) -> tuple[str, ...]:
    return tuple(NAME.sub(r".\1", dotted).split("."))


def name_causes(
    error: ConfigError,
    where: str,
    changes: Sequence[Override],
    load: Callable[[Sequence[Override]], object],
) -> ConfigError:
    """Return an error of a config that names the overrides which each problem comes from: those
    without which the problem is not there.

    Args:
        where: the config; the message of a problem that the overrides do not cause begins so.
        load: raises the errors of the config with some of the overrides.
    """
    problems = _split_problems(error, where)
    if not problems:
        return error

    remaining: dict[str, list[str]] = {}
    for text in dict.fromkeys(change.text for change in changes):
        others = [change for change in changes if change.text != text]
        remaining[text] = _remaining_problems(others, where, load)

    lines = [_name_cause(problem, problems, remaining) for problem in problems]
    if lines == problems:
        return error

    header = [f"{where}: {len(lines)} problems"] if len(lines) > 1 else []
    return ConfigError("\n  ".join([*header, *lines]))


def _name_cause(
    problem: str, problems: Collection[str], remaining: Mapping[str, Collection[str]]
) -> str:
    """Name the overrides of a problem.

    Args:
        problem: one of `problems`.
        problems: those with all overrides.
        remaining: the problems without each override.
    """
    without_problem = [text for text, others in remaining.items() if problem not in others]

    # Without an override that the config needs, another problem comes first and hides this one.
    causes = [text for text in without_problem if set(remaining[text]) <= set(problems)]
    if not causes:
        causes = [text for text in without_problem if _parse_override(text).path[-1] in problem]
    return f"--override_config {' '.join(causes)}: {problem}" if causes else problem


def _remaining_problems(
    changes: Sequence[Override], where: str, load: Callable[[Sequence[Override]], object]
) -> list[str]:
    """Return the problems that the config has with these overrides alone."""
    try:
        with unsaid():
            load(changes)
    except ConfigError as error:
        return _split_problems(error, where)
    return []


def _split_problems(error: ConfigError, where: str) -> list[str]:
    """Return the problems of an error of `parse`; none of an error that names an override already."""
    message = str(error)
    if not message.startswith(f"{where}: "):
        return []

    first, *several = message.removeprefix(f"{where}: ").split("\n  ")
    return several or [first]


def apply_override(values: dict[str, Any], override: Override, *, merges: bool = False) -> None:
    """Set the value that an override names, in place; sections that are missing are made.

    Args:
        merges: a mapping changes only the keys that it has, as in Hydra; else it takes the place of
            the section.

    Raises:
        ConfigError: the path leads through a value that is no section, past the end of a list, or
            to no key that could be removed.
    """
    *parents, last = override.path
    section: Any = values
    for parent in parents:
        section = _enter_section(section, parent, override)

    key = _key_in(section, last, override)
    if override.removes:
        if isinstance(section, dict) and key not in section:
            raise ConfigError(f"--override_config {override.text}: there is no key {key} to remove")
        del section[key]
    elif merges and isinstance(section, dict):
        section[key] = merged(section.get(key), override.value)
    else:
        section[key] = override.value


def merged(old: Any, new: Any) -> Any:
    """Return `new`; of two mappings one with the keys of both, in which those of `new` win."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def _enter_section(section: Any, parent: str, override: Override) -> Any:
    """Return the section or list under `parent`."""
    key = _key_in(section, parent, override)
    if isinstance(section, dict) and section.get(key) is None:
        section[key] = {}
    if not isinstance(section[key], (dict, list)):
        raise ConfigError(f"--override_config {override.text}: {parent} is a value, not a section")

    return section[key]


def _key_in(section: Any, name: str, override: Override) -> Any:
    """Return a name as a key of a mapping, or as a number in a list."""
    if isinstance(section, dict):
        return name
    if not name.isdecimal() or int(name) >= len(section):
        raise ConfigError(
            f"--override_config {override.text}: {name} is no number of the list, which has "
            f"{len(section)} items, from 0 on"
        )

    return int(name)
