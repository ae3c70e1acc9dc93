"""Pages of the Python API: the public names of a package with their signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from docs.generator.markdown import code, escaped, paragraphs, table
from wenet_uio.base.imports import installed
from wenet_uio.base.options import field_docs

FACES = {
    "dataset.md": (
        "wenet_uio.dataset",
        "The data layer",
        "from wenet_uio.dataset import build_loader",
    ),
    "recogniser.md": ("wenet_uio", "The recogniser", "import wenet_uio"),
}
"""{page: (package, title, how it is imported)}."""
SPECIAL = ("__iter__", "__len__")
"""Special methods that are described: those that users call through `for` and `len`."""
SECTION = re.compile(r"(Args|Returns|Raises):(?: (.*))?$")
FACTORY = re.compile(r"field\(default_factory=(\w+)\)")
TITLES = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises"}
LINE = 80
"""Longest signature on one line: the text column of the pages, without a scroll bar."""


def api_pages() -> dict[str, str]:
    """Return {page: Markdown} of the packages in FACES."""
    return {page: _page(*face) for page, face in FACES.items()}


def _page(package: str, title: str, imported: str) -> str:
    face = import_module(package)
    names = [name for name in face.__all__ if not name.startswith("__")]
    members = dict(installed(names, partial(getattr, face)))
    parts = [
        f"# {title} in Python",
        f"The public names of `{package}`, from their docstrings. They are loaded when they are "
        "used: the import alone "
        "does not import torch. Other names may change in any version.",
        f"```python\n{imported}\n```",
    ]
    for name, member in members.items():
        parts.append(f"## {name}")
        parts += _class(name, member) if inspect.isclass(member) else _function(name, member)

    return "\n\n".join(filter(None, parts)) + "\n"


def _function(name: str, function: Callable) -> list[str]:
    return [_signature(name, _definition(function)), docstring(inspect.getdoc(function) or "")]


def _class(name: str, kind: type) -> list[str]:
    fields = _fields(kind)
    parts = [docstring(inspect.cleandoc(kind.__doc__ or ""))]
    if fields:
        rows = [
            [code(field), code(of), code(default), escaped(meaning)]
            for field, of, default, meaning in fields
        ]
        parts.append(table(("field", "type", "default", "meaning"), rows))
    elif "__init__" in vars(kind):
        made = vars(kind)["__init__"]
        parts += [
            _signature(name, _definition(made)),
            docstring(inspect.cleandoc(made.__doc__ or "")),
        ]

    for method, value in _members(kind):
        parts.append(f"### {name}.{method}".replace("__", r"\_\_"))
        if isinstance(value, property):
            parts.append("A property.\n\n" + docstring(inspect.getdoc(value.fget) or ""))
        else:
            parts += _function(method, getattr(value, "__func__", value))

    return parts


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with docstrings, of the class and of its bases in this
    project.
    """
    members: dict[str, Any] = {}
    for owner in _own_classes(kind):
        members = vars(owner) | members

    for name, value in members.items():
        value = property(value.func) if isinstance(value, cached_property) else value
        if _is_described(name, value):
            yield name, value


def _is_described(name: str, value: Any) -> bool:
    """Tell whether a member of a class is a public method or property with a docstring."""
    if name.startswith("_") and name not in SPECIAL:
        return False

    is_member = inspect.isfunction(value) or isinstance(
        value, (property, classmethod, staticmethod)
    )
    return is_member and bool(inspect.getdoc(getattr(value, "fget", None) or value))


def _own_classes(kind: type) -> Iterator[type]:
    """Yield the class and its bases in this project, in the order in which Python searches them."""
    yield from (owner for owner in kind.__mro__ if owner.__module__.startswith("wenet_uio"))


def _fields(kind: type) -> list[tuple[str, str, str, str]]:
    """Return (name, type, default, meaning) of the fields of a dataclass or a named tuple."""
    names = (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else ()
    )
    names = getattr(kind, "_fields", names)
    by_name: dict[str, tuple[str, str, str, str]] = {}
    for owner in _own_classes(kind) if names else ():
        by_name = _fields_of(owner) | by_name

    return [by_name[name] for name in names if name in by_name]


def _fields_of(owner: type) -> dict[str, tuple[str, str, str, str]]:
    """Return {name: field} that the class itself defines."""
    docs, by_name = field_docs(owner), {}
    for line in _parsed(owner).body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name, value = line.target.id, line.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "option":
                value = value.args[0]

            default = FACTORY.sub(r"\1()", ast.unparse(value)) if value else "required"
            by_name[name] = (name, ast.unparse(line.annotation), default, docs.get(name, ""))

    return by_name


def _signature(name: str, function: ast.FunctionDef) -> str:
    """Return the call as a block of code."""
    arguments = [
        argument for argument in _arguments(function.args) if argument not in ("self", "cls")
    ]
    result = (
        f" -> {ast.unparse(function.returns)}"
        if function.returns and function.name != "__init__"
        else ""
    )
    line = f"{name}({', '.join(arguments)}){result}"
    if len(line) > LINE:
        line = f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){result}"

    return f"```text\n{line}\n```"


def _arguments(signature: ast.arguments) -> Iterator[str]:
    usual = [*signature.posonlyargs, *signature.args]
    defaults = [None] * (len(usual) - len(signature.defaults)) + list(signature.defaults)
    yield from map(_argument, usual, defaults)
    if signature.vararg or signature.kwonlyargs:
        yield f"*{ast.unparse(signature.vararg) if signature.vararg else ''}"

    yield from map(_argument, signature.kwonlyargs, signature.kw_defaults)
    if signature.kwarg:
        yield f"**{ast.unparse(signature.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _definition(function: Callable) -> ast.FunctionDef:
    parsed = _parsed(function)
    assert isinstance(parsed, ast.FunctionDef)
    return parsed


def _parsed(part: Any) -> Any:
    """Return the syntax tree of a class or function."""
    return ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]


def docstring(text: str) -> str:
    """Markdown of a docstring: Args, Returns and Raises become lists."""
    parts: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text):
        head, *lines = block.split("\n")
        if match := SECTION.match(head):
            parts.append(f"**{TITLES[match[1]]}**" + (f": {escaped(match[2])}" if match[2] else ""))
            parts += _items(lines, named=match[1] != "Returns")
        else:
            parts.append(paragraphs(block))

    return "\n\n".join(parts)


def _items(lines: list[str], *, named: bool) -> list[str]:
    """Return the entries of a section as one list; what is indented further continues an entry."""
    joined = textwrap.dedent("\n".join(lines))
    if not joined:
        return []

    items = [" ".join(each.split()) for each in re.split(r"\n(?=\S)", joined)]
    if not named:
        return [escaped(" ".join(items))]

    pairs = [item.partition(": ") for item in items]
    return ["\n".join(f"- {code(name)}: {escaped(text)}" for name, _, text in pairs)]
