"""Continuous integrate-and-fire."""

from __future__ import annotations

import torch

from wenet_uio.models.cif import fire, firing_times


def test_tokens_are_sums_of_their_frames_also_if_a_frame_has_more_than_one() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.75, 2.25, 0.0, 0.0]])
    frames = torch.arange(1.0, 7.0).view(1, 6, 1)
    assert fire(weights, frames, torch.tensor(5)).flatten().tolist() == [1.5, 0.75 * 3 + 0.25 * 4, 4.0, 4.0, 0.0]
    assert firing_times(weights, torch.tensor([4])).tolist() == [[1, 3, 3, 3]]
