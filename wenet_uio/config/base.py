"""Base of all config sections: unknown keys are errors, values are frozen, all problems are
reported at once.
"""

from __future__ import annotations

import difflib
import reprlib
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


class ConfigError(ValueError):
    """A config with errors; the message lists every problem on a line of its own."""


class Section(BaseModel):
    """A group of yaml keys. Unknown keys are errors, values are frozen, and only sections define
    defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @classmethod
    def variants(cls) -> list[type[Section]]:
        """Return the sections that a field of this class may hold: the class itself, or others
        that the values choose.
        """
        return [cls]


def parse(section: type[Section], values: dict[str, Any], where: str) -> Any:
    """Validate `values` as `section`; error messages begin with `where`, such as a file name.

    Raises:
        ConfigError: names each bad key by its dotted path, the value found, and the nearest valid
            name.
    """
    try:
        return section.model_validate(values)
    except ValidationError as error:
        errors = error.errors()

    inside = {problem["loc"][:depth] for problem in errors for depth in range(len(problem["loc"]))}
    # A list is too short if its only items are bad: the bad items say all.
    causes = [
        cause for cause in errors if cause["type"] != "too_short" or cause["loc"] not in inside
    ]
    problems = [_describe(section, problem) for problem in causes]
    if len(problems) == 1:
        raise ConfigError(f"{where}: {problems[0]}")

    raise ConfigError("\n  ".join([f"{where}: {len(problems)} problems", *problems]))


def _describe(section: type[Section], problem: ErrorDetails) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        return f"{path}: unknown key; {_hint(key, _sections_at(section, problem['loc'][:-1]))}"
    if problem["type"] == "missing":
        return f"{path}: required key is missing"

    ending = (
        f", found {reprlib.repr(problem['input'])}"
        if not isinstance(problem["input"], dict)
        else ""
    )
    return f"{path}: {problem['msg']}{ending}" if path else f"{problem['msg']}{ending}"


def _hint(key: str, sections: list[type[Section]]) -> str:
    """Return where an unknown key belongs, else the key that was probably meant, else all keys of
    the sections.
    """
    fields = {name: field for section in sections for name, field in section.model_fields.items()}
    owners = [
        name
        for name, field in fields.items()
        if any(key in child.model_fields for child in _sections_in(field.annotation))
    ]
    if owners:
        return f"it belongs to {' or '.join(owners)}"

    nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if nearest else "known: " + ", ".join(sorted(fields))


def _sections_at(section: type[Section], loc: tuple[Any, ...]) -> list[type[Section]]:
    """Return the section at the path `loc` below `section`; several if it is one of a union."""
    candidates: list[type[Section]] = [section]
    for part in loc:
        children = [
            child
            for candidate in candidates
            if part in candidate.model_fields
            for child in _sections_in(candidate.model_fields[part].annotation)
        ]
        candidates = children or candidates  # a tag of a union or an index of a list is no field

    return candidates


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation.variants()
    if get_origin(annotation) in (Union, UnionType, list, tuple, dict) or get_args(annotation):
        return [child for argument in get_args(annotation) for child in _sections_in(argument)]
    return []
