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
        removed_key, _, _ = text.strip()[1:].partition("=")
        return Override(text, _split_path(removed_key), removes=True)

    dotted_key, separator, value = text.partition("=")
    if not separator or " " in dotted_key.strip():  # WeNet's form, whose value may have a `=`
        dotted_key, separator, value = text.strip().partition(" ")
    if not separator:
        raise ConfigError(f"--override_config {text}: expected key.subkey=value")

    path = _split_path(dotted_key.strip().lstrip("+"))
    if value.lstrip().startswith(("{", "[")):
        value = TIGHT.sub(r"\1: ", value)  # yaml needs a space after the colon
    try:
        return Override(text, path, parse_yaml(value, path[-1]))
    except ConfigError:
        raise ConfigError(
            f"--override_config {text}: the value is not yaml; write a text as {path[-1]}='text'"
        ) from None


def _split_path(dotted_key: str) -> tuple[str, ...]:
    """Return the keys of `a.b[0].c`: a, b, 0 and c."""
    return tuple(NAME.sub(r".\1", dotted_key).split("."))


def name_causes(
    error: ConfigError,
    where: str,
    changes: Sequence[Override],
    load: Callable[[Sequence[Override]], object],
) -> ConfigError:
    """Return `error` with the overrides that cause each of its problems: those without which the
    problem is not there. To find them, the config is loaded once without each override.

    Args:
        error: of the config with all overrides.
        where: path of the yaml, with which messages begin.
        changes: the overrides.
        load: loads the config with the overrides that it gets; it raises a ConfigError.
    """
    problems = _split_problems(error, where)
    if not problems:
        return error

    problems_without: dict[str, list[str]] = {}  # each override
    for text in dict.fromkeys(change.text for change in changes):
        others = [change for change in changes if change.text != text]
        problems_without[text] = _find_problems(others, where, load)

    lines = [_name_cause(problem, problems, problems_without) for problem in problems]
    if lines == problems:
        return error

    header = [f"{where}: {len(lines)} problems"] if len(lines) > 1 else []
    return ConfigError("\n  ".join([*header, *lines]))


def _name_cause(
    problem: str, problems: Collection[str], problems_without: Mapping[str, Collection[str]]
) -> str:
    """Return a problem of a config behind the overrides that cause it.

    Args:
        problem: one of `problems`.
        problems: those with all overrides.
        problems_without: {text of an override: problems of the config without it}.
    """
    candidates = [text for text, others in problems_without.items() if problem not in others]

    # Without an override that the config needs, a new problem comes first and hides this one. Such
    # an override is no cause, unless the problem names its key.
    causes = [text for text in candidates if set(problems_without[text]) <= set(problems)]
    if not causes:
        causes = [text for text in candidates if _parse_override(text).path[-1] in problem]
    if not causes:
        return problem
    return f"--override_config {' '.join(causes)}: {problem}"


def _find_problems(
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
    """Return the problems that the message of an error lists, without `where`, with which it begins;
    none if it begins with an override already.
    """
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

    key = _key_or_index(section, last, override)
    if override.removes:
        if isinstance(section, dict) and key not in section:
            raise ConfigError(f"--override_config {override.text}: there is no key {key} to remove")
        del section[key]
    elif merges and isinstance(section, dict):
        section[key] = merged(section.get(key), override.value)
    else:
        section[key] = override.value


def merged(old: Any, new: Any) -> Any:
    """Return `new`, or if both are mappings, one with the keys of both. A key of both has the merged
    values.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new

    result = dict(old)
    for key, value in new.items():
        result[key] = merged(old.get(key), value)

    return result


def _enter_section(section: Any, parent: str, override: Override) -> Any:
    """Return the section or list under the key `parent` of a section; a missing one is made."""
    key = _key_or_index(section, parent, override)
    if isinstance(section, dict) and section.get(key) is None:
        section[key] = {}
    if not isinstance(section[key], (dict, list)):
        raise ConfigError(f"--override_config {override.text}: {parent} is a value, not a section")

    return section[key]


def _key_or_index(section: Any, name: str, override: Override) -> Any:
    """Return `name` as it is if the section is a mapping, as an index if it is a list."""
    if isinstance(section, dict):
        return name
    if not name.isdecimal() or int(name) >= len(section):
        raise ConfigError(
            f"--override_config {override.text}: {name} is no number of the list, which has "
            f"{len(section)} items, from 0 on"
        )

    return int(name)
