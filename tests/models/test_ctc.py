"""The loss of a CTC layer, over all units or over those that it uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from wenet_uio.models.ctc import CTC

UNITS, DIM, BLANK = 40, 6, 3
USED = (1, 7, 8, 30)
LENGTHS = torch.tensor([12, 9, 5])
TARGETS = torch.tensor([[7, 1, 7, 30], [8, 8, -1, -1], [1, -1, -1, -1]])
TARGET_LENGTHS = torch.tensor([4, 2, 1])

Loss = Callable[[CTC, torch.Tensor], torch.Tensor]


def restricted() -> CTC:
    """A CTC layer that uses a few units."""
    torch.manual_seed(0)
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.use_only(USED)
    return ctc


def over_all_units(of: CTC) -> CTC:
    """A layer with the same weights that computes its loss over all units."""
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.load_state_dict(of.state_dict())
    return ctc


def loss(ctc: CTC, frames: torch.Tensor) -> torch.Tensor:
    return ctc(frames, LENGTHS, TARGETS, TARGET_LENGTHS)


def loss_of_views(ctc: CTC, frames: torch.Tensor) -> torch.Tensor:
    repeated = [torch.cat((x, x)) for x in (LENGTHS, TARGETS, TARGET_LENGTHS)]
    losses = ctc.losses_of_views(torch.cat((frames, frames + 0.1)), *repeated)
    return losses[0] + losses[1]


@pytest.mark.parametrize("of", [loss, loss_of_views])
def test_the_loss_over_the_used_units_is_that_over_all_with_its_gradient(of: Loss) -> None:
    ctc = restricted()
    every = over_all_units(ctc)
    frames = torch.randn(3, 12, DIM)
    results = []
    for layer in (ctc, every):
        x = frames.clone().requires_grad_()
        value = of(layer, x)
        value.backward()
        results.append((value, x.grad, layer.ctc_lo.weight.grad, layer.ctc_lo.bias.grad))

    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_search_never_finds_an_unused_unit() -> None:
    ctc = restricted()
    probable = ctc.log_softmax(torch.randn(50, 12, DIM)).exp().sum(dim=(0, 1)) > 0
    assert set(probable.nonzero()[:, 0].tolist()) == {BLANK, *USED}


def test_an_utterance_with_an_unused_unit_has_loss_0_and_no_gradient() -> None:
    ctc = restricted()
    frames = torch.randn(3, 12, DIM, requires_grad=True)
    expected = loss(ctc, frames)
    target = torch.cat((TARGETS, torch.full((1, 4), -1)))
    target[3, :2] = torch.tensor([1, 20])
    frames = torch.cat((frames.detach(), torch.randn(1, 12, DIM))).requires_grad_()
    lengths = torch.cat((LENGTHS, torch.tensor([12])))
    found = ctc(frames, lengths, target, torch.cat((TARGET_LENGTHS, torch.tensor([2]))))
    torch.testing.assert_close(found * 4, expected * 3)
    found.backward()
    assert frames.grad is not None
    assert frames.grad[3].abs().max() == 0.0


def test_a_layer_that_is_moved_knows_its_units_on_the_new_device() -> None:
    ctc, frames = restricted(), torch.randn(3, 12, DIM)
    expected = loss(ctc, frames)
    used = ctc._used_units()
    assert used is not None
    ctc._used = used._replace(units=used.units.to("meta"), places=used.places.to("meta"))
    torch.testing.assert_close(loss(ctc, frames), expected)


def test_a_resumed_layer_uses_the_units_of_the_state_that_it_loads() -> None:
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.learn_used()
    frames = torch.randn(3, 12, DIM)
    loss(ctc, frames)  # over all units
    of_run = restricted()
    ctc.load_state_dict(of_run.state_dict())
    torch.testing.assert_close(loss(ctc, frames), loss(of_run, frames))
    used = ctc._used_units()
    assert used is not None
    assert used.units.tolist() == sorted({BLANK, *USED})


def test_utterances_without_a_loss_are_told_after_the_first_loss() -> None:
    ctc = restricted()
    target = torch.cat((TARGETS, torch.full((1, 4), -1)))
    target[3, :2] = torch.tensor([1, 20])
    lengths = torch.cat((TARGET_LENGTHS, torch.tensor([2])))
    assert ctc.without_loss(target, lengths).tolist() == [False] * 4  # not known yet
    loss(ctc, torch.randn(3, 12, DIM))
    assert ctc.without_loss(target, lengths).tolist() == [False, False, False, True]
    target[0, 0], lengths[0] = 20, 0
    assert ctc.without_loss(target, lengths).tolist() == [False, False, False, True]

    every = CTC(UNITS, DIM, BLANK)
    loss(every, torch.randn(3, 12, DIM))
    assert not every.without_loss(target, lengths).any()


def test_a_layer_that_used_other_units_learns_the_new_ones() -> None:
    ctc = restricted()
    assert ctc.count_used() == len(USED)
    assert ctc.use_only(USED) == 0
    assert ctc.use_only((1, 20, 21)) == 2
    assert ctc.count_used() == 3
    biases, before = ctc.ctc_lo.bias.detach(), restricted().ctc_lo.bias.detach()
    assert torch.equal(biases[[1, BLANK]], before[[1, BLANK]])
    lowest = float(before[[*USED, BLANK]].min())
    assert biases[[20, 21]].tolist() == [lowest, lowest]

    frames = torch.randn(1, 12, DIM)
    value = ctc(frames, LENGTHS[:1], torch.tensor([[20, 21, 1]]), torch.tensor([3]))
    value.backward()
    assert 0 < value < 1000
    assert ctc.ctc_lo.bias.grad is not None
    assert (ctc.ctc_lo.bias.grad != 0).nonzero()[:, 0].tolist() == sorted([BLANK, 1, 20, 21])
