"""Do two ranks that are killed and resumed end with the weights of an undisturbed run? Both use one
device, by gloo.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_modes.report import Report
from gpu_modes.runs import completed, corpus_folder, data_options, train
from wenet_uio.train.checkpoint import RunFolder

RANKS = 2
KILLED, STOPPED = 5, 7
"""Steps at which rank 0 is killed, and after which the runs end."""
SAVED = 2
"""Steps between two states."""
LOSS = "train/loss"
"""Key of a point."""


def run(report: Report) -> None:
    """Write one line."""
    with (
        corpus_folder(report, report.sized(200, 24)) as folder,
        report.result(ranks=RANKS, killed_at=KILLED) as figures,
    ):
        figures |= _compared(report, folder)


def _compared(report: Report, folder: Path) -> dict[str, Any]:
    frames = report.sized(6000, 200)
    keys = [
        f"dataset_conf.batch_conf.max_frames_in_batch={frames}",
        f"save_interval={SAVED}",
        "log_interval=1",
    ]
    options = [
        text
        for key in [*keys, "dataset_conf.speed_perturb=false"]
        for text in ("--override_config", key)
    ]
    options += [*data_options(folder, "shard"), "--num_workers", "1", "--ddp.dist_backend", "gloo"]
    stops = {"stop_at": STOPPED, "one_device": report.on_gpu}
    whole = completed(train(report, folder, "whole", stops, options, RANKS))
    killed = train(report, folder, "killed", {**stops, "kill_at": KILLED}, options, RANKS)
    if not killed.status or "SIGKILL" not in killed.said:
        raise RuntimeError(
            f"the run that was to be killed ended with status {killed.status}: {killed.said}"
        )

    resumed = completed(train(report, folder, "killed", stops, options, RANKS))
    return {
        "resumed_after": _resumed_after(resumed.points),
        "first_other_loss": _first_other_loss(whole.points, resumed.points),
        **_apart(folder),
    }


def _resumed_after(points: list[dict[str, Any]]) -> int | None:
    """Return the step of the state from which the second start went on; the points of both starts
    are in one file.

    None if the second start began after the last point of the first: it repeated no step.
    """
    steps = [point["step"] for point in points]
    return next((later - 1 for earlier, later in pairwise(steps) if later <= earlier), None)


def _first_other_loss(whole: list[dict[str, Any]], resumed: list[dict[str, Any]]) -> int | None:
    """Return the first step whose loss is not that of the undisturbed run; None if all are equal."""
    losses = {point["step"]: point[LOSS] for point in whole}
    others = [point["step"] for point in resumed if point[LOSS] != losses[point["step"]]]
    return min(others, default=None)


def _apart(folder: Path) -> dict[str, Any]:
    states = [RunFolder(folder / f"exp_{name}").newest_state() for name in ("whole", "killed")]
    whole, killed = (state["model"] for state in states if state is not None)
    differences = [
        float((whole[name].double() - killed[name].double()).abs().max()) for name in whole
    ]
    steps = {state["progress"]["step"] for state in states if state is not None}
    dtypes = {state["config"]["dtype"] for state in states if state is not None}

    return {
        "dtypes": sorted(dtypes),
        "steps": sorted(steps),
        "equal": max(differences) == 0,
        "largest_difference": max(differences),
    }
