"""Base of all config sections: unknown keys are errors, values are frozen, all problems are
reported at once.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from wenet_uio.base.messages import nearest_name

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
AboveZero = Annotated[float, Field(gt=0)]
ZeroOrMore = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
ProperShare = Annotated[float, Field(gt=0, lt=1)]
TYPE_NAME = re.compile(
    r"(int|float|str|bool|none|dict|tuple|list|set|nullable|literal|function-\w+|constrained-\w+"
    r"|[A-Z]\w*)(\[.*\])?"
)
"""Names of types in pydantic's paths; keys of the yaml have others."""


WORDS = (
    ("Value error, ", ""),
    ("Input should be ", "expected "),
    (" or expected ", " or "),
    (r"a valid (\w+)(, unable [^,]*? (input|string as an? \w+))?", r"a \1"),
    (r" or instance of \w+", ""),
    (r"\ba integer", "an integer"),
    (r"\ba tuple", "a list"),
    ("expected (greater|less) than", r"expected a number \1 than"),
)
"""(pattern of pydantic's messages, our words)."""


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

    paths_with_problems: set[tuple[Any, ...]] = set()  # of values that have a problem inside
    for problem in errors:
        for depth in range(len(problem["loc"])):
            paths_with_problems.add(problem["loc"][:depth])

    # A list is too short if its only items are bad: the bad items say all.
    causes = [
        cause
        for cause in errors
        if cause["type"] != "too_short" or cause["loc"] not in paths_with_problems
    ]
    problems = [_describe_problem(section, problem) for problem in _merge_branches(causes, values)]
    if len(problems) == 1:
        raise ConfigError(f"{where}: {problems[0]}")

    raise ConfigError("\n  ".join([f"{where}: {len(problems)} problems", *problems]))


def _merge_branches(problems: list[ErrorDetails], values: Any) -> list[ErrorDetails]:
    """Return one problem for each value, with paths of the yaml.

    A value that may have several types has a problem for each of them, and pydantic's name of the
    type in its path. The types that fit best say all.
    """
    of_value: dict[tuple[Any, ...], list[ErrorDetails]] = {}
    for problem in problems:
        branch, path = _path_in_yaml(problem["loc"], values)
        of_value.setdefault(path if branch is None else branch, []).append({**problem, "loc": path})

    merged: list[ErrorDetails] = []
    for problems_of_value in of_value.values():
        merged += _deepest_problems(problems_of_value)

    return merged


def _path_in_yaml(loc: tuple[Any, ...], values: Any) -> tuple[tuple[Any, ...] | None, tuple]:
    """Return the path of the value that has several types, if any, and the path of the problem."""
    branch, path = None, []
    for part in loc:
        is_key = isinstance(values, dict) and part in values
        if not is_key and isinstance(part, str) and TYPE_NAME.fullmatch(part):
            branch = branch or tuple(path)
            continue

        path.append(part)
        is_list = isinstance(values, (list, tuple))
        is_item = is_list and isinstance(part, int) and part < len(values)
        values = values[part] if is_key or is_item else None

    return branch, tuple(path)


def _deepest_problems(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the problems that are deepest in the value; those of one path as one."""
    depth = max(len(problem["loc"]) for problem in problems)
    problems_by_path: dict[tuple[Any, ...], list[ErrorDetails]] = {}
    for problem in problems:
        if len(problem["loc"]) == depth:
            problems_by_path.setdefault(problem["loc"], []).append(problem)

    joined: list[ErrorDetails] = []
    for problems_of_path in problems_by_path.values():
        messages = dict.fromkeys(problem["msg"] for problem in problems_of_path)
        joined.append({**problems_of_path[0], "msg": " or ".join(messages)})

    return joined


def _describe_problem(section: type[Section], problem: ErrorDetails) -> str:
    """Return the line of an error message for a problem that pydantic found in `section`."""
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        *path_of_parent, key = problem["loc"]
        parents = _sections_at(section, tuple(path_of_parent))
        if str(key) in section.model_fields and section not in parents:
            return f"{path}: unknown key; it belongs to the top level"
        return f"{path}: unknown key; {_unknown_key_hint(str(key), parents)}"
    if problem["type"] == "missing":
        return f"{path}: required key is missing"

    message = problem["msg"]
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    if not isinstance(problem["input"], dict):
        message += f", found {reprlib.repr(problem['input'])}"
    if problem["type"] == "literal_error":
        values = re.findall("'([^']*)'", problem["msg"])
        nearest = nearest_name(str(problem["input"]), values)
        message += f"; did you mean {nearest!r}?" if nearest else ""

    return f"{path}: {message}" if path else message


def _unknown_key_hint(key: str, sections: list[type[Section]]) -> str:
    """Return where an unknown key belongs, else the key that was probably meant, else all keys of
    the sections.
    """
    fields: dict[str, FieldInfo] = {}
    for section in sections:
        fields |= section.model_fields

    owners: list[str] = []
    for name, field in fields.items():
        children = _member_sections(field.annotation)
        if any(key in child.model_fields for child in children):
            owners.append(name)

    if owners:
        return f"it belongs to {' or '.join(owners)}"

    nearest = nearest_name(key, fields)
    return f"did you mean {nearest!r}?" if nearest else "known: " + ", ".join(sorted(fields))


def _sections_at(section: type[Section], loc: tuple[Any, ...]) -> list[type[Section]]:
    """Return the section at the path `loc` below `section`; several if it is one of a union."""
    candidates: list[type[Section]] = [section]
    for part in loc:
        children: list[type[Section]] = []
        for candidate in candidates:
            if part in candidate.model_fields:
                children += _member_sections(candidate.model_fields[part].annotation)

        candidates = children or candidates  # a tag of a union or an index of a list is no field

    return candidates


def _member_sections(annotation: Any) -> list[type[Section]]:
    """Return the sections that a value of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation.variants()

    members: list[type[Section]] = []
    for argument in get_args(annotation):
        members += _member_sections(argument)

    return members


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
