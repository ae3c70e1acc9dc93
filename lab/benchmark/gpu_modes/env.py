"""Which machine is this, and what is installed?"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.cuda.nccl

from gpu_modes.report import Report

PACKAGES = (
    *("numpy", "pydantic", "pyyaml", "soundfile", "fsspec", "tqdm", "requests"),
    *("torchaudio", "triton", "tensorboard", "sentencepiece"),
)
"""Packages that gpu.py needs, then some that training and compilation need."""
COMPILERS = ("gcc", "g++", "nvcc", "ninja")
QUERY = "driver_version,power.limit,clocks.max.sm,clocks.max.mem,utilization.gpu"


def run(report: Report) -> None:
    """Write one line."""
    with report.result() as facts:
        facts |= {
            "python": platform.python_version(),
            "system": platform.platform(),
            **_processor(),
        }
        facts["packages"] = {name: _version(name) for name in PACKAGES}
        facts["compilers"] = [name for name in COMPILERS if shutil.which(name)]
        facts |= {
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "cuda": torch.version.cuda,
        }
        if report.on_gpu:
            facts |= _gpu(report.device)


def _processor() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "memory_gb": memory / 1e9,
    }


def _version(package: str) -> str | None:
    """None if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    attention = ("flash", "mem_efficient", "math", "cudnn")
    return {
        "gpus": torch.cuda.device_count(),
        "capability": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "gpu_memory_gb": total / 1e9,
        "gpu_memory_free_gb": free / 1e9,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "bf16_on_gpu": torch.cuda.is_bf16_supported(including_emulation=False),
        "attention": [
            name for name in attention if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        ],
        "driver": _driver(),
    }


def _driver() -> dict[str, str] | None:
    """Return what nvidia-smi says about the first GPU; None without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None

    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip() or f"exit status {done.returncode}"}

    return dict(zip(QUERY.split(","), done.stdout.splitlines()[0].split(", "), strict=True))
