"""Recipes as copies of examples/custom/s0."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from wenet_uio.bin import new_recipe
from wenet_uio.prepare import new_recipe as module
from wenet_uio.prepare.new_recipe import FROM_PACKAGE, write_recipe

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


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_copies_at_once_one_is_written_and_the_other_says_that_it_exists(
    tmp_path, monkeypatch, is_first
):
    copytree = module.copytree

    def copied_beside_another(*args, **options):
        monkeypatch.setattr(module, "copytree", copytree)
        if is_first:
            copytree(*args, **options)
        module.copy_recipe("fsdd", tmp_path)
        if not is_first:
            copytree(*args, **options)

    monkeypatch.setattr(module, "copytree", copied_beside_another)
    with pytest.raises(ValueError, match="exists already: remove it, or choose another name"):
        module.copy_recipe("fsdd", tmp_path)

    folder = tmp_path / "fsdd" / "s0"
    assert list(folder.parent.iterdir()) == [folder]

    (template,) = module.public_recipes()["fsdd"]
    left_out = {"data", "dict", "exp", "__pycache__"}
    expected = {
        path.relative_to(template)
        for path in template.rglob("*")
        if left_out.isdisjoint(path.relative_to(template).parts)
    }
    assert {path.relative_to(folder) for path in folder.rglob("*")} == expected
    assert folder.stat().st_mode == template.stat().st_mode


def test_a_copy_after_a_killed_one_removes_what_that_left(tmp_path, monkeypatch):
    child = os.fork()
    if not child:
        monkeypatch.setattr(module, "_with_home", lambda *_: os._exit(9))
        module.copy_recipe("fsdd", tmp_path)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    (left,) = (tmp_path / "fsdd").iterdir()
    assert left.name.startswith(".s0.")
    module.copy_recipe("fsdd", tmp_path)
    assert os.listdir(tmp_path / "fsdd") == ["s0"]


def test_a_folder_that_cannot_be_made_is_refused_before_the_corpus_is_read(tmp_path):
    (tmp_path / "examples").touch()
    options = ["own", "--from", str(tmp_path / "no.tsv"), "--examples", str(tmp_path / "examples")]
    with pytest.raises(NotADirectoryError) as raised:
        new_recipe.main(options)
    assert raised.value.filename == str(tmp_path / "examples" / "own" / "s0")


@pytest.mark.parametrize(("name", "message"), [("a b", "not a valid folder"), ("own", "exists")])
def test_a_name_that_cannot_be_used_is_refused_before_the_corpus_is_read(tmp_path, name, message):
    (tmp_path / "own" / "s0").mkdir(parents=True)
    options = [name, "--from", str(tmp_path / "no.tsv"), "--examples", str(tmp_path)]

    with pytest.raises(ValueError, match=message):
        new_recipe.main(options)


def test_the_lines_that_find_the_installed_package_are_no_options_of_a_recipe(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f'{FROM_PACKAGE}\nstage=-1\nparse_options "$@"\n')
    options = subprocess.run(
        ["bash", "-c", '. "$0" && _lines_of "$1"', ROOT / "tools" / "recipe.sh", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert options.stdout == "stage=-1\n"


@pytest.mark.parametrize(
    ("name", "hint"), [("FSDD", "did you mean fsdd?"), ("xyz", "known: aishell, ")]
)
def test_an_unknown_recipe_is_refused_with_the_nearest_name_or_all(tmp_path, name, hint):
    with pytest.raises(ValueError, match=rf"{name}: no such recipe; {re.escape(hint)}"):
        module.copy_recipe(name, tmp_path)
    assert not list(tmp_path.iterdir())
