"""Recipes as copies of examples/custom/s0."""

from __future__ import annotations

import shlex
from pathlib import Path

from wenet_uio.prepare.new_recipe import write_recipe

ROOT = Path(__file__).resolve().parents[2]


def sourced(examples: Path) -> str:
    """The path.sh that a recipe written below a folder sources."""
    write_recipe(ROOT / "examples" / "custom" / "s0", examples / "own" / "s0", "own", {})
    lines = (examples / "own" / "s0" / "run.sh").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(". ") and "path.sh" in line]
    return shlex.split(line)[1]


def test_a_recipe_outside_of_the_project_uses_the_path_sh_of_the_project(tmp_path):
    assert sourced(tmp_path / "my recipes") == str(ROOT / "path.sh")


def test_a_recipe_below_a_copy_of_the_project_uses_the_path_sh_of_the_copy(tmp_path):
    (tmp_path / "path.sh").touch()
    assert sourced(tmp_path / "examples") == "../../../path.sh"
