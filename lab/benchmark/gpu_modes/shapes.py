"""What does a batch of an unseen shape cost? cuDNN's attention and cuFFT build a plan for each
shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import torch

from gpu_modes.recipes import STREAMING, batch_of, config_of, engine_of, recipe
from gpu_modes.report import Report, synchronise
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import batch_fbank

CONFS = (STREAMING, "train_transformer")
FEATURES: dict[str, Any] = {"conf": "fbank"}
RATE = 16000


def run(report: Report) -> None:
    """Write a line for each model with and without cuDNN's attention, and one for the features."""
    cases: list[dict[str, Any]] = [
        {"conf": conf, "cudnn_attention": cudnn} for cudnn in (False, True) for conf in CONFS
    ]
    for case in report.each([*report.sized(cases, cases[:1]), FEATURES]):
        with report.result(**case) as figures:
            if case is FEATURES:
                figures |= new_and_seen(report, *_features(report))
            else:
                figures |= new_and_seen(
                    report, *_steps(report, case["conf"]), cudnn_attention=case["cudnn_attention"]
                )


def new_and_seen(
    report: Report,
    work: Callable[[int], object],
    sizes: Iterable[int],
    *,
    cudnn_attention: bool = False,
) -> dict[str, float]:
    """Return the median milliseconds of `work` at a size for the first time, and of the same again."""
    torch.backends.cuda.enable_cudnn_sdp(cudnn_attention)
    new, seen = [], []
    for size in sizes:
        for times in (new, seen):
            synchronise(report.device)
            began = time.perf_counter()
            work(size)
            synchronise(report.device)
            times.append(1000 * (time.perf_counter() - began))

    count, new, seen = len(new), median(new[1:]), median(seen[1:])  # the first size loads kernels
    return {"shapes": count, "new_ms": new, "seen_ms": seen, "ratio": new / seen}


def _steps(report: Report, conf: str) -> tuple[Callable[[int], object], range]:
    """Training steps on batches whose utterances and lengths all differ."""
    arithmetic = "bf16" if report.on_gpu else "fp32"
    engine = engine_of(
        config_of(report, recipe(report, conf), dtype=arithmetic), arithmetic, report.device
    )
    sizes = range(report.sized(13, 2))
    batches = [
        batch_of(report, report.sized(20, 1) + size, report.sized(4.0, 0.5) + 0.37 * size)
        for size in sizes
    ]

    return lambda size: engine.step([batches[size]], size + 1, {}), sizes


def _features(report: Report) -> tuple[Callable[[int], object], range]:
    """Return features of batches of waveforms of different lengths."""
    conf, utterances = FbankConf(num_mel_bins=80), report.sized(64, 2)
    sizes = range(report.sized(13, 2))
    longest = RATE * report.sized(4, 1) + 1600 * len(sizes)
    waveforms = 3000 * torch.randn(utterances, longest, device=report.device)
    lengths = [longest - 1600 * size for size in sizes]
    counts = [torch.full((utterances,), length, device=report.device) for length in lengths]

    return lambda size: batch_fbank(waveforms[:, : lengths[size]], counts[size], RATE, conf), sizes
