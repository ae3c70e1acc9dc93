"""How many audio seconds per second does the step loop train on, and what bounds it: the GPU or the
host?
"""

from __future__ import annotations

import resource
from statistics import median
from typing import Any

import torch
from train_step import measure

from gpu_modes.recipes import STREAMING, config_of, dtype_of, dynamic_batches, engine_of, recipe
from gpu_modes.report import Report

FRAMES = (36_000, 12_000, 120_000, 360_000)
"""Padded frames of a batch, the usual size first."""
PRECISIONS = ("bf16", "fp32", "tf32", "fp16")
COMPILED = [
    {"arithmetic": arithmetic, "frames": FRAMES[0], "torch_compile": True}
    for arithmetic in ("bf16", "fp32")
]
BATCHES, REPEATS = 8, 2


def run(report: Report) -> None:
    """Write a line for each size, arithmetic, and with compiled layers."""
    cases = [
        {"arithmetic": arithmetic, "frames": frames, "torch_compile": False}
        for frames in report.sized(FRAMES, (300,))
        for arithmetic in (PRECISIONS if report.on_gpu else PRECISIONS[:2])
    ]
    for case in report.each([*cases, *report.sized(COMPILED, [])]):
        with report.result(**case) as figures:
            figures |= _measured(report, **case)


def _measured(report: Report, arithmetic: str, frames: int, torch_compile: bool) -> dict[str, Any]:
    keys = recipe(report, STREAMING)
    config = config_of(report, keys, dtype=dtype_of(arithmetic), torch_compile=torch_compile)
    engine = engine_of(config, arithmetic, report.device)
    batches = dynamic_batches(report, frames, report.sized(BATCHES, 2))
    if report.on_gpu:
        torch.cuda.reset_peak_memory_stats(report.device)

    speeds = measure(engine, batches, report.sized(REPEATS, 1))
    speed = median(round_speed.audio_per_second for round_speed in speeds)
    seconds = sum(batch.seconds for batch in batches) / len(batches)
    return {
        "audio_seconds_per_second": speed,
        "step_ms": 1000 * seconds / speed,
        "host_ms": 1000 * median(round_speed.launch_seconds for round_speed in speeds),
        "peak_gb": _peak(report) / 1e9,
        "split_batches": len(engine.size_limit.too_large),
        "parameters": sum(weight.numel() for weight in engine.model.parameters()),
    }


def _peak(report: Report) -> int:
    """Return the largest memory so far in bytes: allocated on the GPU, or of this process."""
    if report.on_gpu:
        return torch.cuda.max_memory_allocated(report.device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
