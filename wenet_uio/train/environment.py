"""Versions, hardware and commit of a training run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from wenet_uio.dataset.chain.compiled import compiled
from wenet_uio.train.distributed import World

PACKAGES = ("torch", "torchaudio", "numpy", "soundfile", "sentencepiece")


def describe_start(world: World, step: int) -> dict[str, Any]:
    """Describe a start of the run, as values for environment.yaml.

    Args:
        step: the first optimizer step.
    """
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    gpu_counts = ", ".join(f"{count} x {name}" for name, count in Counter(gpus).items())
    pages = os.sysconf("SC_PHYS_PAGES")
    start = {
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "first_step": step,
        "command": " ".join(sys.argv),
        "commit": _current_commit(),
        "ranks": world.size,
        "device": world.device.type,
        "gpus": gpu_counts or "none",
        "cpu": f"{len(os.sched_getaffinity(0))} cores, {_cpu_name()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * pages / 1e9:.0f} GB",
        "threads": torch.get_num_threads(),
        "fbank_on_cpu": compiled().way,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        start[package] = _installed_version(package)
    if torch.version.cuda:
        start["cuda"] = torch.version.cuda
    return start


def feature_kernel() -> str:
    """Return what computes features on a CPU, and the processor: with the same two, the features
    have the same bits.
    """
    return f"{compiled().kind}, {_cpu_name()}"


def _installed_version(package: str) -> str:
    """Return the version of a package; `not installed` without it."""
    try:
        return version(package)
    except PackageNotFoundError:  # some runs do not need it
        return "not installed"


def _current_commit() -> str:
    """Return the commit of the working tree with this file, with `+` if it has changes.

    `unknown` outside of a git repository.
    """
    git = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty=+",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        completed = subprocess.run(git, capture_output=True, text=True)
    except FileNotFoundError:  # git is not installed
        return "unknown"

    return completed.stdout.strip() or "unknown"


def _cpu_name() -> str:
    """Return the model name of the first core; the architecture where the system does not tell it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
