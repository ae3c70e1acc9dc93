"""Which batches fit in memory, and does splitting a batch that does not fit give the same
gradient?
"""

from __future__ import annotations

from typing import Any

import torch

from gpu_modes.recipes import (
    STREAMING,
    TOKENS_PER_SECOND,
    batch_of,
    config_of,
    engine_of,
    recipe,
    without_chance,
)
from gpu_modes.report import Report, free
from wenet_uio.config import Config
from wenet_uio.dataset.plan.duration_bins import Shape
from wenet_uio.dataset.types import Batch
from wenet_uio.train.batch_size import cpu_trial, cuda_trial, largest_batch
from wenet_uio.train.memory import TooLarge

SECONDS = (16, 8, 2)
"""Lengths whose largest batch is looked for."""
MOST = 100_000
"""Utterances of a batch at most."""
ROOM = 0.9
"""Share of the memory that a batch may take, as in find_batch_size.py."""
OF_TOY = 4 << 30
"""Bytes that a process may take with --toy on a CPU."""
SPLIT: dict[str, Any] = {"part": "split"}


def run(report: Report) -> None:
    """Write a line for each length, and one for a batch that is split."""
    dtype = "bf16" if report.on_gpu else "fp32"
    cases: list[dict[str, Any]] = [
        {"part": "largest", "seconds": seconds, "dtype": dtype}
        for seconds in report.sized(SECONDS, (1,))
    ]
    # Forked trials on a CPU come before anything is computed here
    for case in report.each([*cases, SPLIT]):
        with report.result(**case) as figures:
            figures |= _split(report) if case is SPLIT else _largest(report, case["seconds"], dtype)


def _largest(report: Report, seconds: int, dtype: str) -> dict[str, Any]:
    config = config_of(report, recipe(report, STREAMING), dtype=dtype)
    memory = int(ROOM * torch.cuda.mem_get_info(report.device)[1]) if report.on_gpu else OF_TOY
    trial = (cuda_trial if report.on_gpu else cpu_trial)(config, memory, with_ddp=False)
    shape = Shape(report.sized(MOST, 2), 100 * seconds, int(seconds * TOKENS_PER_SECOND))
    largest = largest_batch(trial, shape, report.sized(16, 2))
    if report.on_gpu:
        torch.cuda.set_per_process_memory_fraction(1.0)
    if largest is None:
        return {"fits": False}

    return {
        "utterances": largest.utterances,
        "max_frames_in_batch": largest.utterances * shape.frames,
        "peak_gb": largest.peak / 1e9,
    }


def _split(report: Report) -> dict[str, Any]:
    """Return the gradient norms of a whole batch and of the same batch split.

    On a GPU the second step gets too little memory. On a CPU it is told in advance that half of the
    batch is too large.
    """
    keys = without_chance(recipe(report, STREAMING))
    config = config_of(report, keys, dtype="bf16" if report.on_gpu else "fp32")
    batch = batch_of(report, report.sized(64, 4), report.sized(12.0, 1.0))
    if report.on_gpu:
        torch.cuda.reset_peak_memory_stats(report.device)

    whole, _ = _norm(report, config, batch)
    peak = torch.cuda.max_memory_allocated(report.device) if report.on_gpu else None
    free()
    too_large = None

    if peak is None:
        half = (len(batch) + 1) // 2
        too_large = TooLarge(1, half, batch.rows(slice(-half, None)).feats.size(1), 1)
    else:
        torch.cuda.set_per_process_memory_fraction(
            0.6 * peak / torch.cuda.mem_get_info(report.device)[1]
        )

    split, sizes = _norm(report, config, batch, too_large)
    figures = {
        "utterances": len(batch),
        "whole": whole,
        "split": split,
        "apart": abs(split / whole - 1),
        "sizes_too_large": sizes,
    }
    return figures | ({} if peak is None else {"peak_gb": peak / 1e9})


def _norm(
    report: Report, config: Config, batch: Batch, too_large: TooLarge | None = None
) -> tuple[float, int]:
    """Return the gradient norm of a first step, and the number of sizes that are known not to fit."""
    engine = engine_of(config, config.dtype, report.device)
    if too_large is not None:
        engine.size_limit.too_large.add(too_large)
    return engine.step([batch], 1, {}).grad_norm, len(engine.size_limit.too_large)
