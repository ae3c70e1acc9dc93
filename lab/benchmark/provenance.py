"""What measurements share: the parser of their options; commit, versions and machine; CPU time."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib.metadata import version
from pathlib import Path
from typing import Any


def benchmark_parser(description: str | None) -> ArgumentParser:
    """Return the parser of a benchmark, with --json; `description` is the docstring of the script."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON on the last line"
    )
    return parser


def commit() -> str:
    """Return the commit of the working tree, with `+` if files were changed, or 'unknown' outside
    git.
    """
    try:
        described = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
        done = subprocess.run(
            described, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def provenance(*packages: str) -> dict[str, Any]:
    """Return for a report: versions of Python and of `packages`, commit, number of cores, load
    average.
    """
    versions = {
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }
    return {
        "versions": versions,
        "commit": commit(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def settings(args: Namespace) -> dict[str, Any]:
    """Return for a report: the options of the benchmark, without --json."""
    return {name: value for name, value in vars(args).items() if name != "json"}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
