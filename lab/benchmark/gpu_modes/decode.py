"""How fast is decoding? Weights are random: the texts are nonsense, and longer than spoken ones."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from gpu_modes.recipes import STREAMING, batch_of, config_of, dtype_of, recipe, use_tf32
from gpu_modes.report import Report, synchronise
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.decode import Search, decode
from wenet_uio.search.types import DecodeOptions

MODES = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention_rescoring", "attention")
PRECISIONS = ("bf16", "fp32", "tf32")
SIZES = (16, 128)
"""Utterances of a batch."""


def run(report: Report) -> None:
    """Write a line for each decode mode, arithmetic and batch size."""
    cases = [
        {"decode_mode": mode, "arithmetic": arithmetic, "utterances": size}
        for mode in MODES
        for size in report.sized(SIZES, (2,))
        for arithmetic in (PRECISIONS if report.on_gpu else PRECISIONS[:2])
    ]
    torch.manual_seed(0)
    model = build_model(config_of(report, recipe(report, STREAMING))).to(report.device).eval()

    for case in report.each(cases):
        with report.result(**case) as figures:
            batches = [
                batch_of(report, case["utterances"], report.sized(6.0, 1.0) + number)
                for number in range(2)
            ]
            use_tf32(case["arithmetic"])
            search = Search(
                [case["decode_mode"]], DecodeOptions(dtype=dtype_of(case["arithmetic"]))
            )
            if not report.options.toy:
                _seconds(report, model, batches, search)  # warms up

            passed = _seconds(report, model, batches, search)
            seconds = sum(batch.seconds for batch in batches)
            figures |= {"audio_seconds": seconds, "audio_seconds_per_second": seconds / passed}


def _seconds(
    report: Report, model: DecodingModel, batches: Sequence[Batch], search: Search
) -> float:
    synchronise(report.device)
    began = time.perf_counter()
    for batch in batches:
        moved = batch.to(report.device)
        decode(model, moved.feats, moved.feats_lengths, *search)

    synchronise(report.device)
    return time.perf_counter() - began
