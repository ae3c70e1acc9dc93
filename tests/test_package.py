"""The package as `pip install .` installs it: modules, data files, command and requirements."""

from __future__ import annotations

import ast
import os
import re
import shlex
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
COMMAND = """\
import sys
from importlib.metadata import entry_points as all
import wenet_uio
print(wenet_uio.__file__, flush=True)
sys.argv[0] = 'wenet-uio'
(found,) = [each for each in all(group='console_scripts', name='wenet-uio') if 'lib' in str(each.dist._path)]
found.load()()
"""
COMMANDS_OF_ONE_PROCESS = """\
import shlex, sys
import wenet_uio
from wenet_uio.__main__ import main

print(wenet_uio.__file__)
for command in sys.argv[1:]:
    sys.argv = ["wenet-uio", *shlex.split(command)]
    try:
        main()
    except SystemExit as end:
        print(f"{command.split()[0]}: {end.code}", flush=True)
        if end.code:
            raise
"""
"""As `wenet-uio COMMAND` for each argument, without importing torch each time."""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built package and its metadata."""
    source, lib = (tmp_path_factory.mktemp(name) for name in ("source", "lib"))
    shutil.copytree(
        ROOT / "wenet_uio", source / "wenet_uio", ignore=shutil.ignore_patterns("__pycache__")
    )
    without_results = shutil.ignore_patterns("__pycache__", "data", "exp")
    for folder in ("tools", "requirements", "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=without_results, symlinks=True)
    (source / "examples/custom/s0/data").mkdir()
    (source / "examples/custom/s0/data/list").write_text("a result")
    named = re.findall(r'file = \["(.+)"\]', PROJECT)
    for name in ("pyproject.toml", "setup.py", "path.sh", "README.md", *named):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    build = ("-q", "egg_info", "--egg-base", str(lib), "build_py", "--build-lib", str(lib))
    done = subprocess.run(
        [sys.executable, "setup.py", *build], cwd=source, capture_output=True, text=True
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
        "wenet_uio/base/pages/run.html",
        "wenet_uio/train/ds_stage2.json",
        "wenet_uio/dataset/chain/fbank.cpp",
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


def test_the_built_package_has_the_scripts_of_recipes_which_can_be_executed(lib: Path) -> None:
    home = lib / "wenet_uio" / "recipes"
    for name in ("tools/make_lists.sh", "tools/check_data.py", "examples/custom/s0/run.sh"):
        assert os.access(home / name, os.X_OK)
        assert (home / name).read_bytes() == (ROOT / name).read_bytes()
    for name in (
        "path.sh",
        "requirements.txt",
        "requirements/onnx.txt",
        "tools/recipe.sh",
        "examples/fsdd/s0/run.sh",
    ):
        assert (home / name).is_file()
    assert not (home / "examples/custom/s0/data").exists()


@pytest.fixture(scope="module")
def installed(lib: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell in which the built package is installed, without a clone."""
    folder = tmp_path_factory.mktemp("bin")
    script = f"#!{sys.executable}\nfrom wenet_uio.__main__ import main\nmain()\n"
    (folder / "wenet-uio").write_text(script)
    (folder / "wenet-uio").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WENET_UIO")}
    return {
        **kept,
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(lib),
        "OMP_NUM_THREADS": "1",
    }


def done_in(folder: Path, environment: dict[str, str], command: str) -> str:
    """Run a command of a user; its output."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.all
def test_from_a_corpus_to_words_without_the_clone(
    lib: Path, installed: dict[str, str], tmp_path: Path, make_utterances
) -> None:
    lines = make_utterances(24)
    table = "".join(f"{line.wav}\t{line.text}\n" for line in lines)
    (tmp_path / "own.tsv").write_text("wav\ttext\n" + table)
    made = done_in(tmp_path, installed, "wenet-uio recipe new own --from own.tsv")
    assert "\nexamples/own/s0: 20 train, 2 dev, 2 test utterances; bash examples/own/s0" in made

    recipe = tmp_path / "examples/own/s0"
    assert str(ROOT) not in (recipe / "run.sh").read_text()
    small = "encoder_conf.output_size=16 encoder_conf.linear_units=16 encoder_conf.num_blocks=1"
    small += " decoder_conf.linear_units=16 decoder_conf.num_blocks=1 max_epoch=1"
    small += " encoder_conf.attention_heads=2 decoder_conf.attention_heads=2"
    config = "conf/train_transformer.yaml"
    done_in(recipe, installed, f"bash run.sh --config {config} --stop_stage 3")
    commands = (
        f"check data/train/data.list --config {config} --units data/dict/units.txt",
        f"plan --data_list data/train/data.list --data_type raw --config {config}",
        "pack data/train/wav.scp data/train/text shards shards/data.list",
        "index shards/data.list --data_type shard",
        f"train --config {config} --data_type shard --train_data shards/data.list --model_dir exp/own "
        f"--device cpu --cv_data shards/data.list --override_config {small}",
        f"transcribe --model exp/own {lines[0].wav}",
    )
    (recipe / "commands.py").write_text(COMMANDS_OF_ONE_PROCESS)
    printed = done_in(recipe, installed, f"python commands.py {shlex.join(commands)}")
    assert f"{lib}/wenet_uio/__init__.py" in printed
    assert (recipe / "exp/own/final.pt").is_file()
    assert printed.endswith("\ntranscribe: 0\n")


@pytest.mark.all
def test_recipes_of_public_corpora_are_copied_and_start_without_the_clone(
    installed: dict[str, str], tmp_path: Path
) -> None:
    names = sorted({path.parts[-3] for path in ROOT.glob("examples/*/*/run.sh")})
    folder = tmp_path / "my 语音"
    folder.mkdir()
    copies = "; ".join(f"wenet-uio recipe copy {name}" for name in names)
    printed = done_in(folder, installed, f"set -e; {copies}")
    assert printed.splitlines() == [f"bash examples/{name}/s0/run.sh" for name in names]

    for name in names:
        theirs, ours = folder / "examples" / name / "s0", ROOT / "examples" / name / "s0"
        kept = {"conf", "local", "run.sh", "README.md", "requirements.txt", "sources.yaml"}
        files = {str(path.relative_to(theirs)) for path in theirs.rglob("*") if path.is_file()}
        assert files == {
            str(path.relative_to(ours))
            for path in ours.rglob("*")
            if path.is_file() and path.relative_to(ours).parts[0] in kept and path.suffix != ".pyc"
        }
        assert not [path for path in theirs.rglob("*") if path.is_symlink()]
        assert str(ROOT) not in (theirs / "run.sh").read_text(encoding="utf-8")
        for file in files - {"run.sh"}:
            assert (theirs / file).read_bytes() == (ours / file).read_bytes()

    helped = done_in(
        folder, installed, "for run in examples/*/s0/run.sh; do bash $run --help; done"
    )
    assert helped.count("\n  --stop_stage ") == len(names)
    for name in ("fsdd", "hub5", "espeak"):
        run = (f"bash examples/{name}/s0/run.sh --stage 99", folder, installed)
        done = subprocess.run(
            ["bash", "-c", run[0]], cwd=folder, env=installed, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    again = subprocess.run(
        ["bash", "-c", "wenet-uio recipe copy fsdd"],
        cwd=folder,
        env=installed,
        capture_output=True,
        text=True,
    )
    assert (again.returncode, again.stderr) == (
        1,
        "error: examples/fsdd/s0 exists already: remove it, or choose another name\n",
    )


def test_a_recipe_says_if_another_python_would_run_it(
    installed: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    other = {**installed, "PATH": f"{tmp_path}:{installed['PATH']}"}
    command = ["bash", "-c", '. "$(wenet-uio recipe home)/path.sh"']
    done = subprocess.run(command, env=other, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/python has not the wenet_uio of ")
    assert len(done.stderr.splitlines()) == 1


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
