"""The packages of wenet_uio import each other in one direction; no function has more than twenty branches."""

from __future__ import annotations

import ast
from pathlib import Path

from radon.complexity import cc_rank, cc_visit_ast

from tests.support.import_graph import (
    graph,
    imports_of,
    modules,
    names_defined_in,
    room_of,
    statements,
    tree_of,
)

ROOT = Path(__file__).resolve().parents[1]
FLOORS = """
wenet_uio base.imports base.messages base.uris base.hub_address base.memory base.files base.options base.crashes
base.cli commands base.executor base.run_files base.pages base
config audio text scoring
dataset.batch_memory dataset.types dataset.randomness dataset.lengths
dataset.storage dataset.formats dataset.corpus dataset.plan dataset.chain
dataset.ledger dataset.options dataset.cursor dataset.sources dataset.kinds dataset.reader
dataset.workers dataset.loader dataset.open dataset.dataset dataset
prepare prepare.diagnose models search export train families bin __main__ addons
"""
LOWEST_FIRST: list[str] = list(FLOORS.split())
"""A package imports only packages that stand before it in this list."""
SOURCES = [
    path
    for part in ("wenet_uio", "tools", "lab/benchmark", "examples", "docs", "tests")
    for path in (ROOT / part).rglob("*.py")
]
SOURCES += [*ROOT.glob("lab/guarantees/*.py"), *ROOT.glob("lab/guarantees/adapters/*.py")]


def short(package: str) -> str:
    return package.removeprefix("wenet_uio.")


def test_every_package_has_its_place():
    assert {short(room_of(name, path)) for name, path in modules().items()} == set(LOWEST_FIRST)


def test_a_package_imports_only_packages_below_it():
    upward = [
        each
        for importer, imported in graph().items()
        for target, imports in imported.items()
        if LOWEST_FIRST.index(short(target)) >= LOWEST_FIRST.index(short(importer))
        for each in imports
    ]
    assert upward == []


def test_no_two_modules_import_each_other():
    names = modules()
    imports = {name: imports_of(path, names, typing=False) for name, path in names.items()}
    left = dict(imports)
    while leaves := [name for name, needed in left.items() if not needed & left.keys() - {name}]:
        for name in leaves:
            del left[name]
    assert sorted(left) == []


def test_no_two_modules_name_each_other_in_annotations():
    """As the test above, with imports for types. Public faces are left out: their imports for types
    are the names that they load when they are used.
    """
    every = modules()
    names = {name: path for name, path in every.items() if path.name != "__init__.py"}
    imports = {name: imports_of(path, every) & names.keys() for name, path in names.items()}
    left = dict(imports)
    while leaves := [name for name, needed in left.items() if not needed & left.keys() - {name}]:
        for name in leaves:
            del left[name]
    assert sorted(left) == []


def test_the_package_imports_nothing_of_its_users():
    users = ("tools", "lab", "examples", "tests")
    for path in modules().values():
        for node in statements(path):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in named if name.split(".")[0] in users], path


def test_a_name_is_imported_from_the_module_that_defines_it():
    """Public faces (`wenet_uio`, `wenet_uio.config`, ...) give names of their modules to users."""
    names = modules()
    defined = {name: names_defined_in(path) for name, path in names.items()}
    borrowed = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name} from {node.module}"
        for path in SOURCES
        for node in statements(path)
        if isinstance(node, ast.ImportFrom) and node.module in names
        if names[node.module].name != "__init__.py"
        for alias in node.names
        if alias.name not in defined[node.module]
    ]
    assert borrowed == []


def test_no_function_has_more_than_twenty_branches():
    found = [
        f"{path.relative_to(ROOT)}: {block.fullname}"
        for path in SOURCES
        if not path.is_relative_to(ROOT / "tests")
        for block in cc_visit_ast(tree_of(path))
        if cc_rank(block.complexity) > "C"
    ]
    assert found == []


def teardown_module():
    tree_of.cache_clear()
