"""The metadata and READMEs of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.support.lowest_versions import lowest_version, requirements_of

ROOT = Path(__file__).resolve().parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "lab" / "guarantees" / "README.md"]
READMES += [
    path
    for part in ("wenet_uio", "tools", "lab", "tests")
    for path in sorted((ROOT / part).glob("**/*.md"))
]
READMES += sorted(ROOT.glob("examples/*/*/README.md"))
REQUIREMENTS = [ROOT / "requirements.txt"]
TESTED = ROOT / "requirements" / "tested.txt"
REQUIREMENTS += sorted({*(ROOT / "requirements").glob("*.txt")} - {TESTED})
REQUIREMENTS += [
    path
    for part in ("tests", "tools", "lab", "examples")
    for path in (ROOT / part).glob("**/requirements.txt")
]


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_requirement_has_its_reason_above_it(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines
    for reason, requirement in zip(lines[::2], lines[1::2], strict=True):
        assert reason.startswith("# ")
        assert re.match(r"[a-z]", requirement)


def recorded_versions():
    lines = TESTED.read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==")[::2] for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_tested_version_is_allowed_by_the_requirements():
    versions = recorded_versions()
    for path in REQUIREMENTS:
        for requirement in requirements_of([path]):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is None or version in requirement.specifier, (path.name, requirement)


def test_the_packages_that_the_tests_install_have_a_tested_version():
    script = (ROOT / "tests" / "run.sh").read_text().replace("\\\n", " ")
    [files] = re.findall(r"^need_packages (.*)$", script, re.MULTILINE)
    installed = requirements_of(ROOT / file for file in ["requirements.txt", *files.split()])
    assert len(installed) > 50
    names = {canonicalize_name(requirement.name) for requirement in installed}
    assert names <= recorded_versions().keys()


def test_a_requirement_of_another_python_is_not_missing(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text('absent>=1; python_version < "3"\nlacking>=1; python_version >= "3"\n')
    command = [sys.executable, str(ROOT / "tools" / "check_requirements.py"), str(file)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, 'lacking>=1; python_version >= "3"\n')


def test_every_library_that_reads_bytes_of_strangers_states_its_lowest_version():
    """Those versions have no published flaw that can be reached. tests/lowest.sh runs with them."""
    script = (ROOT / "tests" / "lowest.sh").read_text()
    [extras] = re.findall(r"files=\(requirements.txt requirements/\{(.*)\}.txt\)", script)
    files = ["requirements.txt", *(f"requirements/{extra}.txt" for extra in extras.split(","))]
    files.append("requirements/gs.txt")  # no test needs its many packages
    bounded = requirements_of(ROOT / file for file in files)
    assert [each.name for each in bounded if lowest_version(each) is None] == []
    strangers = {
        *("aiohttp", "av", "fsspec", "gcsfs", "jinja2", "kenlm", "lhotse", "onnx", "onnxruntime"),
        *("ossfs", "pillow", "pyarrow", "pyyaml", "requests", "s3fs", "sentencepiece"),
        *("soundfile", "tiktoken"),
        *("tokenizers", "torch", "urllib3"),
    }
    assert strangers <= {each.name for each in bounded}


def test_torch_and_torchaudio_are_exactly_the_same_release():
    """A later torchaudio of 2.11 asks for torch 2.11, and cannot be loaded with it."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    releases = dict(line.split("==") for line in lines if line.startswith("torch"))
    assert set(releases) == {"torch", "torchaudio"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", releases["torch"])
    assert releases["torch"] == releases["torchaudio"]


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_readme_has_at_most_300_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_the_readme_on_top_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_command_with_an_interpreter_line_can_be_executed():
    patterns = (
        "tools/*",
        "lab/benchmark/*",
        "lab/guarantees/*",
        "examples/*/*/run.sh",
        "examples/*/*/local/*",
        "wenet_uio/bin/*.py",
    )
    files = [
        path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in (".py", ".sh")
    ]
    commands = [path for path in files if path.read_bytes().startswith(b"#!")]
    assert len(commands) > 30
    assert [path for path in commands if not os.access(path, os.X_OK)] == []


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("README.md", "*"), ("README.zh.md", "*"), ("CONTRIBUTING.md", "*/*")],
)
def test_the_readme_names_every_package_and_the_page_for_contributors_every_folder(name, pattern):
    page = (ROOT / name).read_text(encoding="utf-8")
    folders = [path.parent for path in (ROOT / "wenet_uio").glob(f"{pattern}/__init__.py")]
    assert len(folders) > 10
    assert [folder for folder in folders if f"`{folder.relative_to(ROOT)}/`" not in page] == []


def test_the_requirements_files_of_the_package_exist():
    named = re.findall(
        r'^(\S+) = \{ file = \["(.+)"\] \}$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    extras = [
        "test",
        "espeak",
        "deepspeed",
        "lm",
        "lhotse",
        "s3",
        "oss",
        "gs",
        "hdfs",
        "benchmark",
        "ray",
        "onnx",
        "whisper",
        "normalize",
        "huggingface",
        "hub",
        "parquet",
        "serve",
        "vad",
        "wandb",
        "mlflow",
        "docs",
    ]
    assert [name for name, _ in named] == [
        "dependencies",
        *(f"optional-dependencies.{extra}" for extra in extras),
    ]
    assert all((ROOT / path).is_file() for _, path in named)


def test_the_files_of_quick_tests_exist_and_are_sorted():
    named = (ROOT / "tests" / "quick.txt").read_text().split()
    assert named == sorted(set(named))
    assert [path for path in named if not (ROOT / path).is_file()] == []
