#!/usr/bin/env python3
"""Whether this Python has the packages that requirements files ask for; prints what it lacks.

Imports nothing that is checked, so that it is quick and runs on any Python.
"""

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version

try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement


def missing(lines):
    """The requirements among `lines` of a requirements file that are not installed in a fitting version."""
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [line for line in stripped if line and not _is_installed(Requirement(line))]


def _is_installed(requirement):
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements", nargs="*", help="requirements.txt and the like")
    lacking = [] if sys.version_info >= (3, 10) else ["python>=3.10"]
    for path in parser.parse_args().requirements:
        with open(path, encoding="utf-8") as file:
            lacking += missing(file)
    print(", ".join(lacking))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
