"""Feed-forward modules."""

from __future__ import annotations

import torch

from wenet_uio.config.encoder import FeedForwardConf
from wenet_uio.models.layer_parts import MixtureOfExperts, build_feed_forward

MOE = FeedForwardConf(linear_units=8, mlp_type="moe", n_expert=4, n_expert_activated=2)


def mixture() -> MixtureOfExperts:
    torch.manual_seed(0)
    module = build_feed_forward(6, 0.0, MOE)
    assert isinstance(module, MixtureOfExperts)
    return module


@torch.no_grad()
def test_a_frame_is_the_weighted_sum_of_its_best_experts() -> None:
    module, frame = mixture(), torch.randn(6)
    scores, best = module.gate(frame).topk(2)
    expected = sum(
        weight * module.experts[int(number)](frame)
        for weight, number in zip(scores.softmax(0), best, strict=True)
    )
    torch.testing.assert_close(module(frame.view(1, 1, 6))[0, 0], expected)


def test_an_expert_without_frames_has_gradients_of_zero() -> None:
    module = mixture()
    module(torch.randn(1, 1, 6)).sum().backward()
    sums = [float(expert.w_1.weight.grad.abs().sum()) for expert in module.experts]
    assert sorted(total > 0 for total in sums) == [False, False, True, True]


@torch.no_grad()
def test_frames_do_not_depend_on_their_batch_and_may_be_none() -> None:
    module, frames = mixture(), torch.randn(3, 5, 6)
    torch.testing.assert_close(module(frames)[1:2, :2], module(frames[1:2, :2]))
    assert module(frames[:, :0]).shape == (3, 0, 6)


@torch.no_grad()
def test_half_precision_is_kept() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert mixture()(torch.randn(2, 3, 6)).isfinite().all()
