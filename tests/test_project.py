"""The project's own metadata."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


REQUIREMENTS = [ROOT / "requirements.txt"]
REQUIREMENTS += (ROOT / "requirements").glob("*.txt")
REQUIREMENTS += [path for part in ("tests", "tools", "examples") for path in (ROOT / part).glob("**/requirements.txt")]


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_requirement_has_its_reason_above_it(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines
    for reason, requirement in zip(lines[::2], lines[1::2], strict=True):
        assert reason.startswith("# ")
        assert re.match(r"[a-z]", requirement)


def test_the_package_takes_its_requirements_from_files_that_are_there():
    named = re.findall(r'^(\S+) = \{ file = \["(.+)"\] \}$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
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
        "audio",
        "onnx",
    ]
    assert [name for name, _ in named] == ["dependencies", *(f"optional-dependencies.{extra}" for extra in extras)]
    assert all((ROOT / path).is_file() for _, path in named)
