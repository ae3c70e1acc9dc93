"""The lowest versions that requirements files allow.

python -m tests.support.lowest_versions requirements.txt requirements/serve.txt
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement


def lowest_version(requirement: Requirement) -> str | None:
    """Return the version that a requirement names with `>=` or `==`."""
    named = [part.version for part in requirement.specifier if part.operator in (">=", "==")]
    return named[0] if named else None


def requirements_of(paths: Iterable[str | Path]) -> list[Requirement]:
    """Return the requirements of files that hold for this Python."""
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    named = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [each for each in named if not each.marker or each.marker.evaluate()]


if __name__ == "__main__":
    for each in requirements_of(sys.argv[1:]):
        print(f"{each.name}=={lowest_version(each)}")
