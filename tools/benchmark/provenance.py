"""What a figure was measured on: commit, versions, processor; and the processor's time."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path
from typing import Any


def commit() -> str:
    """Of the working tree, with a plus where files are changed."""
    try:
        described = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
        done = subprocess.run(described, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def provenance(*packages: str) -> dict[str, Any]:
    """For a report: versions of Python and of installed packages, commit, cores and how busy they were."""
    versions = {"python": platform.python_version(), **{package: version(package) for package in packages}}
    return {"versions": versions, "commit": commit(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def settings(args: Namespace) -> dict[str, Any]:
    """For a report: the options of the benchmark, but for that which asks for the report."""
    return {name: value for name, value in vars(args).items() if name != "json"}


def cpu_seconds() -> float:
    """Of this process and of all its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
