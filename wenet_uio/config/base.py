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

    problems = _join_problems_of_types(_drop_short_lists(errors), values)
    lines = [_describe_problem(section, problem) for problem in problems]
    if len(lines) == 1:
        raise ConfigError(f"{where}: {lines[0]}")

    raise ConfigError("\n  ".join([f"{where}: {len(lines)} problems", *lines]))


def _drop_short_lists(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the problems without those of lists that pydantic calls too short only because their
    items are bad: it leaves bad items out when it counts.
    """
    paths_above_problems: set[tuple[Any, ...]] = set()
    for problem in problems:
        path = problem["loc"]
        for length in range(len(path)):
            paths_above_problems.add(path[:length])

    remaining: list[ErrorDetails] = []
    for problem in problems:
        has_bad_items = problem["loc"] in paths_above_problems
        if problem["type"] != "too_short" or not has_bad_items:
            remaining.append(problem)

    return remaining


def _join_problems_of_types(problems: list[ErrorDetails], values: Any) -> list[ErrorDetails]:
    """Return one problem for each value of the yaml `values`, with the path that it has there.

    If a value may have several types, pydantic reports a problem for each type, and puts the name of
    the type into the path. Only the types that fit best are kept: their problems are the deepest.
    """
    problems_by_value: dict[tuple[Any, ...], list[ErrorDetails]] = {}
    for problem in problems:
        path_of_union, path = _path_in_yaml(problem["loc"], values)
        path_of_value = path if path_of_union is None else path_of_union
        problems_by_value.setdefault(path_of_value, []).append({**problem, "loc": path})

    joined: list[ErrorDetails] = []
    for problems_of_value in problems_by_value.values():
        joined += _join_deepest(problems_of_value)

    return joined


def _path_in_yaml(loc: tuple[Any, ...], value: Any) -> tuple[tuple[Any, ...] | None, tuple]:
    """Take the names of types out of the path of a problem, such as `tuple[float,...]` in
    `("optim_conf", "lr", "tuple[float,...]", 1)`.

    Returns:
        the path of the outermost value that may have several types, None if there is none; and the
        path of the problem in `value`, the content of the yaml.
    """
    path_of_union: tuple[Any, ...] | None = None
    path: list[Any] = []
    for step in loc:
        is_key = isinstance(value, dict) and step in value
        if not is_key and isinstance(step, str) and TYPE_NAME.fullmatch(step):
            path_of_union = path_of_union or tuple(path)
            continue

        path.append(step)
        is_list = isinstance(value, (list, tuple))
        is_item = is_list and isinstance(step, int) and step < len(value)
        value = value[step] if is_key or is_item else None

    return path_of_union, tuple(path)


def _join_deepest(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the problems with the longest paths; those with the same path become one, whose
    message joins theirs by `or`.
    """
    depth = max(len(problem["loc"]) for problem in problems)
    problems_by_path: dict[tuple[Any, ...], list[ErrorDetails]] = {}
    for problem in problems:
        path = problem["loc"]
        if len(path) == depth:
            problems_by_path.setdefault(path, []).append(problem)

    joined: list[ErrorDetails] = []
    for problems_of_path in problems_by_path.values():
        messages = dict.fromkeys(problem["msg"] for problem in problems_of_path)
        joined.append({**problems_of_path[0], "msg": " or ".join(messages)})

    return joined


def _describe_problem(section: type[Section], problem: ErrorDetails) -> str:
    """Return the line of an error message for a problem that pydantic found in `section`."""
    path = ".".join(str(step) for step in problem["loc"])
    if problem["type"] == "extra_forbidden":
        *path_of_parent, key = problem["loc"]
        parents = _sections_at(section, tuple(path_of_parent))
        if str(key) in section.model_fields and section not in parents:
            return f"{path}: unknown key; it belongs to the top level"
        return f"{path}: unknown key; {_unknown_key_hint(str(key), parents)}"
    if problem["type"] == "missing":
        return f"{path}: required key is missing"

    # Other problems keep pydantic's message, in plainer words.
    message = problem["msg"]
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    if not isinstance(problem["input"], dict):
        message += f", found {reprlib.repr(problem['input'])}"
    if problem["type"] == "literal_error":
        possible_values = re.findall("'([^']*)'", problem["msg"])
        nearest = nearest_name(str(problem["input"]), possible_values)
        if nearest:
            message += f"; did you mean {nearest!r}?"

    return f"{path}: {message}" if path else message


def _unknown_key_hint(key: str, sections: list[type[Section]]) -> str:
    """Return how to mend an unknown key: the section inside `sections` that has it, else the key
    that was probably meant, else all keys of the sections.
    """
    fields: dict[str, FieldInfo] = {}
    for section in sections:
        fields.update(section.model_fields)

    owners: list[str] = []  # keys whose sections have the unknown key
    for name, field in fields.items():
        children = _member_sections(field.annotation)
        if any(key in child.model_fields for child in children):
            owners.append(name)

    if owners:
        return f"it belongs to {' or '.join(owners)}"

    nearest = nearest_name(key, fields)
    if nearest:
        return f"did you mean {nearest!r}?"
    return "known: " + ", ".join(sorted(fields))


def _sections_at(section: type[Section], path: tuple[Any, ...]) -> list[type[Section]]:
    """Return the classes that the section at `path` below `section` may have."""
    candidates: list[type[Section]] = [section]
    for step in path:
        children: list[type[Section]] = []
        for candidate in candidates:
            field = candidate.model_fields.get(step)
            if field is not None:
                children += _member_sections(field.annotation)

        # A step may also be an index of a list: the classes of an item are those of the list.
        candidates = children or candidates

    return candidates


def _member_sections(annotation: Any) -> list[type[Section]]:
    """Return the sections that a value of a type, such as `tuple[AConf | BConf, ...]`, may hold."""
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
    if nearest:
        raise ValueError(f"unknown; did you mean {nearest!r}?")
    raise ValueError(f"unknown; known: {', '.join(known)}")
