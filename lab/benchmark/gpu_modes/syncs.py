"""Where does a step wait for the GPU?"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_modes.recipes import STREAMING, batch_of, config_of, engine_of, recipe
from gpu_modes.report import Report

CONFS = ("train_conformer", STREAMING, "train_transducer")
STEPS = (
    {"micro_batches": 1, "joined": False},
    {"micro_batches": 3, "joined": True},
    {"micro_batches": 3, "joined": False},
)
"""Joined micro-batches are one pass on a GPU."""
WARM_UP = 3
"""Steps before the step that is observed; the first ones set up the optimizer and the kernels."""
READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal")
"""Operators whose result the host needs before it can go on."""
SYNCHRONISES = "called a synchronizing"
"""Beginning of the warning of torch's sync debug mode."""
Places = Counter[str]
"""How often each line of the project waited."""


def run(report: Report) -> None:
    """Write a line for each model and number of micro-batches, joined and apart."""
    cases = [{"conf": conf, **step} for conf in CONFS for step in STEPS]
    arithmetic = "bf16" if report.on_gpu else "fp32"
    size = {"utterances": report.sized(16, 2), "seconds": report.sized(5.0, 1.0)}

    for case in report.each(cases):
        with report.result(**case, **size) as figures:
            if not report.on_gpu:
                figures["counted"] = (
                    "values that the host reads, an upper bound; synchronisations need a GPU"
                )

            apart = {} if case["joined"] else {"join_micro_batches": 0}
            config = config_of(report, recipe(report, case["conf"]), dtype=arithmetic, **apart)
            engine = engine_of(config, arithmetic, report.device)
            batch = batch_of(report, **size)
            for number in range(1, report.sized(WARM_UP, 1) + 1):
                engine.step([batch] * case["micro_batches"], number, {})

            with waits(report) as places:
                engine.step([batch] * case["micro_batches"], number + 1, {})

            figures |= {"count": sum(places.values()), "places": dict(places.most_common())}


def waits(report: Report) -> AbstractContextManager[Places]:
    """Count the synchronisations in a block on a GPU, and the reads of values on a CPU."""
    return synchronisations() if report.on_gpu else Reads()


@contextmanager
def synchronisations() -> Iterator[Places]:
    """Count the operations that torch warns of in its sync debug mode."""
    places: Places = Counter()

    def note(message: Warning | str, *_: Any) -> None:
        if SYNCHRONISES in str(message):
            places[place()] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")

        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")


class Reads(TorchDispatchMode):
    """Counts the operators in READS."""

    def __init__(self) -> None:
        super().__init__()
        self.places: Places = Counter()

    def __enter__(self) -> Places:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().__enter__()
        return self.places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in READS:
            self.places[place()] += 1
        return func(*args, **(kwargs or {}))


def place() -> str:
    """File and line of the innermost frame in the package, such as train/engine.py:120."""
    frame = sys._getframe(1)
    while frame is not None:
        _, package, path = frame.f_code.co_filename.rpartition("/wenet_uio/")
        if package:
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back

    return "outside of the package"
