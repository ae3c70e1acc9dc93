"""Which share of a step is the GPU busy, and with which kernels?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage] # torch has no __all__ there
from torch.profiler import ProfilerActivity, profile
from train_step import run_steps

from gpu_modes.recipes import STREAMING, config_of, dtype_of, dynamic_batches, engine_of, recipe
from gpu_modes.report import Report, synchronise
from wenet_uio.dataset.types import Batch
from wenet_uio.train.engine import Engine

TOP = 30
CASTS = ("aten::_to_copy",)


def run(report: Report) -> None:
    """Write a line for each arithmetic and size of batches."""
    cases = [
        {"arithmetic": arithmetic, "frames": frames}
        for frames in report.sized((36_000, 120_000), (300,))
        for arithmetic in report.sized(("bf16", "fp32"), ("fp32",))
    ]
    for case in report.each(cases):
        with report.result(**case) as figures:
            config = config_of(
                report, recipe(report, STREAMING), dtype=dtype_of(case["arithmetic"])
            )
            engine = engine_of(config, case["arithmetic"], report.device)
            figures |= profiled(
                report, engine, dynamic_batches(report, case["frames"], report.sized(6, 1))
            )


def profiled(report: Report, engine: Engine, batches: list[Batch]) -> dict[str, Any]:
    """Figures of a step: the mean over the batches."""
    _pass(report, engine, batches, 1)  # warms up
    seconds = _pass(report, engine, batches, 1 + len(batches)) / len(batches)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if report.on_gpu else [])]
    with profile(activities=kinds, acc_events=True) as profiler:
        _pass(report, engine, batches, 1 + 2 * len(batches))

    events, per_step = profiler.events() or (), 1 / len(batches)
    figures = {
        "step_ms": 1000 * seconds,
        "casts": sum(event.name in CASTS for event in events) * per_step,
    }
    if report.on_gpu:
        spans = [
            (event.time_range.start, event.time_range.end)
            for event in events
            if _is_of(DeviceType.CUDA, event)
        ]
        # The profiler slows the host down, so that its own step would look idle: the time is that
        # of the step before.
        figures |= {
            "busy": union(spans) / 1e6 * per_step / seconds,
            "launches": len(spans) * per_step,
        }

    return {**figures, "top": _longest(report, profiler.key_averages(), per_step)}


def _is_of(device: DeviceType, event: Any) -> bool:
    """True for the work of a device, but not for the spans of time that are named on it."""
    return event.device_type == device and not getattr(event, "is_user_annotation", False)


def _longest(report: Report, averages: Iterable[Any], per_step: float) -> list[dict[str, Any]]:
    """Return the kernels, or on a CPU the operators, that take the most time."""
    device, time_of = DeviceType.CPU, "self_cpu_time_total"
    if report.on_gpu:
        device, time_of = DeviceType.CUDA, "self_device_time_total"

    longest = sorted(
        (kernel for kernel in averages if _is_of(device, kernel)),
        key=lambda kernel: -getattr(kernel, time_of),
    )
    total = sum(getattr(kernel, time_of) for kernel in longest) or 1
    return [
        {
            "name": kernel.key[:80],
            "share": getattr(kernel, time_of) / total,
            "per_step": kernel.count * per_step,
        }
        for kernel in longest[:TOP]
    ]


def union(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans of time, which may overlap: kernels of several
    streams run at the same time.
    """
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered


def _pass(report: Report, engine: Engine, batches: list[Batch], first: int) -> float:
    """Take a step on each batch; return the seconds."""
    synchronise(report.device)
    began = time.perf_counter()
    run_steps(engine, batches, first)
    synchronise(report.device)

    return time.perf_counter() - began
