"""Training on a disk that is full for a moment, or stays full."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import preloaded

ROOT = Path(__file__).parents[2]
MISSING = "could not be written (No space left on device): training goes on"
END = ["state_10.pt", "state_8.pt"]


def run(folder: Path, scenario: str) -> tuple[dict[str, object], str]:
    """What full_disk_run.py found, and its standard error."""
    done = preloaded.run(
        ["-m", "tests.support.train.full_disk_run", folder, scenario],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if "no disk" in found:
        pytest.skip(f"a small disk cannot be mounted here: {found['no disk']}")
    return found, done.stderr


def test_a_disk_that_is_full_for_one_state_costs_this_state_and_no_weight(tmp_path: Path) -> None:
    found, said = run(tmp_path, "passing")
    assert found == {"error": "none", "states": [["state_0.pt"], END], "same weights": True}
    assert said.count(MISSING) == 1
    assert "run/state_2.pt could not" in said
    assert "until then a run that ends resumes from state_0.pt" in said


def test_a_disk_without_room_for_the_state_of_an_epoch_is_told_and_training_goes_on(
    tmp_path: Path,
) -> None:
    found, said = run(tmp_path, "state")
    before = ["state_2.pt", "state_4.pt"]
    assert found == {"error": "none", "states": [before, END], "same weights": True}
    assert f"run/state_5.pt {MISSING}" in said


@pytest.mark.parametrize(
    ("scenario", "file", "states"),
    [
        ("weights", "epoch_0.pt", ["state_2.pt", "state_4.pt"]),
        ("stopped", "state_4.pt", ["state_0.pt", "state_2.pt"]),
        ("last", "state_10.pt", END),
    ],
)
def test_a_run_that_cannot_keep_what_it_promises_ends_with_the_reason_and_resumes(
    scenario: str, file: str, states: list[str], tmp_path: Path
) -> None:
    found, _ = run(tmp_path, scenario)
    assert found == {
        "error": f"{file}: No space left on device",
        "states": [states, END],
        "same weights": True,
    }
