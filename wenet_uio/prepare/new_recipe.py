"""Write the recipe of a new corpus, which is a copy of examples/custom/s0 with other defaults, or
copy the recipe of a public corpus.
"""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns

from wenet_uio.base.files import new_folder_aside, require_writable
from wenet_uio.base.messages import nearest_name

PACKAGE = Path(__file__).resolve().parents[1]
FROM_CLONE = ". ../../../path.sh"
FROM_PACKAGE = """\
command -v wenet-uio >/dev/null ||
  { echo "error: wenet-uio is not on PATH; activate the environment that has it" >&2; exit 1; }
RECIPES=$(wenet-uio recipe home) || { echo "error: wenet-uio recipe home fails; see above" >&2; exit 1; }
. "$RECIPES/path.sh\""""
"""How run.sh finds the scripts of the recipes, in a clone and outside. A variable in lower case
would be an option of the recipe."""


EXISTS = "exists already: remove it, or choose another name"


def recipe_home() -> Path:
    """Return the folder of path.sh, tools/ and examples/: the clone, or their copies in the installed
    package, which setup.py makes.
    """
    installed = PACKAGE / "recipes"
    return installed if installed.exists() else PACKAGE.parent


def is_installed() -> bool:
    """Tell whether the package is used without a clone."""
    return recipe_home().parent == PACKAGE


def write_recipe(template: Path, folder: Path, name: str, options: dict[str, str]) -> None:
    """Copy the template to `folder`, with `options` as the defaults of its run.sh.

    The folder appears only when the recipe is complete.

    Args:
        options: option of run.sh, without dashes -> its default.

    Raises:
        ValueError: the folder exists, or the name is not a valid folder name.
    """
    require_new(folder, name)
    with _copied_aside(template, folder) as aside:
        script = aside / "run.sh"
        text = script.read_text(encoding="utf-8")
        # The comment at the top describes the template, up to the list of stages.
        header = f"# {name}.  Results: README.md\n#\n#   bash run.sh\n#\n"
        text, count = re.subn(r"(?ms)^# .*?(?=^# Stages: )", header, text, count=1)
        assert count == 1, script

        for option, value in options.items():
            new_default = f"{option}={shlex.quote(value)}".replace("\\", r"\\")
            text, count = re.subn(rf"(?m)^{option}=\S*", new_default, text)
            assert count == 1, option

        script.write_text(_with_home(text, folder), encoding="utf-8")
        configs = sorted(path.name for path in aside.glob("conf/*.yaml"))
        (aside / "README.md").write_text(_recipe_readme(name, options, configs), encoding="utf-8")


def require_new(folder: Path, name: str) -> None:
    """Refuse a recipe that exists, a name that is not a valid folder name, and a folder that cannot
    be made.

    Raises:
        ValueError, OSError: as above.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ValueError(
            f"{name!r} is not a valid folder name: expected letters, digits, '_', '-', '.'"
        )
    if folder.exists():
        raise ValueError(f"{folder} {EXISTS}")
    require_writable(folder)


def public_recipes() -> dict[str, list[Path]]:
    """Return {corpus: folders of its recipes} of all corpora that have recipes."""
    recipes: dict[str, list[Path]] = {}
    for script in sorted((recipe_home() / "examples").glob("*/*/run.sh")):
        recipes.setdefault(script.parent.parent.name, []).append(script.parent)
    return recipes


def copy_recipe(name: str, examples: Path) -> list[Path]:
    """Copy the recipes of a public corpus to examples/NAME; return their run.sh.

    Raises:
        ValueError: a folder exists, or there is no such recipe.
    """
    recipes = public_recipes()
    if name not in recipes:
        nearest = nearest_name(name, recipes)
        known = f"did you mean {nearest}?" if nearest else f"known: {', '.join(recipes)}"
        raise ValueError(f"{name}: no such recipe; {known}")

    scripts = []
    for template in recipes[name]:
        folder = examples / name / template.name
        require_new(folder, name)
        with _copied_aside(template, folder) as aside:
            script = aside / "run.sh"
            text = script.read_text(encoding="utf-8")
            script.write_text(_with_home(text, folder), encoding="utf-8")
        scripts.append(folder / "run.sh")
    return scripts


@contextmanager
def _copied_aside(template: Path, folder: Path) -> Iterator[Path]:
    """Give a copy of a recipe without its results; it becomes `folder` at the end of the block, or
    is removed if the block raises or another process has made `folder`.
    """
    left_out = ignore_patterns("data", "dict", "exp", "__pycache__")
    try:
        with new_folder_aside(folder) as aside:
            copytree(template, aside, ignore=left_out, dirs_exist_ok=True)
            yield aside
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise ValueError(f"{folder} {EXISTS}") from error
        raise


def _with_home(script: str, folder: Path) -> str:
    """Return a run.sh that finds path.sh: outside of the clone it names that of the clone, or asks
    the installed package.
    """
    assert FROM_CLONE in script
    if is_installed():
        return script.replace(FROM_CLONE, FROM_PACKAGE)
    if (folder.absolute().parents[2] / "path.sh").exists():
        return script
    return script.replace(FROM_CLONE, f". {shlex.quote(str(recipe_home() / 'path.sh'))}")


def _recipe_readme(name: str, options: dict[str, str], configs: Sequence[str]) -> str:
    """Return the README of a new recipe."""
    made = " ".join(f"--{option} {shlex.quote(value)}" for option, value in options.items())
    results = "\n".join(f"| `conf/{config}` |" + " not run |" * 5 for config in configs)
    return f"""# {name}

    bash run.sh

`wenet-uio recipe new` made this recipe from `examples/custom/s0`, whose README describes the stages. Its defaults are
`{made}`. To change texts or parts, edit `local/prepare_data.py`; to change the model or batches, edit `conf/`.

## Results

| configuration | commit | greedy | prefix beam | attention | rescoring |
|---|---|---|---|---|---|
{results}
"""
