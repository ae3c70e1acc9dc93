"""Does train.py keep the GPU busy? Real runs on made-up audio, which lies in the page cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from gpu_modes.report import Report
from gpu_modes.runs import completed, corpus_folder, data_options, train

UTTERANCES = 1700
"""Four hours."""
FRAMES = (30_000, 120_000)
"""max_frames_in_batch: the recipe's, and a larger one."""
SECONDS = 25
"""Seconds of a run after its first point."""
CASES = [
    {"data_type": data_type, "workers": workers, "features": features, "frames": frames}
    for frames, data_type, workers in (
        *((FRAMES[0], "shard", 4), (FRAMES[1], "shard", 4), (FRAMES[0], "raw", 4)),
        *(
            (FRAMES[0], "shard", 1),
            (FRAMES[0], "shard", 8),
            (FRAMES[1], "shard", 8),
            (FRAMES[0], "shard", 0),
        ),
    )
    for features in ("worker", "accelerator")
]
TOY = [
    {"data_type": "shard", "workers": 1, "features": "worker", "frames": 300},
    {"data_type": "raw", "workers": 0, "features": "accelerator", "frames": 300},
]


def run(report: Report) -> None:
    """Write a line for each kind of list, number of workers, place of the features, and size of
    batches.
    """
    with corpus_folder(report, report.sized(UTTERANCES, 24)) as folder:
        for number, case in enumerate(report.each(report.sized(CASES, TOY))):
            with report.result(**case) as figures:
                figures |= _measured(report, folder, str(number), case)


def _measured(report: Report, folder: Path, name: str, case: Mapping[str, Any]) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "dataset_conf.batch_conf.max_frames_in_batch": case["frames"],
        "dataset_conf.speed_perturb": find_spec("torchaudio")
        is not None,  # which makes its filters
        "log_interval": report.sized(20, 2),
    }
    options = [
        *data_options(folder, case["data_type"]),
        "--num_workers",
        str(case["workers"]),
        "--feature_device",
        case["features"],
    ]
    options += [
        text
        for key, value in keys.items()
        for text in ("--override_config", f"{key}={str(value).lower()}")
    ]
    outcome = completed(
        train(report, folder, name, {"stop_after": report.sized(SECONDS, 0.01)}, options)
    )

    return {
        **summary(outcome.points),
        "utilisation": utilisation(folder / f"{name}.jsonl.gpu"),
        "speed_perturb": keys["dataset_conf.speed_perturb"],
    }


def summary(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the time after the first point, which has the start of workers and kernels.

    Raises:
        RuntimeError: there are fewer than two points.
    """
    if len(points) < 2:
        raise RuntimeError(f"training wrote {len(points)} points, 2 are needed")

    passed = [later["time"] - earlier["time"] for earlier, later in pairwise(points)]

    def over_time(name: str) -> float:
        weighted = (
            point[f"train/{name}"] * seconds
            for point, seconds in zip(points[1:], passed, strict=True)
        )
        return sum(weighted) / sum(passed)

    figures = {
        name: over_time(name) for name in ("audio_seconds_per_second", "data_wait", "padding")
    }
    return {**figures, "seconds": sum(passed), "steps": points[-1]["step"] - points[0]["step"]}


def utilisation(path: Path) -> float | None:
    """Return the share of the time in which a kernel ran, by nvidia-smi; None if it did not say."""
    percents = (
        [line for line in path.read_text().splitlines() if line.isdecimal()]
        if path.exists()
        else []
    )
    return mean(map(int, percents)) / 100 if percents else None
