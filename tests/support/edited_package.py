"""A copy of the package with some edits, as a contributor makes them, and scripts that use it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import preloaded

ROOT = Path(__file__).resolve().parents[2]

Edits = Mapping[str, Sequence[tuple[str, str]]]
"""{file in the package: (text as it stands, text in its place) of each edit}."""


def edited_package(folder: Path, edits: Edits) -> Path:
    """Copy the package into `folder` and edit the copy; the folder to put on PYTHONPATH."""
    copy = folder / "wenet_uio"
    # With what Python has compiled, but not the files that it is writing just now
    shutil.copytree(ROOT / "wenet_uio", copy, ignore=shutil.ignore_patterns("*.pyc.*"))
    for name, changes in edits.items():
        text = (copy / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name} has {text.count(old)} of {old!r}"
            text = text.replace(old, new)

        (copy / name).write_text(text, encoding="utf-8")

    return folder


def run_with(package: Path, script: str, *arguments: str | Path) -> str:
    """Run a script on the edited package, beside the tests and docs as they are; its output."""
    path = os.pathsep.join((str(package), str(ROOT)))
    done = preloaded.run(
        ["-c", script, *arguments], cwd=package, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
