"""Continuous integrate-and-fire."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.addons.families.paraformer.cif import ParaformerPredictor, fire, firing_times
from wenet_uio.addons.families.paraformer.conf import ParaformerPredictorConf


def test_tokens_are_sums_of_their_frames_also_if_a_frame_has_more_than_one() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.75, 2.25, 0.0, 0.0]])
    frames = torch.arange(1.0, 7.0).view(1, 6, 1)
    assert fire(weights, frames, torch.tensor(5)).flatten().tolist() == [
        1.5,
        0.75 * 3 + 0.25 * 4,
        4.0,
        4.0,
        0.0,
    ]
    assert firing_times(weights, torch.tensor([4])).tolist() == [[1, 3, 3, 3]]


@pytest.mark.parametrize("masks_padding", [True, False])
def test_the_branch_of_times_runs_under_autocast_on_any_cpu(masks_padding: bool) -> None:
    predictor = ParaformerPredictor(8, ParaformerPredictorConf())
    predictor.masks_padding = masks_padding
    frames, valid = torch.randn(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    exact = predictor.weigh_steps(frames, valid, torch.tensor([5, 5]))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = predictor.weigh_steps(frames, valid, torch.tensor([5, 5]))
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.01)
    rounded.sum().backward()
