"""A run that is killed again and again ends as if it had not been."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.train import killed_run
from tests.train.corpus import write_corpus

ROOT = Path(__file__).parents[2]
KILLS = 12


def draw_kills(seed: int) -> list[list[object]]:
    """Every kind of moment at least once, in random order, at random counts."""
    drawn = random.Random(seed)
    events = list(killed_run.EVENTS) + drawn.choices(list(killed_run.EVENTS), k=KILLS - len(killed_run.EVENTS))
    drawn.shuffle(events)
    writers = {"write", "rename", "report"}  # rank 0 writes
    return [[0 if event in writers else drawn.randrange(2), event, drawn.randint(1, 4)] for event in events]


def run(folder: Path, kills: list[list[object]]) -> dict[str, object]:
    folder.mkdir()
    write_corpus(folder, max_epoch=12, log_interval=1)
    (folder / "kills.json").write_text(json.dumps(kills))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.killed_run", "kills.json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def series(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Points of TensorBoard, but those that the clock gives."""
    events = EventAccumulator(str(folder / "exp/tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.endswith(("per_second", "data_wait"))]
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in tags}


@pytest.mark.parametrize("seed", [1])
def test_twelve_kills_change_neither_weights_nor_points(seed: int, tmp_path: Path) -> None:
    kills = draw_kills(seed)
    assert run(tmp_path / "killed", kills) == {"survived": 0, "complete": True}, kills
    assert run(tmp_path / "undisturbed", []) == {"survived": 0, "complete": True}
    assert (tmp_path / "killed/said").read_text().count("going on from step") == KILLS
    first, second = (torch.load(tmp_path / name / "exp/final.pt") for name in ("killed", "undisturbed"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    points = series(tmp_path / "undisturbed")
    assert [step for step, _ in points["train/loss"]] == list(range(1, 37))
    assert series(tmp_path / "killed") == points
