"""The import graph between the packages of wenet_uio. Prints each package with the packages it
imports:

python tests/support/import_graph.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Graph = dict[str, dict[str, list[str]]]
"""importer -> imported -> the imports, as `module -> module`."""
ADDONS = "wenet_uio.addons"
COMMANDS = "wenet_uio.bin"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a statement that hold further statements."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((ROOT / "wenet_uio").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax of a file, which is parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(path: Path, *, typing: bool = True, lazy: bool = True) -> Iterator[ast.AST]:
    """All statements of a file; `typing` includes TYPE_CHECKING blocks, `lazy` those in functions."""
    todo: list[ast.AST] = [tree_of(path)]
    while todo:
        node = todo.pop()
        if not typing and _is_typing(node):
            continue
        if not lazy and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        for name in BLOCKS:
            todo += getattr(node, name, ())


def room_of(name: str, path: Path) -> str:
    """The package of a module. A module directly in wenet_uio, wenet_uio.base or wenet_uio.dataset
    counts as a package of its own.

    All encoders of the core are one package, and so are its families. All kinds of samples are one
    package. The config and its folder for NeMo's files are one package. All add-ons are one
    package, above the core.
    """
    if name.startswith("wenet_uio.addons"):
        return ADDONS
    if name.startswith("wenet_uio.config"):
        return "wenet_uio.config"
    if name.startswith("wenet_uio.dataset.kinds"):
        return "wenet_uio.dataset.kinds"
    if name.startswith("wenet_uio.families"):
        return "wenet_uio.families"
    if name.startswith("wenet_uio.models.encoders"):
        return "wenet_uio.models"
    parent = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return name if parent in ("wenet_uio", "wenet_uio.base", "wenet_uio.dataset") else parent


def imports_of(
    path: Path, names: dict[str, Path], *, typing: bool = True, lazy: bool = True
) -> set[str]:
    """The modules of the package that a file imports; `typing` and `lazy` as in `statements`."""
    found = set()
    for node in statements(path, typing=typing, lazy=lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {member if member in names else node.module for member in members}
    return found & names.keys()


def names_defined_in(path: Path) -> set[str]:
    """The names that a module defines itself, at its top."""
    names: set[str] = set()
    todo: list[ast.AST] = [tree_of(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                part.id
                for target in targets
                for part in ast.walk(target)
                if isinstance(part, ast.Name)
            }
        for name in BLOCKS:
            todo += getattr(node, name, ())
    return names


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def graph() -> Graph:
    """The imports between packages, without the public faces, which load names when they are
    used, and without add-ons that a command imports when it runs.
    """
    names, found = modules(), defaultdict(lambda: defaultdict(list))
    for name, path in names.items():
        if name in ("wenet_uio", "wenet_uio.dataset"):
            continue
        at_once = imports_of(path, names, typing=False, lazy=False)
        for imported in sorted(imports_of(path, names)):
            importer, target = room_of(name, path), room_of(imported, names[imported])
            if target == ADDONS and importer == COMMANDS and imported not in at_once:
                continue
            if importer != target:
                found[importer][target].append(f"{name} -> {imported}")
    return found


def main() -> None:
    for package, imported in sorted(graph().items()):
        print(f"{package}: {', '.join(sorted(imported))}")


if __name__ == "__main__":
    main()
