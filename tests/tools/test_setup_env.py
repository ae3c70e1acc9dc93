"""tools/setup_env.sh, in a temporary project whose packages install in no time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(sys.base_prefix) / "bin/python3"


def make_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def quick_python() -> str:
    """A script `python3` whose `-m venv` links the pip of this environment; to install pip takes 4
    s.
    """
    found = find_spec("pip")
    assert found, "pip is not installed"
    pip = Path(str(found.origin)).parent
    return f"""#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec {PYTHON} "$@"; fi
{PYTHON} -m venv --without-pip "$3" && ln -s "{pip}" "$3"/lib/python*/site-packages/
"""


@pytest.fixture
def root(tmp_path: Path, quick_python: str) -> Path:
    return make_project(tmp_path, quick_python)


def make_project(tmp_path: Path, quick_python: str) -> Path:
    """A project whose requirements are satisfied by the folder `wheels` beside it, with
    `bin/python3` beside it.

    The name of its folder has characters that a shell treats specially.
    """
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(quick_python)
    (tmp_path / "bin/python3").chmod(0o755)
    root = tmp_path / """it's a "root" * $HOME; #1 & x"""
    (root / "tools").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    for name in ("path.sh", "tools/setup_env.sh", "tools/check_requirements.py"):
        shutil.copy(ROOT / name, root / name)
    (root / "requirements.txt").write_text("# why\ntoy==1.0.*\n")
    (root / "more.txt").write_text("extra>=2\n")
    make_wheel(tmp_path / "wheels", "toy", "1.0.3")
    make_wheel(tmp_path / "wheels", "extra", "2.1")
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_python: str) -> Path:
    """The environment that the first run creates."""
    root = make_project(tmp_path_factory.mktemp("made"), quick_python)
    status, _, errors = finish(start(root))
    assert status == 0, errors
    return root / ".venv"


@pytest.fixture
def installed(root: Path, made: Path) -> Path:
    """`root` after its first run."""
    shutil.copytree(made, root / ".venv", symlinks=True)
    return root


def start(
    root: Path, script: str = "", command: tuple = (), **environment: str
) -> subprocess.Popen:
    """Run `command` in bash, or `script` after path.sh was sourced."""
    chosen = ("VIRTUAL_ENV", "CONDA_PREFIX", "WENET_UIO_VENV")
    inherited = {name: value for name, value in os.environ.items() if name not in chosen}
    bare = {
        "PATH": f"{root.parent}/bin:{PYTHON.parent}:/usr/bin:/bin",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(root.parent / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    return subprocess.Popen(
        ["bash", "-euo", "pipefail", *(command or ("-c", f'. "$0/path.sh"\n{script}', root))],
        env=inherited | bare | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def test_the_first_run_creates_the_environment_and_later_runs_are_silent(root):
    (root.parent / "bin/python3").unlink()  # Python itself creates this environment
    status, output, errors = finish(start(root, "command -v python; python -c 'import toy'"))
    assert status == 0, errors
    assert output.strip() == f"{root}/.venv/bin/python"
    assert f"creating {root}/.venv" in errors
    assert f"installing {root}/requirements.txt" in errors

    status, output, errors = finish(start(root, "command -v python"))
    assert (status, output.strip(), errors) == (0, f"{root}/.venv/bin/python", "")


def test_changed_requirements_are_installed(installed):
    (installed / "requirements.txt").write_text("toy\nextra\n")
    status, _, errors = finish(start(installed, "python -c 'import extra'"))
    assert status == 0, errors
    assert "installing" in errors
    assert "creating" not in errors


def test_a_recipe_can_need_more_packages(installed):
    status, _, errors = finish(
        start(installed, "need_packages more.txt; python -c 'import extra'", PWD=str(installed))
    )
    assert status != 0  # more.txt is relative to the working directory
    status, _, errors = finish(
        start(installed, "cd \"$0\"; need_packages more.txt; python -c 'import extra'")
    )
    assert status == 0, errors


def with_extras(root: Path) -> None:
    """Give the project the module that asks for the extra `more`."""
    (root / "wenet_uio/base").mkdir(parents=True)
    for name in (
        "__init__.py",
        "base/__init__.py",
    ):  # or the package of the clone is found before it
        (root / "wenet_uio" / name).touch()
    shutil.copy(ROOT / "wenet_uio/base/imports.py", root / "wenet_uio/base")
    (root / "requirements").mkdir()
    (root / "more.txt").rename(root / "requirements/more.txt")


NEED_EXTRA = (
    "cd \"$0\"; python -c \"from wenet_uio.base.imports import need_extra\nneed_extra('more', ['extra'])\n"
    'import extra"'
)


def test_a_command_installs_its_extra_when_it_is_first_called(installed):
    with_extras(installed)
    script = f"{NEED_EXTRA}; echo second >&2; {NEED_EXTRA}"
    status, _, errors = finish(start(installed, script))
    assert status == 0, errors
    first, second = errors.split("second\n")
    assert "installing" in first
    assert second == ""


def test_an_extra_is_not_installed_into_the_users_own_environment(root, made, tmp_path):
    with_extras(root)
    shutil.copytree(made, tmp_path / "my own", symlinks=True)
    shutil.rmtree(tmp_path / "my own" / ".wenet_uio")
    active = {
        "VIRTUAL_ENV": str(tmp_path / "my own"),
        "PATH": f"{tmp_path}/my own/bin:/usr/bin:/bin",
    }
    status, _, errors = finish(start(root, NEED_EXTRA, **active))
    assert status == 1
    assert (
        "this command needs extra: pip install -r requirements/more.txt (or wenet_uio[more])"
        in errors
    )
    assert "installing" not in errors


def test_an_interrupted_installation_is_repeated(installed):
    made = installed / ".venv" / ".wenet_uio"
    (made / "installing").touch()
    (made / hashlib.sha256((installed / "requirements.txt").read_bytes()).hexdigest()).unlink()
    status, _, errors = finish(start(installed, "python -c 'import toy'"))
    assert status == 0, errors
    assert "creating" in errors
    assert not (made / "installing").exists()


def test_a_failed_installation_is_reported_in_one_line_and_the_next_run_tries_again(root):
    wheel = next((root.parent / "wheels").glob("toy*"))
    hidden = wheel.rename(root / wheel.name)
    status, output, errors = finish(start(root, "echo on"))
    assert (status, output) == (1, "")
    assert (
        f"error: could not install {root}/requirements.txt into {root}/.venv"
        in errors.splitlines()[-1]
    )
    hidden.rename(wheel)
    assert finish(start(root, "python -c 'import toy'"))[0] == 0


def test_two_simultaneous_runs_create_one_environment(root):
    results = [
        finish(process) for process in [start(root, "python -c 'import toy'") for _ in range(2)]
    ]
    assert [status for status, _, _ in results] == [0, 0]
    assert sum("creating" in errors for _, _, errors in results) == 1


def test_an_active_environment_with_all_packages_is_used(root, made, tmp_path):
    shutil.copytree(made, tmp_path / "my own", symlinks=True)
    shutil.rmtree(tmp_path / "my own" / ".wenet_uio")  # now the script does not know it as its own
    active = {
        "VIRTUAL_ENV": str(tmp_path / "my own"),
        "PATH": f"{tmp_path}/my own/bin:/usr/bin:/bin",
    }
    status, output, errors = finish(start(root, "command -v python", **active))
    assert (status, output.strip(), errors) == (0, f"{tmp_path}/my own/bin/python", "")
    assert not (root / ".venv").exists()


def test_an_active_environment_that_lacks_a_package_is_not_changed(root, tmp_path):
    subprocess.run([tmp_path / "bin/python3", "-m", "venv", tmp_path / "my own"], check=True)
    # `python` is active; `python3` is quick_python
    path = f"{tmp_path}/bin:{tmp_path}/my own/bin:/usr/bin:/bin"
    active = {"VIRTUAL_ENV": str(tmp_path / "my own"), "PATH": path}
    status, output, errors = finish(start(root, "command -v python", **active))
    assert status == 0, errors
    assert output.strip() == f"{root}/.venv/bin/python"
    assert "lacks toy==1.0.*" in errors
    assert not list((tmp_path / "my own").glob("lib/*/site-packages/toy*"))


def test_nothing_is_installed_into_a_folder_that_the_script_did_not_create(root, tmp_path):
    (tmp_path / "my own").mkdir()
    (tmp_path / "my own" / "letters.txt").touch()
    status, _, errors = finish(start(root, WENET_UIO_VENV=str(tmp_path / "my own")))
    assert status == 1
    assert f"error: {tmp_path}/my own was not created by setup_env.sh" in errors
    assert (tmp_path / "my own" / "letters.txt").exists()


def test_a_clone_in_a_folder_that_cannot_be_on_path_is_refused(root):
    status, output, errors = finish(start(root.rename(root.parent / "a:b"), "echo on"))
    assert (status, output) == (1, "")
    assert (
        errors
        == f"error: {root.parent}/a:b: a folder of PATH cannot have ':' in its name; rename or "
        "move it\n"
    )


def test_an_old_python_is_refused(root, tmp_path):
    for name in ("python", "python3", *(f"python3.{minor}" for minor in range(10, 15))):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    status, _, errors = finish(start(root, PATH=f"{tmp_path}:/usr/bin:/bin"))
    assert status == 1
    assert errors.startswith("error: no Python 3.10 or newer")


def test_help_of_a_recipe_installs_nothing(root):
    shutil.copy(ROOT / "tools/recipe.sh", root / "tools")
    (root / "run.sh").write_text(
        '#!/bin/bash\n# A recipe.\n. "${0%/*}/path.sh"\n. recipe.sh\nparse_options "$@"\n'
    )
    status, output, errors = finish(start(root, command=(root / "run.sh", "--help")))
    assert (status, errors) == (0, "")
    assert output.startswith("A recipe.")
    assert not (root / ".venv").exists()


@pytest.mark.parametrize("shell", ["dash", "zsh"])
def test_another_shell_than_bash_is_refused_in_one_line(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", ". ./path.sh || exit 3"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) in ((3, ""), (1, ""))  # dash ends at once
    assert (
        done.stderr
        == "error: run it with bash: bash run.sh; or start bash, then source path.sh again\n"
    )


@pytest.mark.parametrize(
    ("version", "is_old"), [((3, 2), 1), ((4, 3), 1), ((4, 4), 0), ((5, 0), 0), ((10, 1), 0)]
)
def test_an_old_bash_is_refused_in_one_line(version, is_old):
    head = (ROOT / "path.sh").read_text(encoding="utf-8").split("\nWENET_UIO_ROOT=")[0]
    program = f"guard() {{ {head.replace('BASH_VERSINFO', 'found')}\n}}; found=({version[0]} {version[1]}); guard"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.returncode == is_old
    assert len(done.stderr.splitlines()) == is_old
