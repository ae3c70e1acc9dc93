"""Run by the modes of gpu.py: train.py, whose figures are written as lines of JSON instead of
TensorBoard's files.

    gpu_training.py SETTINGS [OPTION of train.py]…        SETTINGS: the fields of `Settings` as JSON

So training needs no TensorBoard and can be stopped, or killed, at a certain step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from wenet_uio.base.cli import run
from wenet_uio.bin import train

SAMPLED = "500"
"""Milliseconds between two samples of the utilisation of the GPU."""


@dataclass(frozen=True)
class Settings:
    """When training ends, and where its figures go."""

    points: str
    """File for a line of JSON every `log_interval` steps; FILE.gpu gets the samples of nvidia-smi
    after the first."""
    stop_at: int | None = None
    """The first step that is reported at or after this number asks training to save its state and
    stop."""
    stop_after: float | None = None
    """The first step that is reported this many seconds after the first one does so."""
    kill_at: int | None = None
    """The report of this step kills the process."""
    one_device: bool = False
    """All ranks use the first GPU."""


class Points:
    """What Reporter needs of TensorBoard's SummaryWriter."""

    settings: Settings

    def __init__(self, *_: object, **__: object) -> None:
        self._values: dict[str, float] = {}
        self._began: float | None = None
        self._sampler: subprocess.Popen[bytes] | None = None

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Remember a figure of a step."""
        self._values |= {name: value, "step": step}

    def flush(self) -> None:
        """Write the figures of a step, and end training if it is time."""
        if not self._values:
            return

        with open(self.settings.points, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **self._values}) + "\n")

        step, self._values = self._values["step"], {}
        if self._began is None:
            self._began = time.monotonic()
            self._sampler = sampler(Path(f"{self.settings.points}.gpu"))
        if step == self.settings.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

        passed = time.monotonic() - self._began
        if _is_reached(self.settings.stop_at, step) or _is_reached(
            self.settings.stop_after, passed
        ):
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """End the sampling."""
        if self._sampler is not None:
            self._sampler.terminate()
            self._sampler.wait()


def _is_reached(limit: float | None, value: float) -> bool:
    return limit is not None and value >= limit


def sampler(path: Path) -> subprocess.Popen[bytes] | None:
    """Start nvidia-smi, which writes the utilisation of the GPU in percent, line by line; None
    without a GPU.
    """
    if not torch.cuda.is_initialized() or not shutil.which("nvidia-smi"):
        return None

    device = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", SAMPLED]
    with open(path, "wb") as file:
        return subprocess.Popen(
            ["nvidia-smi", *query, "-i", f"GPU-{device}"], stdout=file, stderr=file
        )


def main(settings: Mapping[str, object]) -> int:
    """Train with `Points` in place of TensorBoard."""
    Points.settings = Settings(**settings)  # pyright: ignore[reportArgumentType] - JSON of the fields
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Points  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules[board.__name__] = board
    if Points.settings.one_device:
        os.environ["LOCAL_RANK"] = "0"

    return train.main()


if __name__ == "__main__":
    given = json.loads(sys.argv.pop(1))
    run(lambda: main(given))
