"""The package as `pip install .` installs it: modules, data files, command and requirements."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, packages_distributions, requires
from pathlib import Path

import pytest

from tests.support import preloaded

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
BUILD = "from setuptools import setup; setup()"
COMMAND = """\
import sys
from importlib.metadata import entry_points as all
import wenet_uio
print(wenet_uio.__file__, flush=True)
sys.argv[0] = 'wenet-uio'
(found,) = [each for each in all(group='console_scripts', name='wenet-uio') if 'lib' in str(each.dist._path)]
found.load()()
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built package and its metadata."""
    source, lib = (tmp_path_factory.mktemp(name) for name in ("source", "lib"))
    shutil.copytree(
        ROOT / "wenet_uio", source / "wenet_uio", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", *re.findall(r'file = \["(.+)"\]', PROJECT)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    build = ("-q", "egg_info", "--egg-base", str(lib), "build_py", "--build-lib", str(lib))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *build], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return lib


def files_below(folder: Path) -> set[str]:
    """Paths relative to the folder, without READMEs and compiled files."""
    found = (
        path
        for path in (folder / "wenet_uio").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(folder)) for path in found if path.suffix != ".md"}


def test_the_built_package_has_every_module_and_data_file(lib: Path) -> None:
    built = files_below(lib)
    assert sorted(files_below(ROOT) - built) == [], (
        "add them to [tool.setuptools.package-data] in pyproject.toml"
    )
    assert {
        "wenet_uio/pages/run.html",
        "wenet_uio/train/ds_stage2.json",
        "wenet_uio/__main__.py",
    } <= built
    assert {path.name for path in lib.iterdir()} == {"wenet_uio", "wenet_uio.egg-info"}


def test_the_built_package_has_the_command_and_the_requirements(lib: Path) -> None:
    built = Distribution.at(lib / "wenet_uio.egg-info")
    assert [(each.name, each.value) for each in built.entry_points] == [
        ("wenet-uio", "wenet_uio.__main__:main")
    ]
    needed = [
        line
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert sorted(each for each in built.requires or [] if "extra ==" not in each) == sorted(needed)


def test_the_command_runs_outside_of_the_repository(lib: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(lib), "OMP_NUM_THREADS": "1"}
    (tmp_path / "command.py").write_text(COMMAND)
    cases = (
        (sys.executable, ("--help",), 0, "transcribe "),
        (
            preloaded.python(),
            ("transcribe", "--model", "none", "a.wav"),
            1,
            "error: none: no such file",
        ),
    )
    for python, arguments, status, text in cases:
        command = [python, "command.py", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
        assert text in done.stdout + done.stderr
        assert done.stdout.splitlines()[0] == f"{lib}/wenet_uio/__init__.py"


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """Top-level names that a module imports when it is imported, except for type checking only."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def requirements_of(*files: str) -> set[str]:
    """The packages that requirements files name, and those that come with them."""
    lines = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    named = re.findall(r"^[\w-]+", lines, re.MULTILINE)
    theirs = [line for name in named for line in requires(name) or [] if "extra ==" not in line]
    names = re.findall(r"^[\w-]+", "\n".join([*named, *theirs]), re.MULTILINE)
    return {name.lower().replace("_", "-") for name in names}


def test_every_package_that_a_module_imports_at_once_is_a_requirement_or_comes_with_one() -> None:
    always = requirements_of("requirements.txt")
    of_server = always | requirements_of("requirements/serve.txt")
    of_module = packages_distributions()
    missing = set()
    for path in (ROOT / "wenet_uio").rglob("*.py"):
        needed = of_server if path.parent.name == "serve" else always
        names = set(imported_at_once(ast.parse(path.read_text(encoding="utf-8"))))
        for name in names - sys.stdlib_module_names - {"wenet_uio"}:
            if not {each.lower().replace("_", "-") for each in of_module.get(name, [])} & needed:
                missing.add(f"{path.relative_to(ROOT)}: {name}")
    assert sorted(missing) == []
