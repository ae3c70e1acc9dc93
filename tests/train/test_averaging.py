"""Which epochs are in an average: those whose validation is near the best."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml

from wenet_uio.train.averaging import NEAR, NEAR_ZERO, choose_epochs


def write_epochs(folder: Path, losses: Sequence[float | None], start: float | None = None) -> Path:
    """Epochs with these validation losses (None: without a yaml), and that of the start."""
    folder.mkdir(exist_ok=True)
    for number, loss in enumerate(losses):
        torch.save({"w": torch.zeros(1)}, folder / f"epoch_{number}.pt")
        (folder / f"epoch_{number}.yaml").unlink(missing_ok=True)
        if loss is not None:
            record = {"loss_dict": {"loss": loss}}
            (folder / f"epoch_{number}.yaml").write_text(yaml.safe_dump(record))
    if start is not None:
        record = {"loss_dict": {"loss": start}, "compared": {"loss": 1.0}}
        (folder / "init.yaml").write_text(yaml.safe_dump(record))
    return folder


def chosen(folder: Path, num: int = 5, *, val_best: bool = True) -> list[int]:
    return [epoch.number for epoch in choose_epochs(folder, num, val_best=val_best)]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([5.88, 2.61, 2.53, 2.55], [2, 3, 1]),  # an epoch of the warm-up
        ([5.88, 2.53], [1]),  # two epochs
        ([2.60, 2.53], [1, 0]),
        ([1.772, 0.07, 0.051, 0.023], [3, 2, 1]),  # near 0
        ([0.3, 0.0, 0.05, 0.0], [3, 1, 2]),
        ([-3.0, -2.9, -1.0], [0, 1]),  # a loss may be below 0
        ([math.nan, 3.0, math.inf, 2.9], [3, 1]),
        ([7.0], [0]),
        ([4, 4, 4], [2, 1, 0]),
    ],
)
def test_epochs_near_the_lowest_validation_loss_are_averaged(tmp_path, losses, expected):
    assert chosen(write_epochs(tmp_path, losses)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_an_average_has_the_best_epoch_and_none_far_above_it_whatever_else_the_run_has(
    seed, tmp_path
):
    drawn = random.Random(seed)
    scale = drawn.choice((1.0, 0.1, 0.01))
    losses = [scale * drawn.uniform(1, 2) for _ in range(drawn.randint(1, 9))]
    num = drawn.randint(1, 9)
    epochs = chosen(write_epochs(tmp_path, losses), num)
    lowest = min(losses)
    limit = max(NEAR * lowest, lowest + NEAR_ZERO)
    assert losses[epochs[0]] == lowest
    assert all(losses[epoch] <= limit for epoch in epochs)
    assert len(epochs) == min(num, sum(loss <= limit for loss in losses))

    # The ruin of other epochs does not change the choice.
    ruined = [loss if loss <= limit else loss * 1e4 for loss in losses]
    assert chosen(write_epochs(tmp_path, ruined), num) == epochs


def test_the_newest_epochs_are_those_near_the_best_too(tmp_path):
    folder = write_epochs(tmp_path / "run", [9.0, 3.0, 2.9, 3.1, 8.0])
    assert chosen(folder, 2, val_best=False) == [3, 2]


@pytest.mark.parametrize(
    ("losses", "expected"), [([9.0, 3.0, None], [2, 1]), ([None, None, None], [2, 1, 0])]
)
def test_a_newest_epoch_without_a_recorded_loss_is_taken(tmp_path, losses, expected):
    assert chosen(write_epochs(tmp_path, losses), 3, val_best=False) == expected


def test_what_is_left_out_of_an_average_is_one_line_with_the_reason(tmp_path, caplog):
    folder = write_epochs(tmp_path, [40.0, 5.88, 2.61, 2.53, 2.55])
    chosen(folder, 4)
    assert caplog.messages == [
        f"{folder}: left out, validation loss far above the lowest, 2.53: epoch_1.pt (5.88)"
    ]
    caplog.clear()
    chosen(folder, 3)
    assert caplog.messages == []  # it would not have been chosen anyway


def test_a_fine_tuning_without_a_finite_validation_has_the_start_as_its_average(tmp_path):
    folder = write_epochs(tmp_path, [math.nan, math.inf], start=2.0)
    assert chosen(folder) == [-1]


def test_a_start_without_a_finite_validation_leaves_the_choice_to_the_epochs(tmp_path):
    assert chosen(write_epochs(tmp_path, [9.0, 3.0], start=math.nan)) == [1]
