"""What the Dockerfile copies and runs, without Docker: its first step in a folder with the files
that it copies before.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.support.environments import of_tests

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def arguments() -> dict[str, str]:
    values = (value.partition("=") for name, value in instructions() if name == "ARG")
    return {name: "".join(shlex.split(value)) for name, _, value in values}


def test_packages_are_installed_from_the_files_that_are_copied_first(tmp_path):
    steps = instructions()
    first_run = next(index for index, (name, _) in enumerate(steps) if name == "RUN")
    for name, value in steps[:first_run]:
        if name == "COPY":
            *sources, target = value.split()
            for source in sources:
                place = tmp_path / target
                place.mkdir(parents=True, exist_ok=True)
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, place)

    shell = json.loads(next(value for name, value in steps if name == "SHELL"))
    ran = subprocess.run(
        # The environment of the tests satisfies the requirements, so nothing is installed.
        [*shell, f"{steps[first_run][1]} && type -P python"],
        cwd=tmp_path,
        env=of_tests() | arguments() | {"WENET_UIO_ROOT": ""},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("/bin/python")


def test_the_base_image_is_named_by_its_digest_and_packages_by_the_versions_that_were_tested():
    steps = instructions()
    assert re.fullmatch(r"\S+:\S+@sha256:[0-9a-f]{64}", dict(steps)["FROM"])
    first_run = next(value for name, value in steps if name == "RUN")
    assert "PIP_CONSTRAINT=requirements/tested.txt" in first_run


def test_every_file_that_the_image_needs_is_in_it():
    ignored = (ROOT / ".dockerignore").read_text().split()
    needed = {"path.sh", "requirements.txt", "requirements", "tools", "wenet_uio", "examples"}
    assert needed.isdisjoint(ignored)
    assert all((ROOT / file).is_file() for file in arguments()["EXTRAS"].split())


def test_commands_in_its_head_name_what_is_there():
    text = (ROOT / "Dockerfile").read_text()
    known = set(arguments())
    assert set(re.findall(r"--build-arg (\w+)=", text)) <= known
    for file in re.findall(r"(?:requirements|examples)/[\w/.]+", text):
        assert (ROOT / file).exists(), file
