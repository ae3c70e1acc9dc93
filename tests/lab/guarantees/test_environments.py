import ast
import sys
from itertools import combinations
from pathlib import Path

import pytest

GUARANTEES = Path(__file__).parents[3] / "lab" / "guarantees"


@pytest.fixture(scope="module")
def entries():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUARANTEES))
        import environments

        return environments.ENTRIES


def _adapter(entry):
    return ast.parse((GUARANTEES / "adapters" / f"{entry.adapter}.py").read_text())


def test_every_adapter_has_a_row(entries):
    adapters = {path.stem for path in (GUARANTEES / "adapters").glob("*.py")}
    assert {entry.adapter for entry in entries.values()} == adapters


def test_every_adapter_defines_a_loader_and_links_the_practice_that_it_follows(entries):
    for name, entry in entries.items():
        tree = _adapter(entry)
        assert "Loader" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, name
        inherits = any(
            isinstance(node, ast.ImportFrom) and node.module.endswith("_loader")
            for node in tree.body
        )
        ours = entry.requirements is not None
        assert inherits or ours or "https://" in ast.get_docstring(tree), name


def test_every_package_has_one_version(entries):
    for name, entry in entries.items():
        assert all("==" in package for package in (*entry.packages, *entry.alone)), name


def test_rows_that_share_an_environment_have_equal_packages(entries):
    homes = [(entry.home or name, entry) for name, entry in entries.items()]
    for (one, first), (other, second) in combinations(homes, 2):
        if one == other:
            assert (first.packages, first.alone, first.requirements) == (
                second.packages,
                second.alone,
                second.requirements,
            )


def test_a_package_that_cannot_be_installed_is_named_with_the_reason():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUARANTEES))
        import environments

    install = [sys.executable, "-m", "pip", "install", "--no-index", "no-such-package==1"]
    with pytest.raises(
        environments.NotInstalledError,
        match="No matching distribution found for no-such-package==1",
    ):
        environments._run(install)
