"""References inside a yaml, `${model.sample_rate}`, as OmegaConf resolves them in NeMo's files.

A reference to a key that does not exist is no error by itself, because many keys of a file are not
read. It becomes an `Unresolved`, and reading the key is the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.yaml_file import parse_yaml

MISSING = "???"
"""A value that OmegaConf's users must give."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
RESOLVER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*:(.*)", re.DOTALL)
STEP = re.compile(r"\[\s*['\"]?([^\]'\"]+)['\"]?\s*\]|([^.\[\]]+)")
DOTTED = re.compile(r"\$\{\s*\.*([\w.]+)")
FIRST_NAME = re.compile(r"\$\{\s*(\w+)\s*[.\[}]")
MOST_STEPS = 100
"""References of references that are followed; more are a loop."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class Unresolved:
    """A value with a reference that cannot be resolved."""

    text: str
    """The value as it stands in the yaml."""
    problem: str


class _CannotResolveError(Exception):
    """A reference leads nowhere."""


def resolve_references(
    values: dict[str, Any], targets: Callable[[Path], Sequence[Path]]
) -> dict[str, Any]:
    """Return a yaml with the values that its references name.

    Supported are `${a.b}`, `${a[0]}`, `${.sibling}`, `${..key_of_the_section_above}`, references in
    references and in texts, `\\${` for a text `${`, and the resolvers oc.env, env, oc.decode,
    oc.select and oc.deprecated.

    Args:
        values: content of the yaml; it is not changed.
        targets: returns the paths in `values` that the path in a reference may mean; the first that
            exists is taken.
    """
    return _Resolver(values, targets).resolve_value((), values, 0)


def names_referred_to(value: Any) -> set[str]:
    """Return the first name of each reference in a value: `model` for `${model.sample_rate}`."""
    if isinstance(value, str):
        return set(FIRST_NAME.findall(value))
    return {name for _, part in _child_values(value) for name in names_referred_to(part)}


def is_referred_to(path: Path, value: Any) -> bool:
    """Tell whether a reference in a value names the key at a path, a key inside of it, or a section
    around it. A relative reference, `${..rate}`, is taken to mean every key of that name.
    """
    if not isinstance(value, str):
        return any(is_referred_to(path, part) for _, part in _child_values(value))

    for dotted in DOTTED.findall(value):
        steps = tuple(dotted.split("."))
        # A reference may leave out the first key of the path, such as `model`.
        for target in (path, path[1:]):
            common = min(len(target), len(steps))
            if target and target[:common] == steps[:common]:
                return True

    return False


def unresolved_in(value: Any, path: Path = ()) -> Iterator[tuple[str, Unresolved]]:
    """Yield each Unresolved in a value, with its dotted path."""
    if isinstance(value, Unresolved):
        yield ".".join(path), value
    for key, part in _child_values(value):
        yield from unresolved_in(part, (*path, key))


def missing_in(value: Any, path: Path = ()) -> Iterator[str]:
    """Yield the dotted path of each MISSING in a value."""
    if value == MISSING:
        yield ".".join(path)
    for key, part in _child_values(value):
        yield from missing_in(part, (*path, key))


def refuse_unresolved(value: Any, where: str) -> None:
    """Raise a ConfigError if a value has references that cannot be resolved."""
    problems = [f"{key}: {bad.text}: {bad.problem}" for key, bad in unresolved_in(value)]
    if problems:
        raise ConfigError(f"{where}: " + "; ".join(problem.lstrip(": ") for problem in problems))


def _child_values(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list):
        yield from ((str(number), part) for number, part in enumerate(value))


@dataclass(frozen=True)
class _Resolver:
    values: dict[str, Any]
    targets: Callable[[Path], Sequence[Path]]

    def resolve_value(self, path: Path, value: Any, depth: int) -> Any:
        """Return a value at `path` with its references resolved."""
        if isinstance(value, dict):
            return {
                key: self.resolve_value((*path, str(key)), part, depth)
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [
                self.resolve_value((*path, str(number)), part, depth)
                for number, part in enumerate(value)
            ]
        if not isinstance(value, str) or "${" not in value:
            return value

        try:
            return self._resolve_text(value, path, depth)
        except _CannotResolveError as problem:
            return Unresolved(value, str(problem))

    def _resolve_text(self, text: str, path: Path, depth: int) -> Any:
        """Return the value of a text: of any type if the text is one reference."""
        if depth > MOST_STEPS:
            raise _CannotResolveError("the references lead back to themselves")

        parts: list[Any] = []
        for part, is_reference in _split_at_references(text):
            parts.append(self._resolve_reference(part, path, depth) if is_reference else part)

        if len(parts) == 1:
            return parts[0]
        for part in parts:
            if isinstance(part, Unresolved):
                raise _CannotResolveError(part.problem)
        if MISSING in parts:
            return MISSING

        return "".join(map(str, parts))

    def _resolve_reference(self, inside: str, path: Path, depth: int) -> Any:
        """Return what stands for `${inside}` in the value at `path`.

        `inside` is the path of a key, or `resolver:arguments`; both may have references themselves.
        """
        name = inside
        if "${" in inside:
            name = str(self._resolve_text(inside, path, depth + 1))

        call = RESOLVER.fullmatch(name)
        if call is not None:
            resolver, arguments = call.groups()
            return self._call_resolver(resolver, arguments.strip(), path, depth)

        target, value = self._find_target(name.strip(), path)
        return self.resolve_value(target, value, depth + 1)

    def _find_target(self, name: str, path: Path) -> tuple[Path, Any]:
        """Return the path and the value of a key that a reference in the value at `path` names.

        Dots before the name lead up from `path`: one to the section of the value, two to that above.
        """
        dots = len(name) - len(name.lstrip("."))
        named_path = path[: max(0, len(path) - dots)] if dots else ()
        for match in STEP.finditer(name[dots:]):  # `a`, or `[a]` or `["a"]`
            step = match[1] or match[2]
            named_path = (*named_path, step.strip())

        targets = self.targets(named_path) if named_path else ()
        for target in targets:
            try:
                return target, self._value_at(target)
            except LookupError:
                continue

        raise _CannotResolveError(f"the file has no key {name}; write the value itself")

    def _value_at(self, target: Path) -> Any:
        """Return the value at a path; LookupError if there is none."""
        value: Any = self.values
        for step in target:
            if isinstance(value, list) and step.isdecimal():
                value = value[int(step)]
            elif isinstance(value, dict):
                value = value[step]
            else:
                raise LookupError(step)

        return value

    def _call_resolver(self, resolver: str, arguments: str, path: Path, depth: int) -> Any:
        """Return the value of `${resolver:arguments}`."""
        if resolver in ("oc.env", "env"):
            return _environment_value(arguments)
        if resolver == "oc.decode":
            return parse_yaml(arguments, "oc.decode")
        if resolver in ("oc.select", "oc.deprecated"):
            name, comma, default = arguments.partition(",")
            try:
                return self._resolve_reference(name.strip(), path, depth)
            except _CannotResolveError:
                if resolver == "oc.select":
                    return parse_yaml(default, "oc.select") if comma else None
                raise

        raise _CannotResolveError(
            f"the resolver {resolver} is unknown; known: oc.env, oc.select, oc.decode; write the "
            "value itself"
        )


def _environment_value(arguments: str) -> Any:
    """Return a variable of the environment; numbers and true, false and null as such."""
    name, comma, default = (part.strip() for part in arguments.partition(","))
    text = os.environ.get(name)
    if text is None and comma:
        text = default
    if text is None:
        raise _CannotResolveError(f"the variable {name} is not set; set it, or write the value")

    is_plain = NUMBER.fullmatch(text) or text in ("true", "false", "null")
    return parse_yaml(text, name) if is_plain else text.strip("'\"")


def _split_at_references(text: str) -> list[tuple[str, bool]]:
    """Cut a text into (part, whether it is the inside of a reference)."""
    parts: list[tuple[str, bool]] = []
    literal, position = "", 0
    while position < len(text):
        if text.startswith("\\${", position):  # an escape: the text has `${`
            literal += "${"
            position += len("\\${")
        elif text.startswith("${", position):
            if literal:
                parts.append((literal, False))
                literal = ""
            end = _closing_brace(text, position)
            parts.append((text[position + len("${") : end], True))
            position = end + 1
        else:
            literal += text[position]
            position += 1

    if literal:
        parts.append((literal, False))
    return parts


def _closing_brace(text: str, start: int) -> int:
    """Return the position of the brace that closes the reference at `start`."""
    open_braces = 0
    for position in range(start, len(text)):
        if text[position] == "{":
            open_braces += 1
        elif text[position] == "}":
            open_braces -= 1
            if not open_braces:
                return position

    raise _CannotResolveError("the reference has no closing brace")
