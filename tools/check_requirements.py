"""Check that this Python has the packages that requirements files name; print the missing ones.

The packages are not imported, so that the check is fast and also runs on a Python that is too old
for them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement


def missing(lines: Iterable[str]) -> list[str]:
    """Return the lines of a requirements file whose package is missing, or of another version."""
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [line for line in stripped if line and not _is_installed(line)]


def _is_installed(line: str) -> bool:
    requirement = Requirement(line)
    if requirement.marker and not requirement.marker.evaluate():
        return True  # of another Python or system
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def main() -> int:
    """Print missing packages; the status is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements", nargs="*", help="requirements files")
    lacking = [] if sys.version_info >= (3, 10) else ["python>=3.10"]
    for path in parser.parse_args().requirements:
        with open(path, encoding="utf-8") as file:
            lacking += missing(file)

    print(", ".join(lacking))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
